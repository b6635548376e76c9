package console

import (
	"context"
	"errors"
	"slices"
	"time"

	"recibo/agent"
	"recibo/hub"
	"recibo/store"
)

// defaultMaxTime bounds a poll from cron.
const defaultMaxTime = 10 * time.Minute

func (b *Backend) poll(ctx context.Context, req PollRequest, out Stream) (any, error) {
	if req.MaxTime <= 0 {
		req.MaxTime = defaultMaxTime
	}
	if req.DryRun {
		if b.Agent.Reporter == nil {
			return nil, Errorf(Usage, "reporter is turned off (reporter.enabled), and Fetcher has no list: nothing can be looked for")
		}
		sweep, err := b.Agent.Sweep(ctx, agent.Sweep{Since: req.Since, DryRun: true})
		return PollResult{Sweep: sweep, States: map[store.State]int{}}, unreachable(err)
	}
	if err := b.ready(); err != nil {
		return nil, err
	}
	began := time.Now()
	deadline := began.Add(req.MaxTime)
	if !b.Began.IsZero() {
		began = b.Began
	}
	bounded, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var res PollResult
	quarantined := b.Agent.Counts().Quarantined
	var undrained, unswept error // the trouble of one keeps nobody from asking another
	err := b.withProgress(ctx, out, func() error {
		if req.Events {
			undrained = b.drain(bounded)
		}
		if err := b.askAboutJobs(bounded); err != nil {
			return err
		}
		if b.Agent.Reporter != nil {
			res.Sweep, unswept = b.Agent.Sweep(bounded, agent.Sweep{Since: req.Since})
		}
		if unswept != nil && b.Agent.Fetcher == nil {
			return unreachable(unswept)
		}
		return errors.Join(unreachable(unswept), b.Agent.WaitIdle(bounded, deadline))
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = b.Agent.Held(ctx) // nil: the rest stays due, and StillDue says so
		if !res.Sweep.Complete && b.Agent.Reporter != nil {
			err = &Error{Unreachable, "reporter's list could not be walked in the time given", "what is on record stays due; " + checkHint}
		}
	}
	if err == nil {
		err = b.Agent.Prune(ctx)
	}
	res.Quarantined = int(b.Agent.Counts().Quarantined - quarantined)
	if counted := b.sumUp(ctx, began, out, &res); err == nil {
		err = counted
	}
	if err == nil {
		err = undrained
	}
	return res, err
}

// askAboutJobs makes the jobs that are expected due: Fetcher has no list to sweep.
func (b *Backend) askAboutJobs(ctx context.Context) error {
	if b.Agent.Fetcher == nil {
		return nil
	}
	if err := b.Agent.ExpectListed(ctx); err != nil {
		return Errorf(Failed, "fetcher.jobs_file: %v", err)
	}
	return b.Agent.HurryJobs(ctx, 0)
}

func (b *Backend) drain(ctx context.Context) error {
	for _, s := range slices.Concat(b.Agent.Subscriptions, b.Agent.JobSubscriptions) {
		if s.Health().Healthy {
			continue // a running agent receives from it already
		}
		if err := s.Drain(ctx, b.Agent.Admit); err != nil {
			var foreign *hub.ForeignOwnerError
			if errors.As(err, &foreign) {
				return &Error{Foreign, err.Error(), "if the other agent is gone for good, insist with: recibo poll --events --take-over"}
			}
			return &Error{Unreachable, "the subscription can't be drained: " + err.Error(), "its events stay where they are; " + checkHint}
		}
	}
	return nil
}

func unreachable(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &Error{Unreachable, err.Error(), "what is on record stays due; " + checkHint}
}

// sumUp sends what changed since began, and counts it by state.
func (b *Backend) sumUp(ctx context.Context, began time.Time, out Stream, res *PollResult) error {
	res.States = map[store.State]int{}
	for r, err := range b.Ledger.All(ctx, store.Query{Since: began}) {
		if err != nil {
			return err
		}
		res.States[r.State]++
		if err := out.Item(r); err != nil {
			return err
		}
	}
	stats, err := b.Ledger.Stats(ctx)
	res.StillDue = int(stats.Count(store.Pending))
	return err
}
