package agent

import (
	"context"
	"errors"
	"time"

	"recibo/hub"
	"recibo/store"
)

// pollOnSchedule sweeps at the start, as often as the state of the subscription asks for, and after every new binding:
// what a stream lost or a consumer skipped is found there.
func (a *Agent) pollOnSchedule(ctx context.Context) {
	if a.Reporter == nil || a.Config.PollEvery == 0 && a.Config.PollHealthy == 0 {
		return
	}
	var last SweepResult // to be judged
	bindings := 0        // that a sweep has followed
	a.untilQuiet(ctx)
	for next := a.Now(); ; {
		now := a.Now()
		if len(a.Subscriptions) > 0 && len(last.ended) > 0 && now.Sub(last.End) >= a.Config.PollGrace {
			if err := a.judge(ctx, last); err != nil && ctx.Err() == nil {
				a.Log.Warn("the sweep could not be judged", "error", err)
			}
			last.ended = nil
		}
		every := a.pollInterval(ctx)
		if bound := a.bindings(); bound > bindings || every > 0 && (!now.Before(next) || next.Sub(now) > every) {
			a.untilQuiet(ctx)
			bindings = a.bindings()
			last = a.sweepAndTell(ctx)
			next = a.Now().Add(every)
			if !last.Complete {
				next = a.Now().Add(min(every, time.Minute)) // what stopped it is asked about again soon
			}
		}
		// Looking again each minute follows a change of the subscription's health.
		if !a.pause(ctx, min(time.Minute, max(every, time.Second), max(a.Config.PollGrace, time.Second))) {
			return
		}
	}
}

// pause waits for d or for a new binding, and reports whether ctx goes on.
func (a *Agent) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-a.rebound:
	}
	return true
}

// followBindings passes new bindings on to the polling.
func (a *Agent) followBindings(ctx context.Context, s hub.Subscription) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Bound():
			select {
			case a.rebound <- struct{}{}:
			default:
			}
		}
	}
}

func (a *Agent) bindings() int {
	n := 0
	for _, s := range a.Subscriptions {
		n += s.Health().Bindings
	}
	return n
}

const (
	bindWait    = 10 * time.Second
	backlogWait = 2 * time.Minute
)

// untilQuiet lets a subscription that has just been bound hand over what it holds, so that a sweep does not find first
// what an event is about to announce. A subscription that can't be bound, or that never rests, holds no sweep for long.
func (a *Agent) untilQuiet(ctx context.Context) {
	for begun := time.Now(); ; {
		bound, backlog := a.subscribed(), uint64(0)
		for _, s := range a.Subscriptions {
			backlog += s.Health().Backlog
		}
		waited := time.Since(begun)
		switch {
		case len(a.Subscriptions) == 0, bound && backlog == 0, !bound && waited > bindWait, waited > backlogWait:
			return
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// pollInterval is 0 while the present health of the subscription asks for no sweeps.
func (a *Agent) pollInterval(ctx context.Context) time.Duration {
	if a.subscribed() && !a.silent(ctx) {
		return a.Config.PollHealthy
	}
	return a.Config.PollEvery
}

func (a *Agent) sweepAndTell(ctx context.Context) SweepResult {
	res, err := a.Sweep(ctx, Sweep{})
	if err == nil {
		a.Log.Info("sweep complete", "listed", res.Listed, "found", res.Found)
	} else if ctx.Err() == nil {
		a.Log.Warn("sweep incomplete", "listed", res.Listed, "error", err)
	}
	return res
}

// subscribed reports whether there are subscriptions and all of them are healthy.
func (a *Agent) subscribed() bool {
	for _, s := range a.Subscriptions {
		if !s.Health().Healthy {
			return false
		}
	}
	return len(a.Subscriptions) > 0
}

// silent reports whether the last sweep found what no event had announced, and no event has come since.
func (a *Agent) silent(ctx context.Context) bool {
	last, ok, err := a.LastSweep(ctx)
	if err != nil || !ok || last.Unannounced == 0 {
		return false
	}
	for _, s := range a.Subscriptions {
		if s.Health().LastEvent.After(last.End) {
			return false
		}
	}
	return len(a.Subscriptions) > 0
}

// judge counts which of the reports that a sweep found have still not been announced, and keeps the count.
func (a *Agent) judge(ctx context.Context, res SweepResult) error {
	for _, k := range res.ended {
		r, err := a.Ledger.Get(ctx, k)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err == nil && len(r.Events) == 0 {
			res.Unannounced++
		}
	}
	if res.Unannounced > 0 {
		a.Log.Warn("reports were found that no event announced: is the subscription silent?", "reports", res.Unannounced)
	}
	return a.keepSweep(ctx, res)
}
