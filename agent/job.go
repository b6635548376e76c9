package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"recibo/fetcher"
	"recibo/reporter"
	"recibo/rest"
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
// one. Where there is nobody to ask, a
// result whose own HMAC shows that it is whole goes before the word that there is none.
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

// asks lists the Fetchers that may know a job: its own, or all while that is not known. Those that were in trouble when they
// were asked last come last: the one that knows the job may be well.
func (a *Agent) asks(source int) []int {
	var well, away []int
	for i := range a.fetching {
		switch {
		case i != source && source >= 0, !a.Fetcher.Asks(i):
		case a.fetching[i].away.Load():
			away = append(away, i)
		default:
			well = append(well, i)
		}
	}
	return append(well, away...)
}

// AsksAboutJobs reports whether there is anybody to ask about a job that no event told of.
func (a *Agent) AsksAboutJobs() bool { return len(a.asks(-1)) > 0 }

func (a *Agent) askNext(ctx context.Context, t *transfer) {
	i := t.asks[0]
	t.asks = t.asks[1:]
	q := a.fetching[i].asked
	if q.weight() >= readyBacklog && !t.urgent {
		a.giveBack(ctx, t)
		return
	}
	a.mu.Lock()
	t.waits = true
	a.mu.Unlock()
	if r, err := a.Ledger.Get(ctx, t.key); err == nil && r.Generation > t.generation {
		a.weighAgain([]store.Key{t.key}) // an event came before it was known to wait
		return
	}
	q.push(t)
	a.Wake() // there may be room for more to be weighed
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

// ofEvent reads a signed event.
func ofEvent(said *fetcher.Announced) *description {
	d := &description{
		status: said.Status, completedAt: said.CompletedAt, metadata: said.Metadata, result: said.Result, authority: bySignedEvent,
	}
	if said.Status == fetcher.Completed {
		d.end = finished
	} else {
		d.end, d.failure = failed, jobFailure(said.Error)
	}
	return d
}

func jobFailure(message string) reporter.Failure {
	if message == "" {
		message = "fetcher gave no reason"
	}
	return reporter.Failure{Reason: rest.Harmless(message, maxJobReason)}
}

// maxJobReason bounds the text of a failed job, in bytes.
const maxJobReason = 2048

// ofJob reads Fetcher's answer. Where an event speaks of the same result, it knows more of it: size and rows.
func ofJob(j *fetcher.Job, said told) *description {
	d := &description{
		status: j.Status, completedAt: j.CompletedAt, createdAt: j.CreatedAt, metadata: j.Metadata, authority: byFetcher,
	}
	switch j.Status {
	case fetcher.Completed:
		result := j.Result()
		d.end, d.result = finished, &result
		if c := said.completed; c != nil && (result.HMAC == "" || result.HMAC == c.Result.HMAC) {
			d.result = c.Result
		}
	case fetcher.Failed:
		d.end, d.failure = failed, jobFailure(j.Error)
	case fetcher.Pending, fetcher.Processing:
	default:
		d.unknown = true
	}
	return d
}

// weighAgain has jobs weighed again that wait for their turn to be asked about: an event that has just come may settle them,
// or another Fetcher may know them while the one that they wait for is away.
func (a *Agent) weighAgain(keys []store.Key) {
	for _, k := range keys {
		a.mu.Lock()
		t := a.active[k]
		if t == nil || !t.waits {
			a.mu.Unlock()
			continue
		}
		anew := &transfer{key: k, urgent: t.urgent}
		anew.total.Store(-1)
		a.active[k] = anew // takesTurn tells the other one that it is given up
		a.mu.Unlock()
		a.weighed.push(anew)
	}
}

// takesTurn reports whether a transfer that waited for its turn still stands for its job.
func (a *Agent) takesTurn(t *transfer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.waits = false
	return a.active[t.key] == t
}

// askFetcher asks one Fetcher about a job and follows the answer.
func (a *Agent) askFetcher(ctx context.Context, t *transfer, i int) {
	if !a.takesTurn(t) {
		a.Fetcher.CancelJob(i)
		return
	}
	r, ok := a.start(ctx, t)
	if !ok {
		a.Fetcher.CancelJob(i)
		return
	}
	a.counts.descriptions.Add(1)
	job, err := a.Fetcher.Job(ctx, i, t.key.ID)
	if away := err != nil && ofService(err); a.fetching[i].away.Swap(away) != away && away {
		a.weighAgain(a.fetching[i].asked.keys(func(t *transfer) bool { return len(t.asks) > 0 })) // others are asked first
	}
	switch {
	case err != nil && len(t.asks) > 0 && ctx.Err() == nil:
		if !fetcher.Unknown(err) && t.unsure == nil {
			t.unsure = err
		}
		a.askNext(ctx, t)
		return
	case fetcher.Unknown(err) && t.unsure != nil:
		err = t.unsure // one that did not answer may know it
	}
	switch {
	case err == nil:
		said, _ := readTold(r) // what can't be read was logged when it was weighed
		t.described = ofJob(job, said)
		if t.source < 0 {
			t.source = i
			t.described.source, t.described.tenant = a.Fetcher.Name(i)
		}
		if a.forgotten(t, r) {
			a.settle(ctx, t, a.leaveForgotten)
			a.finish(t)
			return
		}
		a.follow(ctx, t, r)
	case unreadable(err):
		a.settle(ctx, t, func(t *transfer, r *store.Receipt) { a.waitWithoutBlame(r, err) })
		a.Log.Warn("a job can't be described", "job", t.key.ID, "error", err)
		a.finish(t)
	default:
		a.failed(ctx, t, err)
	}
}

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
