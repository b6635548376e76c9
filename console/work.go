package console

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"recibo/agent"
	"recibo/hub"
	"recibo/store"
)

// The calls that make the agent work, and wait for it.

// tally counts receipts by state and sends each as an item.
func tally(out Stream, o *Outcome) func(*store.Receipt) error {
	o.States = map[store.State]int{}
	return func(r *store.Receipt) error {
		o.Receipts++
		o.States[r.State]++
		return out.Item(r)
	}
}

// withProgress tells about downloads while f runs.
func (b *Backend) withProgress(ctx context.Context, out Stream, f func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { b.tell(ctx, out) })
	defer wg.Wait()
	defer cancel()
	return f()
}

func (b *Backend) fetch(ctx context.Context, req IDs, out Stream) (any, error) {
	keys, err := b.knownOrNew(ctx, req.IDs, req.Job)
	if err == nil {
		err = b.works(keys)
	}
	if err != nil {
		return nil, err
	}
	asked, err := b.Agent.Fetch(ctx, keys, req.Force)
	if err != nil {
		return nil, err
	}
	var o Outcome
	err = b.withProgress(ctx, out, func() error { return b.Agent.Wait(ctx, asked, false, tally(out, &o)) })
	return o, err
}

// works says why these would not be brought home here.
func (b *Backend) works(keys []store.Key) error {
	for _, k := range keys {
		switch {
		case k.Kind == store.Report && b.Agent.Reporter == nil:
			return Errorf(Usage, "reporter is turned off (reporter.enabled): there is nobody to ask about reports")
		case k.Kind == store.Job && b.Agent.Fetcher == nil:
			return &Error{Usage, "there is no section fetcher: jobs can't be brought home", "fetcher.amqp or fetcher.url turns it on"}
		}
	}
	return b.ready()
}

// ready says why nothing at all would be brought home here.
func (b *Backend) ready() error {
	if b.Agent.Reporter == nil && b.Agent.Fetcher == nil {
		return Errorf(Usage, "reporter is turned off (reporter.enabled), and there is no section fetcher: there is nobody to ask")
	}
	if b.Agent.Folder == nil || !b.Agent.Working() {
		return Errorf(Busy, "the agent is starting or stopping")
	}
	return nil
}

func (b *Backend) watch(ctx context.Context, req IDs, out Stream) (any, error) {
	keys, err := b.knownOrNew(ctx, req.IDs, req.Job)
	if err != nil {
		return nil, err
	}
	asked, err := b.Agent.Watch(ctx, keys)
	if err != nil {
		return nil, err
	}
	var o Outcome
	each := tally(out, &o)
	if req.Wait {
		if err := b.works(keys); err != nil {
			return nil, err
		}
		err := b.withProgress(ctx, out, func() error { return b.Agent.Wait(ctx, asked, true, each) })
		return o, err
	}
	return o, b.sendAll(ctx, keys, each)
}

func (b *Backend) sendAll(ctx context.Context, keys []store.Key, each func(*store.Receipt) error) error {
	for _, k := range keys {
		r, err := b.Ledger.Get(ctx, k)
		if err == nil {
			err = each(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) retry(ctx context.Context, req IDs, out Stream) (any, error) {
	var o Outcome
	each := tally(out, &o)
	if len(req.States) == 0 {
		keys, err := b.known(ctx, req.IDs)
		if err != nil {
			return nil, err
		}
		if _, err := b.Agent.Retry(ctx, keys); err != nil {
			return nil, err
		}
		return o, b.sendAll(ctx, keys, each)
	}
	// The rows of a state move as they are retried: all of them are read before the first is changed.
	var keys []store.Key
	for r, err := range b.Ledger.All(ctx, store.Query{States: req.States}) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, r.Key())
	}
	if _, err := b.Agent.Retry(ctx, keys); err != nil {
		return nil, err
	}
	return o, b.sendAll(ctx, keys, each)
}

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
	bounded, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var res PollResult
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
			return &Error{Unreachable, "the subscription can't be drained: " + err.Error(), "its events stay with the hub; " + checkHint}
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

func (b *Backend) verify(ctx context.Context, req VerifyRequest, out Stream) (any, error) {
	if b.Agent.Folder == nil {
		return nil, Errorf(Busy, "the download folder is not open")
	}
	var res VerifyResult
	again := map[store.Key]bool{}
	var read int64
	told := time.Now()
	progress := func(n int64) {
		res.Bytes += n
		if read += n; time.Since(told) >= 200*time.Millisecond {
			_ = out.Progress(Progress{Bytes: read})
			read, told = 0, time.Now()
		}
	}
	err := b.Agent.Verify(ctx, func(v agent.Verification) error {
		key := store.Key{Kind: v.Kind, ID: v.ID}
		switch v.Verdict {
		case "sound":
			res.Sound++
		case "damaged":
			res.Damaged++
			again[key] = again[key] || req.Repair
		default:
			res.Collected++
			again[key] = again[key] || req.Missing
		}
		return out.Item(v)
	}, progress)
	if err != nil {
		return res, err
	}
	if req.Adopt {
		if res.Adopted, err = b.adopt(ctx); err != nil {
			return res, err
		}
	}
	res.Repaired, err = b.fetchAgain(ctx, again, out)
	return res, err
}

// fetchAgain downloads damaged or missing files again and counts those that are sound afterwards.
func (b *Backend) fetchAgain(ctx context.Context, again map[store.Key]bool, out Stream) (int, error) {
	var keys []store.Key
	for k, wanted := range again {
		if wanted {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return 0, nil
	}
	if err := b.works(keys); err != nil {
		return 0, err
	}
	asked, err := b.Agent.Fetch(ctx, keys, true)
	if err != nil {
		return 0, err
	}
	repaired := 0
	err = b.withProgress(ctx, out, func() error {
		return b.Agent.Wait(ctx, asked, false, func(r *store.Receipt) error {
			sound, err := b.Agent.Sound(ctx, r)
			if sound {
				repaired++
			}
			return err
		})
	})
	return repaired, err
}

// adopt asks about every file in the folder that looks like a report and is not on record. Downloading it finds the
// same bytes under its name and takes the file over instead of writing another beside it.
func (b *Backend) adopt(ctx context.Context) (int, error) {
	if err := b.ready(); err != nil {
		return 0, err
	}
	ids, err := b.Agent.Unrecorded(ctx)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	asked, err := b.Agent.Fetch(ctx, ids, false)
	if err != nil {
		return 0, err
	}
	adopted := 0
	err = b.Agent.Wait(ctx, asked, false, func(r *store.Receipt) error {
		sound, err := b.Agent.Sound(ctx, r)
		if sound {
			adopted++
		}
		return err
	})
	return adopted, err
}
