package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"recibo/fetcher"
	"recibo/rest"
	"recibo/store"
)

// failed ends an attempt with an error. Only what is about this very report spends its budget.
func (a *Agent) failed(ctx context.Context, t *transfer, err error) {
	if ctx.Err() != nil || ofService(err) {
		a.interrupted(ctx, t, err)
		return
	}
	var result *fetcher.ResultError
	if errors.As(err, &result) && result.Blameless() {
		a.Log.Warn("a result can't be had now; it stays due", "job", t.key.ID, "error", err)
		a.settle(ctx, t, func(t *transfer, r *store.Receipt) {
			t.describedOn(r)
			a.waitWithoutBlame(r, err)
		})
		a.finish(t)
		return
	}
	var retryAt time.Time
	var e *rest.Error
	if errors.As(err, &e) {
		retryAt = e.RetryAt
	}
	hopeless := onlyAPersonCanHelp(err)
	parked := false
	a.settle(ctx, t, func(t *transfer, r *store.Receipt) {
		t.describedOn(r) // a sweep that lists the same finds nothing new in it
		r.Attempts++
		r.Reason = err.Error()
		if hopeless || r.Attempts >= a.Config.Attempts {
			parked = true
			a.park(r)
			return
		}
		wait := jitter(doubled(a.Config.Backoff.Min, a.Config.Backoff.Max, r.Attempts-1))
		r.Due = latest(a.Now().Add(wait), earliest(retryAt, a.Now().Add(longestRetryAfter)))
		r.Note(a.Now(), fmt.Sprintf("attempt %d failed: %s", r.Attempts, err))
	})
	if parked {
		a.Log.Warn(string(t.key.Kind)+" parked", string(t.key.Kind), t.key.ID, "reason", err)
	} else {
		a.Log.Warn("attempt failed", string(t.key.Kind), t.key.ID, "error", err)
	}
	a.finish(t)
}

// park leaves a receipt to a person or a newer event. What is home stays delivered: it never degrades.
func (a *Agent) park(r *store.Receipt) {
	r.Due = time.Time{}
	r.Note(a.Now(), "parked: "+r.Reason)
	if r.Newest() == nil {
		r.State = store.Parked
	} else {
		r.State = homeState(r)
	}
}

// ofService reports whether an error is the trouble of Reporter, Fetcher or the object store, whose gate has closed.
func ofService(err error) bool {
	var e interface{ Service() bool }
	return errors.As(err, &e) && e.Service()
}

// hindered ends an attempt that this machine did not let succeed: no room, no right, something else in the folder. It says
// nothing about the report, so no budget is spent; the wait grows, and others, which may fit, go on. When nothing fits
// the lane of downloads itself stops.
func (a *Agent) hindered(ctx context.Context, t *transfer, err error) {
	a.Log.Error("a "+string(t.key.Kind)+" can't be kept here; it stays due", string(t.key.Kind), t.key.ID, "error", err)
	a.settle(ctx, t, func(t *transfer, r *store.Receipt) { a.waitWithoutBlame(r, err) })
	a.finish(t)
}

// blamelessFirst is the first wait after trouble that is nobody's own and closes no gate.
const blamelessFirst = time.Minute

// waitWithoutBlame makes a receipt due again later, and leaves its budget alone.
func (a *Agent) waitWithoutBlame(r *store.Receipt, err error) {
	r.Due = a.Now().Add(jitter(doubled(blamelessFirst, a.longest(blamelessFirst), r.Asked)))
	r.Asked++
	r.Reason = err.Error()
}

// interrupted ends an attempt that says nothing about the report: the service or this machine is in trouble, or the
// agent is stopping. The receipt stays due as it was, and a closed gate holds the next attempt.
func (a *Agent) interrupted(ctx context.Context, t *transfer, err error) {
	if ctx.Err() == nil {
		a.Log.Warn("interrupted; the "+string(t.key.Kind)+" stays due", string(t.key.Kind), t.key.ID, "error", err)
	}
	if ctx.Err() == nil && !ofService(err) {
		// Trouble of this machine has no gate: a pause keeps the attempt from spinning.
		sleep(ctx, a.Config.Backoff.Min)
	}
	a.lookAgain(t.key.Kind) // it is due at its old time
	a.finish(t)
}

func (a *Agent) longest(floor time.Duration) time.Duration { return max(floor, a.Config.Backoff.Max) }

// jitter adds up to a quarter, so that receipts which failed together don't return together. It never subtracts.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	return d + rand.N(d/4+1)
}

// longestRetryAfter bounds what an answer about one report may ask for: a date in the year 2100 must not strand it.
const longestRetryAfter = time.Hour

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
