package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
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
		t.described = ofReport(report)
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
		t.described = nil // an event came after the list was asked for: it may be about a newer completion
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
	if errors.Is(err, errNoSource) {
		t.generation = r.Generation
		a.hindered(ctx, t, err) // it is left alone until a person brings its source back
		return nil, false
	}
	if err != nil {
		a.interrupted(ctx, t, err)
		return nil, false
	}
	if r.Due.IsZero() {
		a.finish(t) // it was settled between the look at the ledger that found it due and now
		return nil, false
	}
	t.generation = r.Generation
	if len(a.outlets) > 0 {
		t.outlet = a.outletOf(r)
	}
	return r, true
}

// follow does what next decides about the description.
func (a *Agent) follow(ctx context.Context, t *transfer, r *store.Receipt) {
	a.Step(StepDescribed)
	d := t.described
	act := next(r, d.end, d.completion())
	if act == settled && homeState(r) == store.Encrypted && a.Fetcher.CanOpen(t.source) {
		act = download // it can be opened now
	}
	switch act {
	case download:
		if a.Folder == nil {
			a.finish(t)
			return
		}
		d.metadata = readableMetadata(d.metadata) // it may wait for long
		if t.key.Kind == store.Job {
			t.verified = r.Newest() != nil && homeState(r) == store.Delivered
			a.queueResult(ctx, t)
			return
		}
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
	case unreadable(err),
		reporter.Undescribable(err) && errors.As(err, &e) && e.Status != 404:
		// A gateway's page or a missing right says nothing about this report: no budget is spent.
		a.settle(ctx, t, func(t *transfer, r *store.Receipt) { a.waitWithoutBlame(r, err) })
		a.Log.Warn("a report can't be described", "report", t.key.ID, "error", err)
		a.finish(t)
	default:
		a.failed(ctx, t, err)
	}
}

// unreadable reports whether an answer is none of the API's: a gateway's page, say.
func unreadable(err error) bool {
	var e *rest.Error
	return errors.As(err, &e) && e.Kind == rest.Malformed
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
		a.Log.Error("the outcome could not be recorded; it stays due", string(t.key.Kind), t.key.ID, "error", err)
		a.lookAgain(t.key.Kind)
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
	before := *r
	if r.Dismissed {
		before.Timeline = slices.Clone(r.Timeline) // a full one is written over in place
	}
	force, urgent := r.Force, r.Urgent
	r.Due = time.Time{}
	outcome(t, r)
	if before.Dismissed && len(r.Files) == len(before.Files) {
		*r = before // during the attempt; only a file that is home already says otherwise
		return
	}
	r.Handled = max(r.Handled, t.generation)
	if r.Due.IsZero() {
		r.Urgent = false
	}
	if r.Generation > t.generation {
		r.Due, r.Force, r.Urgent = a.Now(), force, urgent // asked for anew meanwhile
	}
}
