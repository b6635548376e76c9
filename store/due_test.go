package store

import (
	"fmt"
	"testing"
	"time"
)

func (l *ledger) due(now time.Time, limit int, skip func(Key) bool) (ids []string, next time.Time) {
	l.t.Helper()
	look, err := l.Due(l.t.Context(), now, Mark{}, limit, skip)
	due, next := look.Due, look.Next
	if err != nil {
		l.t.Fatal(err)
	}
	for _, d := range due {
		ids = append(ids, d.ID)
		if r := l.receipt(d.Key); !r.Due.Equal(d.At) || r.Urgent != d.Urgent {
			l.t.Errorf("due %+v of receipt %+v", d, r)
		}
	}
	return ids, next
}

func TestDueOrder(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	now := l.clock.now()
	for id, r := range map[string]Receipt{
		"old":         {Due: now.Add(-2 * time.Hour)},
		"older":       {Due: now.Add(-3 * time.Hour)},
		"now":         {Due: now},
		"soon":        {Due: now.Add(time.Minute)},
		"urgent":      {Due: now.Add(-time.Hour), Urgent: true},
		"urgent-soon": {Due: now.Add(30 * time.Second), Urgent: true},
		"none":        {},
		"prehistoric": {Due: time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		l.set(func(to *Receipt) { to.Due, to.Urgent = r.Due, r.Urgent }, report(id))
	}
	skip := func(k Key) bool { return k.ID == "older" }
	for name, test := range map[string]struct {
		now   time.Time
		limit int
		skip  func(Key) bool
		want  string
		next  time.Time
	}{
		"urgent first, then oldest": {now, 10, nil, "[urgent prehistoric older old now]", now.Add(30 * time.Second)},
		"limit":                     {now, 2, nil, "[urgent prehistoric]", now.Add(30 * time.Second)},
		"skip":                      {now, 2, skip, "[urgent prehistoric]", now.Add(30 * time.Second)},
		"no room":                   {now, 0, nil, "[]", now.Add(30 * time.Second)},
		"a little later":            {now.Add(45 * time.Second), 10, nil, "[urgent urgent-soon prehistoric older old now]", now.Add(time.Minute)},
		"all of them":               {now.Add(time.Hour), 10, nil, "[urgent urgent-soon prehistoric older old now soon]", time.Time{}},
		"earlier":                   {now.Add(-4 * time.Hour), 10, nil, "[prehistoric]", now.Add(-3 * time.Hour)},
	} {
		got, next := l.due(test.now, test.limit, test.skip)
		if fmt.Sprint(got) != test.want || !next.Equal(test.next) {
			t.Errorf("%s: %v next %v; want %v next %v", name, got, next, test.want, test.next)
		}
	}
}

func TestDueFollowsTheReceipt(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	now := l.clock.now()
	for _, step := range []struct {
		change func(*Receipt)
		want   string
		count  int64
	}{
		{func(r *Receipt) { r.Due = now.Add(-time.Minute) }, "[a]", 1},
		{func(r *Receipt) { r.Due = now.Add(time.Minute) }, "[]", 1},
		{func(r *Receipt) { r.Due, r.Urgent = now, true }, "[a]", 1},
		{func(r *Receipt) { r.Urgent = false }, "[a]", 1},
		{func(r *Receipt) { r.Due, r.State = time.Time{}, Delivered }, "[]", 0},
	} {
		l.set(step.change, report("a"))
		if got, _ := l.due(now, 10, nil); fmt.Sprint(got) != step.want || l.stats().Due != step.count {
			t.Errorf("due %v, %d counted; want %s, %d", got, l.stats().Due, step.want, step.count)
		}
	}
}

func TestADueTimeInTheFarFutureStrandsNothing(t *testing.T) {
	t.Parallel()
	for name, far := range map[string]time.Time{
		"Retry-After in 2100": time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		"no int64 holds it":   time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.set(func(r *Receipt) { r.Due = far }, report("a"))
			now := l.clock.now()
			if got, next := l.due(now, 10, nil); len(got) != 0 || !next.Equal(now.Add(MaxWait)) {
				t.Errorf("due %v, next %v", got, next)
			}
			l.clock.add(MaxWait)
			if got, _ := l.due(l.clock.now(), 10, nil); len(got) != 1 {
				t.Error("not due after the longest wait")
			}
		})
	}
	t.Run("next is bounded for a caller whose clock is behind", func(t *testing.T) {
		t.Parallel()
		l := newLedger(t)
		l.set(func(r *Receipt) { r.Due = l.clock.now().Add(time.Hour) }, report("a"))
		past := l.clock.now().Add(-100 * 24 * time.Hour)
		if got, next := l.due(past, 10, nil); len(got) != 0 || !next.Equal(past.Add(MaxWait)) {
			t.Errorf("due %v, next %v", got, next)
		}
	})
}

func TestAClockThatWasYearsAheadStrandsNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	right := l.clock.now()
	l.clock.add(40 * 365 * 24 * time.Hour)
	wrong := l.clock.now()
	l.set(func(r *Receipt) { r.Due = wrong.Add(time.Hour) }, report("a"), report("b"))
	l.set(func(r *Receipt) { r.Due, r.Urgent = wrong.Add(time.Hour), true }, report("c"))
	l.clock.add(right.Sub(wrong))
	l.set(func(r *Receipt) { r.Due = right.Add(time.Hour) }, report("d"))
	got, next := l.due(l.clock.now(), 10, nil)
	if fmt.Sprint(got) != "[c a b]" || !next.Equal(right.Add(time.Hour)) {
		t.Errorf("due %v, next %v", got, next)
	}
}

func TestDamageStrandsNoOtherReceipt(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	right := l.clock.now()
	l.clock.add(40 * 365 * 24 * time.Hour)
	l.set(func(r *Receipt) { r.Due = l.clock.now() }, report("a"), report("b"))
	l.clock.add(right.Sub(l.clock.now()))
	l.set(func(r *Receipt) { r.Due = right }, report("c"))
	good, err := encodeReceipt(l.receipt(report("b")))
	if err != nil {
		t.Fatal(err)
	}
	l.spoil(receiptBucket, receiptKey(report("b")))
	nonsense := []byte{inTurn, 0, 0, 0, 0, 0, 0, 0, 1, '?'}
	l.raw(func(t *txn) { t.put(dueBucket, nonsense, nil) })
	look, err := l.Due(t.Context(), right, Mark{}, 10, nil)
	due := look.Due
	if err != nil || len(due) != 2 || due[0].ID != "a" || due[1].ID != "c" {
		t.Errorf("due %v, %v", due, err)
	}
	l.raw(func(t *txn) {
		t.put(receiptBucket, receiptKey(report("b")), good)
		t.del(dueBucket, nonsense)
	})
}
