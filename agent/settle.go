package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"recibo/hub"
	"recibo/reporter"
	"recibo/rest"
	"recibo/store"
)

// describe asks the authority about one receipt and follows the answer.
func (a *Agent) describe(ctx context.Context, t *transfer) {
	r, ok := a.start(ctx, t)
	if !ok {
		a.Reporter.Cancel(rest.Get)
		return
	}
	a.counts.descriptions.Add(1)
	report, err := a.Reporter.Report(ctx, t.key.ID)
	if err == nil {
		t.report = report
		a.follow(ctx, t, r)
		return
	}
	a.undescribed(ctx, t, r, err)
}

// decide follows a description that a list has just given.
func (a *Agent) decide(ctx context.Context, t *transfer) {
	r, ok := a.start(ctx, t)
	switch {
	case !ok:
	case r.Admitted.After(t.asked):
		t.report = nil // an event came after the list was asked for: it may be about a newer completion
		a.described.push(t)
	default:
		a.follow(ctx, t, r)
	}
}

// start reads the receipt that an attempt begins with. It finishes the transfer itself when there is nothing to attempt:
// an earlier publication that is still open comes first, and settles or clears the receipt.
func (a *Agent) start(ctx context.Context, t *transfer) (*store.Receipt, bool) {
	r, err := a.Ledger.Get(ctx, t.key)
	if err == nil && r.Intent != nil {
		err = a.settleIntent(ctx, r)
		if err == nil {
			a.finish(t)
			return nil, false
		}
	}
	if err != nil {
		a.interrupted(ctx, t, err)
		return nil, false
	}
	t.generation = r.Generation
	return r, true
}

// follow does what next decides about the description.
func (a *Agent) follow(ctx context.Context, t *transfer, r *store.Receipt) {
	a.Step(StepDescribed)
	d := t.report
	switch next(r, d.Status, d.CompletedAt) {
	case download:
		if a.Folder == nil {
			a.finish(t)
			return
		}
		d.Metadata = boundedMetadata(d.Metadata) // it may wait for long
		a.ready.push(t)
		a.Wake() // there may be room for more descriptions
		return
	case settled:
		a.settle(ctx, t, a.settledSame)
	case record:
		a.settle(ctx, t, a.recordPartial)
	case fail:
		a.settle(ctx, t, a.recordFailure)
	case keep:
		a.settle(ctx, t, a.keepDelivered)
	case expect:
		a.settle(ctx, t, a.expectEnd)
	}
	a.finish(t)
}

// undescribed handles a description that could not be had.
func (a *Agent) undescribed(ctx context.Context, t *transfer, r *store.Receipt, err error) {
	var e *rest.Error
	switch {
	case reporter.Undescribable(err) && r.EventName == hub.ReportFinished && a.Folder != nil:
		// Some deployments grant only the download: the event says finished, so the download itself is tried.
		a.ready.push(t)
		return
	case errors.As(err, &e) && e.Kind == rest.Malformed,
		reporter.Undescribable(err) && errors.As(err, &e) && e.Status != 404:
		// A gateway's page or a missing right says nothing about this report: no budget is spent.
		a.settle(ctx, t, func(t *transfer, r *store.Receipt) { a.waitWithoutBlame(r, err) })
		a.Log.Warn("a report can't be described", "report", t.key.ID, "error", err)
		a.finish(t)
	default:
		a.failed(ctx, t, err)
	}
}

// failed ends an attempt with an error. Only what is about this very report spends its budget.
func (a *Agent) failed(ctx context.Context, t *transfer, err error) {
	var e *rest.Error
	isREST := errors.As(err, &e)
	if ctx.Err() != nil || isREST && e.Service() {
		a.interrupted(ctx, t, err)
		return
	}
	var retryAt time.Time
	if isREST {
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
		a.Log.Warn("report parked", "report", t.key.ID, "reason", err)
	} else {
		a.Log.Warn("attempt failed", "report", t.key.ID, "error", err)
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
		r.State = store.Delivered
	}
}

// hindered ends an attempt that this machine did not let succeed: no room, no right, something else in the folder. It says
// nothing about the report, so no budget is spent; the wait grows, and others, which may fit, go on. When nothing fits
// the lane of downloads itself stops.
func (a *Agent) hindered(ctx context.Context, t *transfer, err error) {
	a.Log.Error("a report can't be kept here; it stays due", "report", t.key.ID, "error", err)
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
		a.Log.Warn("interrupted; the report stays due", "report", t.key.ID, "error", err)
	}
	var e *rest.Error
	if ctx.Err() == nil && !errors.As(err, &e) {
		// Trouble of this machine has no gate: a pause keeps the attempt from spinning.
		sleep(ctx, a.Config.Backoff.Min)
	}
	a.again.Store(true) // it is due at its old time
	a.finish(t)
}

// settle writes the outcome of an attempt. A generation higher than the one the attempt started from leaves the receipt
// due, so that an event that arrived meanwhile is not swallowed. Where it can't be written the receipt stays due.
func (a *Agent) settle(ctx context.Context, t *transfer, outcome func(*transfer, *store.Receipt)) bool {
	a.rehearse(ctx, t, outcome)
	err := a.Ledger.Change(context.WithoutCancel(ctx), []store.Key{t.key}, func(r *store.Receipt, _ bool) bool {
		a.conclude(t, r, outcome)
		return true
	})
	if err != nil {
		a.Log.Error("the outcome could not be recorded; the report stays due", "report", t.key.ID, "error", err)
		a.again.Store(true)
		return false
	}
	a.Step(StepSettled)
	return true
}

// log is silent while an outcome is only rehearsed.
func (a *Agent) log(t *transfer) *slog.Logger {
	if t.rehearsal {
		return slog.New(slog.DiscardHandler)
	}
	return a.Log
}

func (a *Agent) conclude(t *transfer, r *store.Receipt, outcome func(*transfer, *store.Receipt)) {
	force, urgent := r.Force, r.Urgent
	r.Due = time.Time{}
	outcome(t, r)
	r.Handled = max(r.Handled, t.generation)
	if r.Due.IsZero() {
		r.Urgent = false
	}
	if r.Generation > t.generation {
		r.Due, r.Force, r.Urgent = a.Now(), force, urgent // asked for anew meanwhile
	}
}

// described copies what upstream says into the receipt.
func (t *transfer) describedOn(r *store.Receipt) {
	d := t.report
	if d == nil {
		return
	}
	r.Status, r.CompletedAt, r.CreatedAt, r.TemplateID = d.Status, d.CompletedAt, d.CreatedAt, d.TemplateID
	r.Metadata = boundedMetadata(d.Metadata)
}

// maxMetadata bounds what one receipt keeps of a report's metadata, in bytes.
const maxMetadata = 256 << 10

// maxDepth bounds how deep it may be nested: encoders of those who read it have limits of their own.
const maxDepth = 64

func boundedMetadata(m json.RawMessage) json.RawMessage {
	if len(m) <= maxMetadata && depth(m) <= maxDepth {
		return m
	}
	note, _ := json.Marshal(map[string]any{"recibo": fmt.Sprintf("metadata of %d bytes left out", len(m))})
	return note
}

// depth returns how deep a JSON value is nested.
func depth(m json.RawMessage) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(m); i++ {
		switch c := m[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}', c == ']':
			now--
		}
	}
	return deepest
}

func (a *Agent) settledSame(t *transfer, r *store.Receipt) {
	t.describedOn(r)
	if r.State != store.Delivered {
		r.Note(a.Now(), "the file of this completion is home already")
	}
	delivered(r)
}

// delivered clears what an undelivered receipt carries.
func delivered(r *store.Receipt) {
	r.State, r.Reason, r.FailedSources, r.SourcesKnown = store.Delivered, "", nil, false
	r.Attempts, r.Asked, r.Stale, r.Force = 0, 0, false, false
}

func (a *Agent) recordPartial(t *transfer, r *store.Receipt) {
	same := r.State == store.Partial && reporter.SameCompletion(r.CompletedAt, t.report.CompletedAt)
	t.describedOn(r)
	failure := t.report.Failure()
	r.State, r.Reason, r.SourcesKnown, r.Attempts, r.Stale = store.Partial, failure.Reason, failure.Known, 0, false
	r.FailedSources = nil
	for _, s := range failure.Sources {
		r.FailedSources = append(r.FailedSources, store.FailedSource{Name: s.Name, Code: s.Code})
	}
	a.askWhileItMayChange(r)
	if !same {
		r.Note(a.Now(), fmt.Sprintf("partial: %d data sources failed", len(r.FailedSources)))
		a.log(t).Warn("report is partial", "report", r.ID, "failed_sources", len(r.FailedSources))
	}
}

func (a *Agent) recordFailure(t *transfer, r *store.Receipt) {
	same := r.State == store.Failed
	t.describedOn(r)
	r.State, r.Reason, r.Attempts, r.Asked, r.Stale = store.Failed, t.report.Failure().Reason, 0, 0, false
	r.FailedSources, r.SourcesKnown, r.Force = nil, false, false
	if !same {
		r.Note(a.Now(), "failed: "+r.Reason)
		a.log(t).Warn("report failed", "report", r.ID, "reason", r.Reason)
	}
}

func (a *Agent) keepDelivered(t *transfer, r *store.Receipt) {
	if r.Status != t.report.Status {
		r.Note(a.Now(), "upstream now says "+t.report.Status+"; the delivered file stays")
		a.log(t).Warn("a delivered report changed upstream; its file stays", "report", r.ID, "status", t.report.Status)
	}
	r.Status, r.CompletedAt = t.report.Status, t.report.CompletedAt
	delivered(r)
}

func (a *Agent) expectEnd(t *transfer, r *store.Receipt) {
	now := a.Now()
	t.describedOn(r)
	if !knownStatus(r.Status) {
		r.Reason = fmt.Sprintf("status %q is unknown to this version, taken as not ended", r.Status)
	}
	switch r.State {
	case store.Delivered, store.Partial, store.Failed:
		// Being generated again: the record stands until there is a new end.
		a.askWhileItMayChange(r)
		return
	}
	if r.State != store.Expected {
		r.State = store.Expected
		r.Note(now, "in progress upstream: "+r.Status)
	}
	r.Attempts = 0
	r.Due = now.Add(jitter(askAgain(r, now)))
	r.Asked++
	begun := r.Created
	if created, ok := reporter.ParseTime(r.CreatedAt); ok {
		begun = created
	}
	if !r.Stale && now.Sub(begun) > a.Config.StaleAfter {
		r.Stale = true
		r.Note(now, "stale: in progress for longer than "+a.Config.StaleAfter.String())
		a.log(t).Warn("report is stale", "report", r.ID, "status", r.Status, "since", begun.UTC().Format(time.RFC3339))
	}
}

// askWhileItMayChange makes a receipt due again with back-off, for a bounded time.
func (a *Agent) askWhileItMayChange(r *store.Receipt) {
	now := a.Now()
	if asked := time.Duration(r.Asked) * askCap; asked < changeFor {
		r.Due = now.Add(jitter(askAgain(r, now)))
		r.Asked++
	}
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
