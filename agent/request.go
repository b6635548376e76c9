package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"recibo/rest"
	"recibo/store"
)

// What people ask for: these reports now, these when they end, these again.

// Fetch makes reports due ahead of others. With force they are downloaded again even where their completion is on
// record. It returns the generations that a Wait is to see handled.
func (a *Agent) Fetch(ctx context.Context, keys []store.Key, force bool) (map[store.Key]uint64, error) {
	return a.ask(ctx, keys, func(r *store.Receipt, fresh bool) bool {
		if fresh {
			r.FoundBy = "fetch"
		}
		r.Urgent, r.Force = true, r.Force || force
		a.makeDue(r, fresh, "asked for by fetch")
		return true
	})
}

// Watch makes reports expected: they are asked about until they end.
func (a *Agent) Watch(ctx context.Context, keys []store.Key) (map[store.Key]uint64, error) {
	return a.ask(ctx, keys, func(r *store.Receipt, fresh bool) bool {
		if !fresh && (r.State == store.Delivered || r.State == store.Failed) {
			return false // it has ended
		}
		if fresh {
			r.FoundBy, r.State = "watch", store.Expected
		}
		a.makeDue(r, false, "watched")
		return true
	})
}

// Retry makes receipts due now with a fresh budget.
func (a *Agent) Retry(ctx context.Context, keys []store.Key) (map[store.Key]uint64, error) {
	return a.ask(ctx, keys, func(r *store.Receipt, fresh bool) bool {
		if fresh {
			return false
		}
		a.makeDue(r, false, "retry asked for")
		return true
	})
}

// Release admits a quarantined event after all. One without a usable id of its own gets one that its entry is known by.
func (a *Agent) Release(ctx context.Context, q *store.Quarantined, report string) (store.Outcome, error) {
	id := q.EventID
	if id == "" || len(id) > maxEventID {
		id = fmt.Sprintf("quarantine-%d", q.ID)
	}
	outcome, err := a.Ledger.Release(ctx, q.ID, store.Admission{
		Feed: store.Reports, EventID: id, EventName: q.EventName, Receipt: store.Key{Kind: store.Report, ID: report},
		Transport: q.Transport, Origin: q.Origin, Tenant: q.Headers["tenantid"], Source: q.Headers["source"],
	})
	a.Wake()
	return outcome, err
}

// maxEventID is the longest id that the ledger takes as it is, in bytes.
const maxEventID = 1024

func (a *Agent) makeDue(r *store.Receipt, fresh bool, note string) {
	now := a.Now()
	if fresh || r.State == store.Parked {
		r.State = store.Pending
	}
	r.Generation++
	r.Attempts, r.Asked, r.Due = 0, 0, now
	r.Note(now, note)
}

// askPage bounds one transaction.
const askPage = 256

func (a *Agent) ask(ctx context.Context, keys []store.Key, f func(*store.Receipt, bool) bool) (map[store.Key]uint64, error) {
	asked := make(map[store.Key]uint64, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), askPage)
		err := a.Ledger.Change(ctx, keys[:n], func(r *store.Receipt, fresh bool) bool {
			if !f(r, fresh) {
				if !fresh {
					asked[r.Key()] = 0
				}
				return false
			}
			asked[r.Key()] = r.Generation
			return true
		})
		if err != nil {
			return asked, err
		}
		keys = keys[n:]
	}
	a.Wake()
	return asked, nil
}

// serviceTrouble is how long a person who waits is left waiting for a service that does not answer.
const serviceTrouble = 20 * time.Second

// ErrUnreachable tells that what is needed can't be reached now. What was asked for stays due.
var ErrUnreachable = errors.New("can't be reached")

// Wait returns once every receipt has been handled at its generation, calling each with every receipt as it is; with
// ended, only once each has ended. It gives up with ErrUnreachable when Reporter's gate stays closed.
func (a *Agent) Wait(ctx context.Context, asked map[store.Key]uint64, ended bool, each func(*store.Receipt) error) error {
	changes := a.settles.listen()
	defer changes.close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	open := maps.Clone(asked)
	look := slices.Collect(maps.Keys(open))
	for {
		for _, k := range look {
			generation, waited := open[k]
			if !waited {
				continue
			}
			r, err := a.Ledger.Get(ctx, k)
			if err != nil {
				return err
			}
			if done(r, generation, ended, a.Now()) {
				delete(open, k)
				if err := each(r); err != nil {
					return err
				}
			}
		}
		if len(open) == 0 {
			return nil
		}
		if err := a.closedFor(serviceTrouble); err != nil && !ended {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changes.raised:
		case <-tick.C:
		}
		look = changes.take()
	}
}

// A person who waits for one report is told that it fails after this many attempts, or when the next one is far off. It
// stays due.
const (
	failedAttempts = 3
	farOff         = 20 * time.Second
)

func done(r *store.Receipt, generation uint64, ended bool, now time.Time) bool {
	switch {
	case r.Handled < generation:
		return false
	case ended:
		return r.State == store.Delivered || r.State == store.Failed || r.State == store.Parked || r.State == store.Partial
	case r.State == store.Pending:
		return r.Attempts >= failedAttempts || r.Due.Sub(now) > farOff
	}
	return r.Intent == nil
}

// closedFor returns an error when work has been held for at least d by Reporter or by the download folder.
func (a *Agent) closedFor(d time.Duration) error {
	now := a.Now()
	if a.Reporter != nil {
		for _, g := range a.Reporter.Gates() {
			// Limited is no trouble: it is Reporter's way of setting the pace.
			if !g.Open && g.Kind != rest.Limited && now.Sub(g.Since) >= d {
				return fmt.Errorf("reporter %w: %s", ErrUnreachable, g.Reason)
			}
		}
	}
	if reason, since := a.folder.state(); reason != "" && now.Sub(since) >= d {
		return fmt.Errorf("the download folder %w: %s", ErrUnreachable, reason)
	}
	return nil
}

// Held says what holds all work now: ErrUnreachable with the reason, nil for nothing.
func (a *Agent) Held() error { return a.closedFor(0) }

// WaitIdle returns once nothing is in work, nothing is due, and no pending receipt will be due before the deadline.
func (a *Agent) WaitIdle(ctx context.Context, deadline time.Time) error {
	changes := a.settles.listen()
	defer changes.close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		changes.take()
		idle, err := a.idle(ctx, deadline)
		if err != nil || idle {
			return err
		}
		if err := a.closedFor(serviceTrouble); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changes.raised:
		case <-tick.C:
		}
	}
}

func (a *Agent) idle(ctx context.Context, deadline time.Time) (bool, error) {
	if a.Active() > 0 {
		return false, nil
	}
	look, err := a.Ledger.Due(ctx, a.Now(), store.Mark{}, 1, nil)
	if err != nil || len(look.Due) > 0 {
		return false, err
	}
	for r, err := range a.Ledger.All(ctx, store.Query{States: []store.State{store.Pending}}) {
		if err != nil {
			return false, err
		}
		if !r.Due.IsZero() && r.Due.Before(deadline) {
			return false, nil
		}
	}
	return a.Active() == 0, nil
}
