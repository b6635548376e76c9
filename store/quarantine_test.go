package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func kept(id string) Admission {
	a := event(id, "r-"+id)
	a.Quarantine = &Quarantined{Reason: "unreadable version", Data: []byte("payload of " + id), Headers: map[string]string{"id": id}}
	return a
}

func TestQuarantineKeepsAMessageOnceHoweverOftenItComes(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{kept("a"), kept("b"), kept("a")}, Kept, Kept, Kept)
	otherTransport := kept("a")
	otherTransport.Transport, otherTransport.Origin = "webhook", "10.0.0.1"
	otherBytes := kept("a")
	otherBytes.Quarantine.Data = []byte("other")
	l.admit([]Admission{otherTransport, otherBytes}, Kept, Kept)
	entries, err := l.Quarantine(t.Context(), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var times []int
	for _, q := range entries {
		times = append(times, q.Times)
	}
	if fmt.Sprint(times) != "[3 1 1]" {
		t.Errorf("times %v", times)
	}
	q := entries[0]
	if q.ID != 1 || q.EventID != "a" || q.EventName != "report.finished" || q.Receipt != report("r-a") || q.Feed != Reports ||
		q.Transport != "nats" || q.Origin != "STREAMING_HUB/42" || string(q.Data) != "payload of a" || !q.At.Equal(l.clock.now()) || !q.Open() {
		t.Errorf("entry %+v", q)
	}
	// It suppresses nothing (law 4), and makes no receipt.
	if _, err := l.Get(t.Context(), report("r-a")); !errors.Is(err, ErrNotFound) {
		t.Errorf("receipt: %v", err)
	}
	l.admit([]Admission{event("a", "r-a")}, Admitted)
}

func TestQuarantineIsReadInPages(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	var ids []uint64
	for i := range 7 {
		l.admit([]Admission{kept(fmt.Sprint(i))}, Kept)
	}
	for after, pages := uint64(0), 0; pages < 10; pages++ {
		entries, err := l.Quarantine(t.Context(), after, 3)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			break
		}
		for _, q := range entries {
			ids = append(ids, q.ID)
		}
		after = ids[len(ids)-1]
	}
	if fmt.Sprint(ids) != "[1 2 3 4 5 6 7]" {
		t.Errorf("ids %v", ids)
	}
}

func TestAClosedEntryStaysToAbsorbRedeliveries(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(l *ledger) error{
		"released": func(l *ledger) error { _, err := l.Release(l.t.Context(), 1, event("a", "r-a")); return err },
		"dropped":  func(l *ledger) error { return l.Drop(l.t.Context(), 1, "a test event") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.admit([]Admission{kept("a")}, Kept)
			if s := l.stats(); s.Quarantined != 1 {
				t.Errorf("%d open", s.Quarantined)
			}
			l.clock.add(time.Hour)
			if err := end(l); err != nil {
				t.Fatal(err)
			}
			l.admit([]Admission{kept("a")}, Kept)
			q, err := l.Quarantined(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if q.Open() || q.Data != nil || q.Times != 2 || l.stats().Quarantined != 0 {
				t.Errorf("entry %+v, %d open", q, l.stats().Quarantined)
			}
			if name == "dropped" && (q.Dropped != "a test event" || !q.DroppedAt.Equal(l.clock.now())) {
				t.Errorf("entry %+v", q)
			}
			if err := l.Drop(t.Context(), 1, "again"); !errors.Is(err, ErrNotOpen) {
				t.Errorf("drop again: %v", err)
			}
			if _, err := l.Release(t.Context(), 1, event("a", "r-a")); !errors.Is(err, ErrNotOpen) {
				t.Errorf("release again: %v", err)
			}
		})
	}
}

func TestReleaseAdmits(t *testing.T) {
	t.Parallel()
	type release = func(*Store, context.Context, uint64, Admission) (Outcome, error)
	for name, test := range map[string]struct {
		release release
		before  []Admission
		want    Outcome
		gen     uint64 // of the released event's receipt; 0: it has none
		events  int64
	}{
		"a new event":                           {(*Store).Release, nil, Admitted, 1, 1},
		"one that was admitted since":           {(*Store).Release, []Admission{event("a", "r-a")}, Repeated, 1, 1},
		"one whose id stands for other":         {(*Store).Release, []Admission{event("a", "r-other")}, Admitted, 1, 2},
		"without a person, a new event":         {(*Store).ReleaseUndisputed, nil, Admitted, 1, 1},
		"without a person, one admitted since":  {(*Store).ReleaseUndisputed, []Admission{event("a", "r-a")}, Repeated, 1, 1},
		"without a person, one that is another": {(*Store).ReleaseUndisputed, []Admission{event("a", "r-other")}, Conflict, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.admit([]Admission{kept("a")}, Kept)
			for _, a := range test.before {
				l.admit([]Admission{a}, Admitted)
			}
			got, err := test.release(l.Store, t.Context(), 1, event("a", "r-a"))
			if err != nil || got != test.want {
				t.Fatalf("%v, %v", got, err)
			}
			s := l.stats()
			if open := s.Quarantined == 1; open != (got == Conflict) || s.Events != test.events {
				t.Errorf("%+v", s)
			}
			if test.gen == 0 {
				if _, err := l.Get(t.Context(), report("r-a")); !errors.Is(err, ErrNotFound) {
					t.Errorf("a receipt was made: %v", err)
				}
			} else if r := l.receipt(report("r-a")); r.Generation != test.gen || r.Due.IsZero() {
				t.Errorf("receipt %+v", r)
			}
		})
	}
}

func TestReleaseThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{kept("a"), event("b", "r-b")}, Kept, Admitted)
	healthy := l.receipt(report("r-b"))
	l.spoil(receiptBucket, receiptKey(report("r-b")))
	for name, test := range map[string]struct {
		id   uint64
		a    Admission
		want error
	}{
		"no such entry":      {99, event("a", "r-a"), ErrNotFound},
		"invalid event":      {1, event("", "r-a"), ErrInvalid},
		"unreadable receipt": {1, event("a", "r-b"), nil},
	} {
		_, err := l.Release(t.Context(), test.id, test.a)
		var damaged *DamagedError
		if test.want == nil && !errors.As(err, &damaged) || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := l.stats(); s.Quarantined != 1 || s.Events != 1 {
		t.Errorf("stats %+v", s)
	}
	data, _ := encodeReceipt(healthy)
	l.raw(func(t *txn) { t.put(receiptBucket, receiptKey(report("r-b")), data) })
}

func TestADamagedEntryDoesNotHideTheOthers(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{kept("a"), kept("b"), kept("c")}, Kept, Kept, Kept)
	var saved []byte
	l.raw(func(t *txn) { saved = append(saved, t.get(quarantineBucket, idKey(2))...) })
	l.spoil(quarantineBucket, idKey(2))
	entries, err := l.Quarantine(t.Context(), 0, 10)
	var damaged *DamagedError
	if len(entries) != 2 || !errors.As(err, &damaged) || !strings.HasSuffix(damaged.Row, " 2") {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	l.raw(func(t *txn) { t.put(quarantineBucket, idKey(2), saved) })
}
