package agent

import (
	"context"
	"errors"
	"time"

	"recibo/hub"
	"recibo/reporter"
	"recibo/store"
)

// compare makes due what differs from the record, one page in one transaction.
// asked is when the page was asked for.
func (a *Agent) compare(ctx context.Context, reports []reporter.Report, asked, startAt time.Time, dry bool, res *SweepResult) error {
	listed := make(map[store.Key]*reporter.Report, len(reports))
	keys := make([]store.Key, 0, len(reports))
	for i := range reports {
		k := store.Key{Kind: store.Report, ID: hub.CanonicalID(reports[i].ID)}
		if listed[k] == nil {
			keys = append(keys, k)
		}
		listed[k] = &reports[i]
	}
	grace := a.graceStart()
	now := a.Now()
	examine := func(r *store.Receipt, fresh bool) bool {
		l := listed[r.Key()]
		if !fresh && !r.Due.IsZero() && !r.Due.After(now) {
			a.hint(l, asked) // it is due anyway, and need not be described again
			return false
		}
		if !a.differs(r, fresh, l, startAt, grace) {
			return false
		}
		res.Found++
		if announced(l.Status) && len(r.Events) == 0 {
			res.ended = append(res.ended, r.Key())
		}
		if dry {
			res.Missing = append(res.Missing, r.ID)
			return false
		}
		a.foundByList(r, fresh, l, asked)
		return true
	}
	if !dry {
		if err := a.Ledger.Change(ctx, keys, examine); err != nil {
			return err
		}
		a.Wake()
		return nil
	}
	for _, k := range keys {
		r, err := a.Ledger.Get(ctx, k)
		if errors.Is(err, store.ErrNotFound) {
			examine(&store.Receipt{Kind: k.Kind, ID: k.ID}, true)
		} else if err != nil {
			return err
		} else {
			examine(r, false)
		}
	}
	return nil
}

// differs tells whether a listed report calls for work.
func (a *Agent) differs(r *store.Receipt, fresh bool, l *reporter.Report, startAt, grace time.Time) bool {
	if !fresh {
		return r.Status != l.Status || !reporter.SameCompletion(r.CompletedAt, l.CompletedAt)
	}
	completed, ended := reporter.ParseTime(l.CompletedAt)
	if !ended {
		// Without a completion only its creation can tell a report of before our time.
		created, ok := reporter.ParseTime(l.CreatedAt)
		return !ok || !created.Before(startAt)
	}
	return !completed.Before(startAt) && !completed.After(grace)
}

// foundByList makes a receipt due, and keeps the description for whoever works on it. It writes no state but that of a
// new receipt, and of one that was dismissed.
func (a *Agent) foundByList(r *store.Receipt, fresh bool, l *reporter.Report, asked time.Time) {
	now := a.Now()
	if fresh {
		r.State, r.FoundBy = store.Pending, "poll"
	}
	r.TakeUp(store.Pending)
	r.Generation++
	r.Due = now
	r.Note(now, "listed by reporter as "+l.Status)
	a.hint(l, asked)
}

// hint keeps a description for whoever works on the report next. One that is in work has its own, and beyond the bound of
// what is kept in memory a receipt is simply described again.
func (a *Agent) hint(l *reporter.Report, asked time.Time) {
	k := store.Key{Kind: store.Report, ID: hub.CanonicalID(l.ID)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.hints) < maxHints && len(l.Metadata) < maxHintMetadata && a.active[k] == nil && a.working.Load() {
		a.hints[k] = hint{l, asked}
	}
}

// hint is a description that a list gave. It serves instead of a GET for a short while, and only for what was admitted
// before the list was asked for.
type hint struct {
	report *reporter.Report
	asked  time.Time
}

// announced tells whether an event is published for a report that ends with this status. There is none for an Error.
func announced(status string) bool { return status == reporter.Finished || status == reporter.Partial }

const (
	hintFor         = time.Minute
	maxHints        = 4096
	maxHintMetadata = 16 << 10
)

// graceStart leaves what was completed after it to its event, while a healthy subscription can still bring one.
func (a *Agent) graceStart() time.Time {
	if !a.working.Load() || !a.subscribed() {
		return a.Now().Add(365 * 24 * time.Hour)
	}
	return a.Now().Add(-a.Config.PollGrace)
}
