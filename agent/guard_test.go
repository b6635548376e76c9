package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"recibo/hub"
	"recibo/reporter"
	"recibo/rest"
	"recibo/sandbox"
	"recibo/store"
)

// A wish that comes while an attempt is under way is about the next attempt: this one must not use it up.
func TestAWishDuringAnAttemptIsNotSwallowed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for name, test := range map[string]struct {
		generation    uint64 // of the receipt when the attempt ends; it began with 3
		force, urgent bool
	}{
		"none came": {generation: 3},
		"it came":   {generation: 4, force: true, urgent: true},
	} {
		r := on(store.Delivered, early)
		r.Generation, r.Force, r.Urgent = test.generation, true, true
		h.conclude(&transfer{generation: 3}, r, func(_ *transfer, r *store.Receipt) { delivered(r) })
		if r.Force != test.force || r.Urgent != test.urgent || r.Due.IsZero() != (test.generation == 3) {
			t.Errorf("%s: force %v, urgent %v, due %v", name, r.Force, r.Urgent, r.Due)
		}
	}
}

// A person dismisses what an attempt is under way for. What the attempt learns does not bring it back, unless it is a file.
func TestADismissalDuringAnAttemptHolds(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	home := store.File{Revision: 1, Name: "a.pdf", Size: 1, SHA256: "aa", Completion: early}
	for name, test := range map[string]struct {
		meanwhile func(*store.Receipt) // after the dismissal
		outcome   func(*transfer, *store.Receipt)
		state     store.State
		due       bool
	}{
		"the attempt fails":     {nil, func(_ *transfer, r *store.Receipt) { h.waitWithoutBlame(r, errCut) }, store.Failed, false},
		"it is parked":          {nil, func(_ *transfer, r *store.Receipt) { h.park(r) }, store.Failed, false},
		"its file comes home":   {nil, func(t *transfer, r *store.Receipt) { h.addFile(t, r, home, "delivered as") }, store.Delivered, false},
		"its event comes first": {func(r *store.Receipt) { h.makeDue(r, false, "event") }, func(_ *transfer, r *store.Receipt) { h.park(r) }, store.Parked, true},
	} {
		r := on(store.Pending, early)
		r.Files, r.Generation, r.Handled, r.Due = nil, 3, 2, time.Now()
		r.Timeline = make([]store.Entry, store.MaxTimeline)
		if !h.dismiss(r, "nobody needs it") {
			t.Fatalf("%s: refused", name)
		}
		if test.meanwhile != nil {
			test.meanwhile(r)
		}
		h.conclude(&transfer{generation: 3, key: r.Key()}, r, test.outcome)
		if r.State != test.state || !r.Due.IsZero() != test.due || r.Handled > r.Generation {
			t.Errorf("%s: %s", name, describeReceipt(r))
		}
		last := r.Timeline[len(r.Timeline)-1].What
		if dismissed := last == "dismissed: nobody needs it" && r.Reason == last; dismissed != (test.state == store.Failed) {
			t.Errorf("%s: %s", name, describeReceipt(r))
		}
	}
}

// What a person dismisses while it comes gets no name, and what waits for its turn is not asked for.
func TestADismissalKeepsTheFileAway(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(p *plan) { p.agent.Workers = 1 })
	slow := []sandbox.Fault{{Kind: sandbox.SlowBytes, Bytes: 1000, Interval: 100 * time.Millisecond}}
	begun := h.reporter.Add(sandbox.Report{Size: 20_000, Faults: slow})
	queued := h.reporter.Add(sandbox.Report{Size: 1000})
	h.work()
	h.event("e-1", hub.ReportFinished, begun.ID)
	h.eventually("the download has begun", func() bool { return len(h.Transfers()) == 1 }, func() string { return "" })
	h.event("e-2", hub.ReportFinished, queued.ID)
	h.eventually("the other waits", func() bool { return h.waiting() == 1 }, func() string { return "" })
	if err := h.Dismiss(t.Context(), []store.Key{keyOf(begun.ID), keyOf(queued.ID)}, "cancelled"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{begun.ID, queued.ID} {
		if r := h.until(id, "its end", in(store.Failed)); !r.Dismissed || !r.Due.IsZero() || r.Intent != nil {
			t.Error(describeReceipt(r))
		}
	}
	h.holds()
	if n := h.reporter.Requests().DownloadsOf[queued.ID]; n != 0 {
		t.Errorf("what waited was asked for %d times", n)
	}

	// Its event takes it up again.
	h.event("e-3", hub.ReportFinished, queued.ID)
	h.until(queued.ID, "delivery", in(store.Delivered))
	h.holds(queued.ID + ".pdf")
}

// Whoever waits for what a person dismisses is told.
func TestADismissalEndsTheWaitForIt(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	report := h.reporter.Add(sandbox.Report{Status: sandbox.Processing})
	h.work()
	keys := []store.Key{keyOf(report.ID)}
	watched, err := h.Watch(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	h.until(report.ID, "it is in progress", in(store.Expected))
	told, ended := make(chan store.State, 1), make(chan error, 1)
	go func() {
		ended <- h.Wait(t.Context(), watched, true, func(r *store.Receipt) error { told <- r.State; return nil })
	}()
	h.eventually("somebody waits", func() bool {
		h.settles.mu.Lock()
		defer h.settles.mu.Unlock()
		return len(h.settles.listeners) > 0
	}, func() string { return "" })
	if err := h.Dismiss(t.Context(), keys, "cancelled"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || <-told != store.Failed {
		t.Errorf("the wait ended with %v", err)
	}

	// News take it up again, and it can be dismissed once more.
	for what, again := range map[string]func() error{
		"retry": func() error { _, err := h.Retry(t.Context(), keys); return err },
		"watch": func() error { _, err := h.Watch(t.Context(), keys); return err },
		"fetch": func() error { _, err := h.Fetch(t.Context(), keys, false); return err },
		"event": func() error { h.event("e-1", hub.ReportFinished, report.ID); return nil },
	} {
		if err := again(); err != nil {
			t.Fatal(err)
		}
		if r := h.receipt(report.ID); r.State == store.Failed || r.Dismissed {
			t.Errorf("%s: %s", what, describeReceipt(r))
		}
		if err := h.Dismiss(t.Context(), keys, "cancelled"); err != nil {
			t.Fatal(err)
		}
		if r := h.until(report.ID, "the second dismissal", in(store.Failed)); !r.Dismissed || !r.Due.IsZero() {
			t.Errorf("%s: %s", what, describeReceipt(r))
		}
	}
}

// A list that was asked for before an event came may show an older completion than the event is about.
func TestAListNeverAnswersForANewerEvent(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	report := h.reporter.Add(sandbox.Report{Status: sandbox.Finished})
	h.work()
	h.event("e-1", hub.ReportFinished, report.ID)
	h.until(report.ID, "delivery", in(store.Delivered))
	asked := h.reporter.Requests().GetsOf[report.ID]

	h.working.Store(false) // hints may be laid as by a sweep that began earlier
	stale, err := h.Reporter.Page(t.Context(), 1, listLimit, reporter.ListQuery{})
	if err != nil {
		t.Fatal(err)
	}
	h.working.Store(true)
	h.hint(&stale[0], time.Now().Add(-time.Second))
	h.reporter.Set(report.ID, func(r *sandbox.Report) { r.Seed, r.CompletedAt = r.Seed+1, time.Now() })
	h.event("e-2", hub.ReportFinished, report.ID)
	r := h.until(report.ID, "the second generation", func(r *store.Receipt) bool { return len(r.Files) == 2 })
	if gets := h.reporter.Requests().GetsOf[report.ID] - asked; gets != 1 {
		t.Errorf("%d descriptions after the second event, want 1\n%s", gets, describeReceipt(r))
	}
}

// endlessList answers every page with one of two pages in turn.
type endlessList struct {
	Reporter
	pages int
}

func (*endlessList) Acquire(context.Context, rest.Class) error { return nil }

func (l *endlessList) Page(_ context.Context, page, limit int, _ reporter.ListQuery) ([]reporter.Report, error) {
	l.pages++
	reports := make([]reporter.Report, limit)
	for i := range reports {
		reports[i] = reporter.Report{
			ID: fmt.Sprintf("00000000-0000-7000-8000-%06d%06d", page%2, i), Status: reporter.Processing,
			CreatedAt: time.Now().Format(time.RFC3339Nano),
		}
	}
	return reports, nil
}

func TestAListThatGoesRoundInCirclesIsLeft(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	list := &endlessList{}
	h.Agent.Reporter = list
	res, err := h.Sweep(t.Context(), Sweep{})
	if err == nil || res.Complete || !strings.Contains(err.Error(), "page 3 of reporter's list") {
		t.Errorf("complete %v, %v", res.Complete, err)
	}
	if list.pages != 3 {
		t.Errorf("%d pages were asked for, want 3: the third holds nothing new", list.pages)
	}
}

func TestMetadataIsReadableAndBounded(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, maxDepth) + `"{[{["` + strings.Repeat("}", maxDepth)
	for name, test := range map[string]struct {
		metadata string
		kept     bool
	}{
		"ordinary":                   {`{"a":[1,{"b":"\"]}"}]}`, true},
		"as deep as may be":          {deep, true},
		"deeper":                     {`[` + deep + `]`, false},
		"as long as may be":          {`"` + strings.Repeat("x", maxMetadata-2) + `"`, true},
		"longer":                     {`"` + strings.Repeat("x", maxMetadata-1) + `"`, false},
		"brackets in a text are not": {`"` + strings.Repeat(`[`, 2*maxDepth) + `"`, true},
	} {
		got := readableMetadata(json.RawMessage(test.metadata))
		if (string(got) == test.metadata) != test.kept || !json.Valid(got) {
			t.Errorf("%s: kept %v, want %v; %.80s", name, !test.kept, test.kept, got)
		}
	}
	if got := string(readableMetadata(json.RawMessage("{\"\xff\":\"S\xe3o\"}"))); got != `{"�":"S�o"}` {
		t.Errorf("what is no UTF-8 became %q", got)
	}
}

// One wrong clock must not make every id forgotten: what it calls old is looked at a second time.
func TestAClockThatJumpsForgetsNothing(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := newHouse(t, nil)
	h.Now = func() time.Time { return now }
	h.Retention = 400 * 24 * time.Hour
	for _, step := range []struct {
		what   string
		by     time.Duration
		steady bool
	}{
		{"the first look", 0, true},
		{"an hour later", time.Hour, true},
		{"a jump ahead", 500 * 24 * time.Hour, false},
		{"and back", -500 * 24 * time.Hour, false},
		{"an hour later", time.Hour, true},
		{"a long rest", 500 * 24 * time.Hour, false},
		{"confirmed by a second look", time.Hour, true},
	} {
		now = now.Add(step.by)
		if steady, err := h.clockIsSteady(t.Context()); err != nil || steady != step.steady {
			t.Errorf("%s: steady %v, %v; want %v", step.what, steady, err, step.steady)
		}
	}
}
