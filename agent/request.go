package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"recibo/hub"
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

// Watch makes reports and jobs expected: they are asked about until they end. A job is left to its event for
// agent.poll_grace first, while events can come.
func (a *Agent) Watch(ctx context.Context, keys []store.Key) (map[store.Key]uint64, error) {
	return a.watch(ctx, keys, false)
}

// watch leaves what is on record alone where only new ones are meant: that has its own course.
func (a *Agent) watch(ctx context.Context, keys []store.Key, onlyNew bool) (map[store.Key]uint64, error) {
	grace := time.Duration(0)
	if a.receivesJobs() {
		grace = a.Config.PollGrace
	}
	return a.ask(ctx, keys, func(r *store.Receipt, fresh bool) bool {
		if onlyNew && !fresh {
			return false
		}
		r.TakeUp(store.Expected)
		switch r.State {
		case store.Delivered, store.Encrypted, store.Failed:
			return false // it has ended
		}
		if fresh {
			r.FoundBy, r.State = "watch", store.Expected
		}
		a.makeDue(r, false, "watched")
		if r.Kind == store.Job && fresh {
			r.Due = a.Now().Add(grace)
		}
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

// Dismissable reports whether a receipt waits for something. One that is just being published does not, nor does one whose
// file is home: that never degrades.
func Dismissable(r *store.Receipt) bool {
	waits := r.State == store.Pending || r.State == store.Expected || r.State == store.Parked
	return waits && r.Intent == nil && r.Newest() == nil
}

// Dismiss ends what a person no longer waits for. It stays on record as failed, with the reason given, until a newer event,
// a list that says something new, or a person takes it up again.
func (a *Agent) Dismiss(ctx context.Context, keys []store.Key, reason string) error {
	asked, err := a.ask(ctx, keys, func(r *store.Receipt, fresh bool) bool { return !fresh && a.dismiss(r, reason) })
	for k, generation := range asked {
		if generation > 0 { // it was not before
			a.Log.Info(string(k.Kind)+" dismissed", string(k.Kind), k.ID, "reason", reason)
		}
		a.settles.raise(k) // somebody may wait for it
	}
	return err
}

// dismiss counts as handled whatever was asked for before.
func (a *Agent) dismiss(r *store.Receipt, reason string) bool {
	if !Dismissable(r) {
		return false
	}
	r.State, r.Reason, r.Dismissed = store.Failed, "dismissed: "+reason, true
	r.Due, r.Urgent, r.Force, r.Stale = time.Time{}, false, false, false
	r.Handled = r.Generation
	r.Note(a.Now(), r.Reason)
	return true
}

// ErrNotVerified tells that a quarantined event still does not pass its checks.
var ErrNotVerified = errors.New("it is still not verified")

// Release admits a quarantined event after all: one of the Hub as being about the report that a person names, one of
// Fetcher only if it passes every check now, as after a key was added. It returns what the event is about.
func (a *Agent) Release(ctx context.Context, q *store.Quarantined, report string) (store.Key, store.Outcome, error) {
	adm := store.Admission{
		Feed: store.Reports, EventID: q.EventID, EventName: q.EventName, Receipt: store.Key{Kind: store.Report, ID: report},
		Transport: q.Transport, Origin: q.Origin, Tenant: q.Headers["tenantid"], Source: q.Headers["source"],
	}
	if q.Feed == store.Jobs {
		var err error
		if adm, err = a.again(q); err != nil {
			return store.Key{}, 0, err
		}
	}
	if adm.EventID == "" || len(adm.EventID) > maxEventID { // it gets an id that its entry is known by
		adm.EventID = fmt.Sprintf("quarantine-%d", q.ID)
	}
	outcome, err := a.Ledger.Release(ctx, q.ID, adm)
	if err == nil {
		a.Log.Info("quarantined event released", "entry", q.ID, string(adm.Receipt.Kind), adm.Receipt.ID)
	}
	a.Wake()
	return adm.Receipt, outcome, err
}

// ReleaseVerified admits a quarantined event of Fetcher that nothing showed to be authentic, if it passes every check now.
// Where another event was admitted under its id it returns store.Conflict and leaves it to a person.
func (a *Agent) ReleaseVerified(ctx context.Context, q *store.Quarantined) (store.Outcome, error) {
	adm, err := a.again(q)
	if err != nil {
		return 0, err
	}
	outcome, err := a.Ledger.ReleaseUndisputed(ctx, q.ID, adm)
	if err == nil && outcome != store.Conflict {
		a.Log.Info("quarantined event released: it is verified now", "entry", q.ID, "job", adm.Receipt.ID)
	}
	a.Wake()
	return outcome, err
}

// again verifies a quarantined event of Fetcher anew.
func (a *Agent) again(q *store.Quarantined) (store.Admission, error) {
	if a.Fetcher == nil {
		return store.Admission{}, fmt.Errorf("%w: there is no section fetcher to verify it by", ErrNotVerified)
	}
	d := a.Fetcher.Again(q.Headers, q.Data, q.Transport, q.Origin)
	if d.Verdict != hub.Accept {
		return store.Admission{}, fmt.Errorf("%w: %s", ErrNotVerified, d.Reason)
	}
	return a.admission(d), nil
}

// maxEventID is the longest id that the ledger takes as it is, in bytes.
const maxEventID = 1024

func (a *Agent) makeDue(r *store.Receipt, fresh bool, note string) {
	now := a.Now()
	r.TakeUp(store.Pending)
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
