package store

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAdmissionRecordsTheEventAndMakesItsReceiptDue(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	a := event("e1", "r1")
	a.Tenant = "acme"
	l.admit([]Admission{a}, Admitted)

	r := l.receipt(report("r1"))
	now := l.clock.now()
	if r.State != Pending || r.FoundBy != "event" || r.Generation != 1 || !r.Due.Equal(now) || !r.Admitted.Equal(now) ||
		r.EventName != "report.finished" || r.Tenant != "acme" || !slices.Equal(r.Events, []string{"e1"}) ||
		!r.Created.Equal(now) || !r.Updated.Equal(now) {
		t.Errorf("receipt %+v", r)
	}
	if len(r.Timeline) != 1 || r.Timeline[0].What != "event report.finished e1 by nats (STREAMING_HUB/42)" {
		t.Errorf("timeline %v", r.Timeline)
	}
	e, err := l.Event(t.Context(), Reports, "e1")
	if err != nil {
		t.Fatal(err)
	}
	if e.Name != a.EventName || e.Receipt != a.Receipt || e.Transport != "nats" || e.Origin != a.Origin || e.Source != a.Source || !e.At.Equal(now) {
		t.Errorf("event %+v", e)
	}
	if s := l.stats(); s.Events != 1 || s.Due != 1 || s.Count(Pending) != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestAdmissionOfANewEventByStateOfTheReceipt(t *testing.T) {
	t.Parallel()
	for state, want := range map[State]State{
		Expected: Pending, Parked: Pending, Pending: Pending, Delivered: Delivered, Encrypted: Encrypted, Partial: Partial, Failed: Failed,
	} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.set(func(r *Receipt) {
				r.State, r.Generation, r.Attempts, r.Asked, r.Tenant = state, 7, 3, 4, "kept"
			}, report("r1"))
			l.clock.add(time.Minute)
			l.admit([]Admission{event("e1", "r1")}, Admitted)
			r := l.receipt(report("r1"))
			if r.State != want || r.Generation != 8 || r.Attempts != 0 || r.Asked != 0 || !r.Due.Equal(l.clock.now()) ||
				r.FoundBy != "poll" || r.Tenant != "kept" {
				t.Errorf("receipt %+v", r)
			}
		})
	}
}

func TestAdmissionOfAnIDSeenBefore(t *testing.T) {
	t.Parallel()
	other := func(change func(*Admission)) Admission {
		a := event("e1", "r1")
		change(&a)
		return a
	}
	for name, test := range map[string]struct {
		again    Admission
		want     Outcome
		due      []string // reports with generations above what the first event gave them
		eventful int64
	}{
		"the same":                    {event("e1", "r1"), Repeated, nil, 1},
		"another transport":           {other(func(a *Admission) { a.Transport, a.Origin, a.Source = "webhook", "", "x" }), Repeated, nil, 1},
		"another event name":          {other(func(a *Admission) { a.EventName = "report.partial" }), Conflict, []string{"r1"}, 1},
		"another receipt":             {event("e1", "r2"), Conflict, []string{"r1", "r2"}, 1},
		"the same id in another feed": {other(func(a *Admission) { a.Feed, a.Receipt = Jobs, Key{Job, "j1"} }), Admitted, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.admit([]Admission{event("e1", "r1")}, Admitted)
			commits := l.stats().Commits
			l.clock.add(time.Minute)
			l.admit([]Admission{test.again}, test.want)
			s := l.stats()
			if test.want == Repeated && s.Commits != commits {
				t.Error("a repetition was written")
			}
			if s.Events != test.eventful {
				t.Errorf("%d events, want %d", s.Events, test.eventful)
			}
			for _, id := range test.due {
				r := l.receipt(report(id))
				first := uint64(0)
				if id == "r1" {
					first = 1
				}
				if r.State != Pending || r.Generation != first+1 || !r.Due.Equal(l.clock.now()) {
					t.Errorf("%s is not due anew: %+v", id, r)
				}
			}
			if len(test.due) == 0 && l.receipt(report("r1")).Generation != 1 {
				t.Error("the first receipt was touched")
			}
		})
	}
}

func TestAConflictIsKeptWithItsBytesAndAsksOnlyOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{event("e1", "r1")}, Admitted)
	a := event("e1", "r2")
	a.Headers, a.Data = map[string]string{"id": "e1"}, []byte(`{"report_id":"r2"}`)
	l.admit([]Admission{a, a}, Conflict, Conflict)
	l.admit([]Admission{a}, Conflict)
	entries, err := l.Quarantine(t.Context(), 0, 10)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	q := entries[0]
	if q.Times != 3 || string(q.Data) != string(a.Data) || q.Headers["id"] != "e1" || q.Receipt != a.Receipt || q.Reason == "" {
		t.Errorf("entry %+v", q)
	}
	if g := l.receipt(report("r2")).Generation; g != 1 {
		t.Errorf("the contradiction delivered again made the receipt due again: generation %d", g)
	}
	// The newcomer's id was not admitted for its receipt: the first event still stands.
	l.admit([]Admission{event("e1", "r1")}, Repeated)
}

func TestABatchMayHoldOneIDOrOneReceiptTwice(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{event("e1", "r1"), event("e1", "r1"), event("e2", "r1"), event("e1", "r2")},
		Admitted, Repeated, Admitted, Conflict)
	if r := l.receipt(report("r1")); r.Generation != 3 || !slices.Equal(r.Events, []string{"e1", "e2"}) {
		t.Errorf("receipt %+v", r)
	}
}

func TestOneBadEventNeverHoldsUpItsBatch(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{event("e0", "rot")}, Admitted)
	l.spoil(receiptBucket, receiptKey(report("rot")))
	bad := map[string]Admission{
		"no id":              event("", "r1"),
		"long id":            event(strings.Repeat("x", maxID+1), "r1"),
		"no receipt":         event("e1", ""),
		"long receipt":       event("e1", strings.Repeat("x", maxID+1)),
		"feed":               {Feed: "weather", EventID: "e1", Receipt: report("r1")},
		"unreadable receipt": event("e1", "rot"),
	}
	for name, a := range bad {
		l.admit([]Admission{event("good "+name, "good"), a}, Admitted, Kept)
	}
	if s := l.stats(); s.Quarantined != int64(len(bad)) || s.Events != int64(len(bad))+1 {
		t.Errorf("stats %+v", s)
	}
	// A longest id is fine, and nothing of the above was taken for admitted.
	l.admit([]Admission{event(strings.Repeat("x", maxID), "r1"), event("e1", "r1")}, Admitted, Admitted)
	l.raw(func(t *txn) { // mend, for the check at the end
		r := &Receipt{Kind: Report, ID: "rot", State: Pending, Due: l.clock.now(), Updated: l.clock.now()}
		data, _ := encodeReceipt(r)
		t.put(receiptBucket, receiptKey(r.Key()), data)
	})
}

func TestAnEventRecordThatCanNotBeReadSuppressesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{event("e1", "r1")}, Admitted)
	l.spoil(eventBucket, eventKey(Reports, "e1"))
	var damaged *DamagedError
	if _, err := l.Event(t.Context(), Reports, "e1"); !errors.As(err, &damaged) || !strings.Contains(damaged.Row, "e1") {
		t.Errorf("reading it: %v", err)
	}
	l.admit([]Admission{event("e1", "r1")}, Admitted)
	l.admit([]Admission{event("e1", "r1")}, Repeated)
	if s := l.stats(); s.Events != 1 {
		t.Errorf("%d events", s.Events)
	}
}

func TestAReceiptKeepsItsNewestEventsAndNotes(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	var batch []Admission
	for i := range MaxEvents + 5 {
		batch = append(batch, event(fmt.Sprint("e", i), "r1"))
	}
	if _, err := l.Admit(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	r := l.receipt(report("r1"))
	if len(r.Events) != MaxEvents || r.Events[0] != "e5" || len(r.Timeline) != MaxTimeline {
		t.Errorf("%d events from %s, %d notes", len(r.Events), r.Events[0], len(r.Timeline))
	}
	if r.Generation != MaxEvents+5 {
		t.Errorf("generation %d", r.Generation)
	}
}

func TestIntakeStopsWithoutRoomAndWorkGoesOn(t *testing.T) {
	t.Parallel()
	s, err := Open(filepath.Join(t.TempDir(), "recibo.db"), Options{Create: true, MinFree: math.MaxInt64})
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{s, t, nil}
	defer func() { _ = s.Close() }()
	if _, err := s.Admit(t.Context(), []Admission{event("e1", "r1")}); !errors.Is(err, ErrNoRoom) {
		t.Errorf("admit: %v", err)
	}
	if err := s.Healthy(); !errors.Is(err, ErrNoRoom) {
		t.Errorf("healthy: %v", err)
	}
	l.set(func(*Receipt) {}, report("r1"))
}
