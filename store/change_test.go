package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestChangeMakesAndChangesReceiptsInOneTransaction(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	keys := []Key{report("a"), report("b"), {Job, "a"}, report("a")}
	runs := map[Key]int{}
	err := l.Change(t.Context(), keys, func(r *Receipt, fresh bool) bool {
		runs[r.Key()]++
		if !fresh || !r.Created.Equal(l.clock.now()) || r.State != "" {
			t.Errorf("fresh %v, receipt %+v", fresh, r)
		}
		r.State = Expected
		return r.ID != "b"
	})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(runs) != fmt.Sprint(map[Key]int{report("a"): 1, report("b"): 1, {Job, "a"}: 1}) {
		t.Errorf("runs %v", runs)
	}
	if _, err := l.Get(t.Context(), report("b")); !errors.Is(err, ErrNotFound) {
		t.Errorf("a change that was not to be written: %v", err)
	}
	l.clock.add(time.Hour)
	l.set(func(r *Receipt) { r.State = Delivered }, report("a"))
	if r := l.receipt(report("a")); r.State != Delivered || !r.Updated.Equal(l.clock.now()) || r.Created.Equal(r.Updated) {
		t.Errorf("receipt %+v", r)
	}
	if s := l.stats(); s.Receipts[Report][Delivered] != 1 || s.Receipts[Job][Expected] != 1 || s.Count(Expected) != 1 || l.stats().Commits != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestAChangeThatIsRefusedWritesNothing(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Receipt){
		"no state":          func(r *Receipt) { r.State = "" },
		"unknown state":     func(r *Receipt) { r.State = "lost" },
		"another id":        func(r *Receipt) { r.ID = "x" },
		"metadata, no JSON": func(r *Receipt) { r.Metadata = json.RawMessage("{") },
		"a year of 5 digits": func(r *Receipt) {
			r.Intent = &Intent{At: time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			err := l.Change(t.Context(), []Key{report("a"), report("b")}, func(r *Receipt, _ bool) bool {
				r.State = Pending
				if r.ID == "b" {
					spoil(r)
				}
				return true
			})
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("error %v", err)
			}
			if s := l.stats(); s.Count(Pending) != 0 || s.Commits != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
	l := newLedger(t)
	for name, k := range map[string]Key{"kind": {"memo", "a"}, "no id": {Report, ""}, "long id": {Report, strings.Repeat("x", maxID+1)}} {
		if err := l.Change(t.Context(), []Key{k}, func(*Receipt, bool) bool { return true }); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPanicInAChangeReachesItsCallerAndNobodyElse(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("recovered %v", p)
			}
		}()
		_ = l.Change(t.Context(), []Key{report("a"), report("b")}, func(r *Receipt, _ bool) bool {
			if r.ID == "b" {
				panic("boom")
			}
			r.State = Pending
			return true
		})
	}()
	if err := l.Healthy(); err != nil {
		t.Error(err)
	}
	l.set(func(*Receipt) {}, report("c"))
	if s := l.stats(); s.Count(Pending) != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestAReceiptThatCanNotBeReadDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.set(func(r *Receipt) { r.Intent = &Intent{} }, report("a"), report("b"), report("c"))
	good, err := encodeReceipt(l.receipt(report("b")))
	if err != nil {
		t.Fatal(err)
	}
	l.spoil(receiptBucket, receiptKey(report("b")))
	named := func(what string, err error) {
		t.Helper()
		var damaged *DamagedError
		if !errors.As(err, &damaged) || damaged.Row != "receipts report b" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = l.Get(t.Context(), report("b"))
	named("get", err)
	rows, _, err := l.List(t.Context(), Query{})
	named("list", err)
	if len(rows) != 2 {
		t.Errorf("list: %d rows", len(rows))
	}
	rows, err = l.Intents(t.Context(), Key{}, 10)
	named("intents", err)
	if len(rows) != 2 {
		t.Errorf("intents: %d rows", len(rows))
	}
	err = l.Change(t.Context(), []Key{report("a"), report("b"), report("c")}, func(r *Receipt, _ bool) bool { r.Reason = "seen"; return true })
	named("change", err)
	if l.receipt(report("c")).Reason != "seen" {
		t.Error("the receipt after the damaged one was not changed")
	}
	if keys, err := l.Resolve(t.Context(), "b"); err != nil || len(keys) != 1 {
		t.Errorf("resolve: %v, %v", keys, err)
	}
	l.raw(func(t *txn) { t.put(receiptBucket, receiptKey(report("b")), good) })
}

func TestReceiptsComeBackAsTheyWereStored(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	at := time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)
	var want Receipt
	fill(reflect.ValueOf(&want).Elem(), at)
	want.Kind, want.ID, want.State = Report, "full", Parked
	want.Metadata = json.RawMessage(`{"a":"<&>","b":[1,2]}`)
	want.Due = l.clock.now().Add(time.Hour)
	l.set(func(r *Receipt) { created := r.Created; *r = want; r.Created = created }, want.Key())
	want.Created, want.Updated = l.clock.now(), l.clock.now()
	if got := l.receipt(want.Key()); !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
}

// fill sets every field to something, those that are added later too.
func fill(v reflect.Value, at time.Time) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint64:
		v.SetUint(math.MaxUint64)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), at)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		if v.Type().Elem().Kind() != reflect.Uint8 {
			fill(v.Index(0), at)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(at))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), at)
		}
	}
}

func TestIntentsAreIndexed(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for i := range 5 {
		l.set(func(r *Receipt) {
			if i != 2 {
				r.Intent = &Intent{Staged: "part"}
			}
		}, report(fmt.Sprint(i)))
	}
	l.set(func(r *Receipt) { r.Intent = nil }, report("3"))
	l.set(func(r *Receipt) { r.Intent = &Intent{Staged: "other"} }, report("0"), Key{Job, "9"})
	var got []string
	for after := (Key{}); ; {
		rows, err := l.Intents(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			got = append(got, r.Key().String()+" "+r.Intent.Staged)
		}
		after = rows[len(rows)-1].Key()
	}
	if fmt.Sprint(got) != "[job 9 other report 0 other report 1 part report 4 part]" {
		t.Errorf("intents %q", got)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, k := range []Key{report("ab"), report("abc"), report("abd"), report("b"), {Job, "abe"}, {Job, "b"}, {Job, "abf"}} {
		l.set(func(*Receipt) {}, k)
	}
	for prefix, want := range map[string]string{
		"ab": "[report ab]", "abc": "[report abc]", "a": "[report ab report abc report abd]", "abe": "[job abe]",
		"b": "[report b job b]", "x": "[]", "abcd": "[]",
	} {
		got, err := l.Resolve(t.Context(), prefix)
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v; want %s", prefix, got, err, want)
		}
	}
}

func TestFacts(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, value := range [][]byte{[]byte("one"), []byte("two"), {}, nil} {
		if err := l.SetFact(t.Context(), "sweep", value); err != nil {
			t.Fatal(err)
		}
		got, err := l.Fact(t.Context(), "sweep")
		if err != nil || string(got) != string(value) || (got == nil) != (value == nil) {
			t.Errorf("%q, %v; want %q", got, err, value)
		}
	}
	if err := l.SetFact(t.Context(), "", []byte("x")); !errors.Is(err, ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
}

func TestWritersAtOnceLoseNothingAndShareCommits(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	const writers, each = 8, 25
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d-%d", w, i)
				if _, err := l.Admit(context.Background(), []Admission{event(id, id), event("e"+id, "shared")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s := l.stats()
	if s.Events != 2*writers*each || s.Count(Pending) != writers*each+1 || l.receipt(report("shared")).Generation != writers*each {
		t.Errorf("stats %+v", s)
	}
	if s.Commits > writers*each {
		t.Errorf("%d commits for %d batches", s.Commits, writers*each)
	}
}
