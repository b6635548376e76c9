package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"recibo/fetcher"
	"recibo/setting"
	"recibo/store"
)

// Whose word a job was settled by, as its receipt says.
const (
	bySignedEvent = "signed event"
	byFetcher     = "fetcher"
)

// told is what the signed events of a job say. Each job ends in one of the two; both is a contradiction.
type told struct{ completed, failed *fetcher.Announced }

// readTold reads what admission kept. It was verified then, so what can't be read now is damage or of another version.
func readTold(r *store.Receipt) (t told, err error) {
	for name, body := range r.Announced {
		said, err := fetcher.ParseAnnounced(body)
		if err != nil {
			return told{}, fmt.Errorf("the event %s on record can't be read: %w", name, err)
		}
		if name == fetcher.JobCompleted {
			t.completed = said
		} else {
			t.failed = said
		}
	}
	return t, nil
}

// one returns the only thing that was said, nil when nothing was, or both.
func (t told) one() *fetcher.Announced {
	switch {
	case t.failed == nil:
		return t.completed
	case t.completed == nil:
		return t.failed
	}
	return nil
}

// weigh decides by whose word a job is settled. Its signed event is enough. Fetcher itself is asked when events contradict
// each other, now and whenever the job comes up again, when none has come, and when a person wants to know about a failed
// one. Where there is nobody to ask, a result whose own HMAC shows that it is whole goes before the word that there is none.
func (a *Agent) weigh(ctx context.Context, t *transfer) {
	r, ok := a.start(ctx, t)
	if !ok {
		return
	}
	said, err := readTold(r)
	if err != nil {
		a.Log.Error("a job's event can't be used", "job", r.ID, "error", err)
		said = told{}
	}
	t.source = a.sourceOf(r)
	t.asks = a.asks(t.source)
	one := said.one()
	sure := one != nil && !r.Contested && !(r.Urgent && one == said.failed)
	switch {
	case !sure && len(t.asks) > 0:
		a.askNext(ctx, t)
	case one != nil:
		a.followEvent(ctx, t, r, one)
	case said.completed != nil:
		a.Log.Warn("two events contradict each other, and there is no fetcher.url to ask; the one with a result counts", "job", r.ID)
		a.followEvent(ctx, t, r, said.completed)
	default:
		a.settle(ctx, t, a.awaitEvent)
		a.finish(t)
	}
}

// followEvent settles a job by its signed event.
func (a *Agent) followEvent(ctx context.Context, t *transfer, r *store.Receipt, said *fetcher.Announced) {
	if t.source < 0 {
		// Its source was among fetcher.sources when the event was admitted.
		a.failed(ctx, t, &fetcher.ResultError{Kind: fetcher.NoKey, JobID: r.ID,
			Err: fmt.Errorf("source %q, tenant %q is no longer among fetcher.sources", r.Source, r.Tenant)})
		return
	}
	t.described = ofEvent(said)
	a.follow(ctx, t, r)
}

// queueResult has the result of a described job brought home.
func (a *Agent) queueResult(ctx context.Context, t *transfer) {
	t.outlet = a.fetching[t.source].outlet
	q := a.fetching[t.source].ready
	if q.weight() >= readyBacklog && !t.urgent {
		a.giveBack(ctx, t)
		return
	}
	q.push(t)
	a.Wake() // there may be room for more to be weighed
}

// giveBack leaves a job to the ledger for a while where too many wait for one service: the queue of one that is away must
// neither grow without bound nor stop what others wait for.
func (a *Agent) giveBack(ctx context.Context, t *transfer) {
	a.settle(ctx, t, func(_ *transfer, r *store.Receipt) { a.waitWithoutBlame(r, errCrowded) })
	a.finish(t)
}

var errCrowded = errors.New("too many jobs wait for the service that this one is to be had from")

// forgotten reports whether an expected job ended so long ago that its receipt may have been removed since: an id that is
// never taken out of fetcher.jobs_file must not bring a result home twice.
func (a *Agent) forgotten(t *transfer, r *store.Receipt) bool {
	at := t.completedAt()
	return t.described.end == finished && r.FoundBy == "watch" && !r.Urgent && r.Newest() == nil && len(r.Announced) == 0 &&
		a.Retention > 0 && !at.IsZero() && a.Now().Sub(at) > a.Retention
}

func (a *Agent) leaveForgotten(t *transfer, r *store.Receipt) {
	t.describedOn(r)
	r.Reason = "completed longer ago than store.retention, so that it may have been delivered before; recibo fetch --job brings it home"
	a.park(r)
}

// awaitEvent leaves a job that nobody can be asked about to its event, and says when that is overdue. An end that is on
// record stands.
func (a *Agent) awaitEvent(t *transfer, r *store.Receipt) {
	now := a.Now()
	r.Reason = "no event has come, and there is no fetcher.url to ask"
	switch r.State {
	case store.Delivered, store.Encrypted, store.Failed:
		r.Force = false
		return
	}
	r.State = store.Expected
	switch overdue := r.Created.Add(a.Config.StaleAfter); {
	case r.Stale:
	case now.Before(overdue):
		r.Due = overdue
	default:
		r.Stale = true
		r.Note(now, "stale: no event for longer than "+setting.FormatDuration(a.Config.StaleAfter))
		a.log(t).Warn("job is stale: its event has not come", "job", r.ID, "since", r.Created.UTC().Format(time.RFC3339))
	}
}
