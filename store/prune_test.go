package store

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func (l *ledger) prune(before time.Time, limit int) int {
	l.t.Helper()
	n, err := l.Prune(l.t.Context(), before, limit)
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

func TestPruneTakesWhatIsSettledAndOld(t *testing.T) {
	t.Parallel()
	now := newClock().now()
	for name, test := range map[string]struct {
		receipt Receipt
		age     time.Duration
		gone    bool
	}{
		"delivered":             {Receipt{State: Delivered}, 2 * time.Hour, true},
		"encrypted":             {Receipt{State: Encrypted}, 2 * time.Hour, true},
		"encrypted and young":   {Receipt{State: Encrypted}, time.Minute, false},
		"failed":                {Receipt{State: Failed}, 2 * time.Hour, true},
		"partial":               {Receipt{State: Partial}, 2 * time.Hour, true},
		"young":                 {Receipt{State: Delivered}, time.Minute, false},
		"expected":              {Receipt{State: Expected}, 2 * time.Hour, false},
		"pending":               {Receipt{State: Pending}, 2 * time.Hour, false},
		"parked":                {Receipt{State: Parked}, 2 * time.Hour, false},
		"with an intent":        {Receipt{State: Delivered, Intent: &Intent{}}, 2 * time.Hour, false},
		"with a due time":       {Receipt{State: Partial, Due: now}, 2 * time.Hour, false},
		"with a due time ahead": {Receipt{State: Delivered, Due: now.Add(72 * time.Hour)}, 2 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.admit([]Admission{event("e1", "r1"), event("e2", "r1")}, Admitted, Admitted)
			l.set(func(r *Receipt) { r.State, r.Intent, r.Due = test.receipt.State, test.receipt.Intent, test.receipt.Due }, report("r1"))
			before := l.clock.add(test.age).Add(-time.Hour)
			want := 0
			if test.gone {
				want = 1
			}
			if n := l.prune(before, 100); n != want {
				t.Errorf("removed %d", n)
			}
			_, err := l.Get(t.Context(), report("r1"))
			_, eventErr := l.Event(t.Context(), Reports, "e1")
			if errors.Is(err, ErrNotFound) != test.gone || errors.Is(eventErr, ErrNotFound) != test.gone {
				t.Errorf("receipt: %v; event: %v", err, eventErr)
			}
			if n := l.prune(before, 100); n != 0 {
				t.Errorf("removed %d more", n)
			}
			if s := l.stats(); test.gone && (s.Events != 0 || s.Count(test.receipt.State) != 0) {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestPruneTakesManyInBatchesUpToItsLimit(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	const n = 2*pruneBatch + 50
	var batch []Admission
	var keys []Key
	for i := range n {
		batch = append(batch, event(fmt.Sprint("e", i), fmt.Sprint("r", i)))
		keys = append(keys, report(fmt.Sprint("r", i)))
	}
	if _, err := l.Admit(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	l.set(func(r *Receipt) {
		r.State, r.Due = Delivered, time.Time{}
		if r.ID == "r0" {
			r.Intent = &Intent{}
		}
	}, keys...)
	now := l.clock.add(time.Hour)
	for _, step := range []struct{ limit, want, left int }{{0, 0, n}, {10, 10, n - 10}, {10000, n - 11, 1}, {10000, 0, 1}} {
		if got := l.prune(now, step.limit); got != step.want || int(l.stats().Events) != step.left {
			t.Errorf("limit %d: removed %d, %d left; want %d, %d", step.limit, got, l.stats().Events, step.want, step.left)
		}
	}
}

func TestAnEventOutlivesItsAgeWhileItsReceiptListsIt(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	var batch []Admission
	for i := range MaxEvents + 10 {
		batch = append(batch, event(fmt.Sprint("e", i), "r1"))
	}
	if _, err := l.Admit(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	l.set(func(r *Receipt) { r.State, r.Due = Parked, time.Time{} }, report("r1"))
	now := l.clock.add(100 * 24 * time.Hour)
	if n := l.prune(now, 1000); n != 10 {
		t.Errorf("removed %d events that the receipt lists no more, want 10", n)
	}
	if n := l.prune(now, 1000); n != 0 || l.stats().Events != MaxEvents {
		t.Errorf("removed %d more, %d events left", n, l.stats().Events)
	}
	l.admit([]Admission{event(fmt.Sprint("e", MaxEvents), "r1")}, Repeated)
	// Once the receipt goes, they all go with it.
	l.set(func(r *Receipt) { r.State = Delivered }, report("r1"))
	if n := l.prune(l.clock.add(time.Hour), 1000); n != 1 || l.stats().Events != 0 {
		t.Errorf("removed %d, %d events left", n, l.stats().Events)
	}
}

func TestPruneTakesOldTombstonesOnly(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{kept("a"), kept("b"), kept("c")}, Kept, Kept, Kept)
	if err := l.Drop(t.Context(), 1, "test"); err != nil {
		t.Fatal(err)
	}
	old := l.clock.add(time.Hour)
	if err := l.Drop(t.Context(), 2, "test"); err != nil {
		t.Fatal(err)
	}
	l.clock.add(time.Hour)
	if n := l.prune(old, 10); n != 1 {
		t.Errorf("removed %d", n)
	}
	for id, gone := range map[uint64]bool{1: true, 2: false, 3: false} {
		if _, err := l.Quarantined(t.Context(), id); errors.Is(err, ErrNotFound) != gone {
			t.Errorf("entry %d: %v", id, err)
		}
	}
	l.admit([]Admission{kept("a")}, Kept) // its tombstone is gone: an entry of its own, under an id never used before
	if q, err := l.Quarantined(t.Context(), 4); err != nil || !q.Open() {
		t.Errorf("%+v, %v", q, err)
	}
}

func TestAReleasedConflictIsPrunedWithTheRest(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{event("e1", "r1"), event("e1", "r2")}, Admitted, Conflict)
	if _, err := l.Release(t.Context(), 1, event("e1", "r2")); err != nil {
		t.Fatal(err)
	}
	l.set(func(r *Receipt) { r.State, r.Due = Delivered, time.Time{} }, report("r1"), report("r2"))
	l.prune(l.clock.add(time.Hour), 100)
	if s := l.stats(); s.Events != 0 || s.Count(Delivered) != 0 {
		t.Errorf("stats %+v", s)
	}
}
