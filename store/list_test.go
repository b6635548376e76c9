package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// pages reads a list to its end.
func (l *ledger) pages(q Query) (ids []string, pages int) {
	l.t.Helper()
	for pages < 1000 {
		rows, after, err := l.List(l.t.Context(), q)
		if err != nil {
			l.t.Fatal(err)
		}
		pages++
		if q.Limit > 0 && len(rows) > q.Limit {
			l.t.Errorf("%d rows on a page of %d", len(rows), q.Limit)
		}
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		if after == "" {
			break
		}
		q.After = after
	}
	return ids, pages
}

func listed(t *testing.T) (*ledger, time.Time) {
	l := newLedger(t)
	start := l.clock.now()
	for i, r := range []Receipt{
		{ID: "0", State: Pending, Metadata: []byte(`{"period":"2026-01","n":7,"ok":true,"none":null}`)},
		{ID: "1", State: Delivered, Metadata: []byte(`{"period":"2026-02","bank":{"code":"001","deep":{"x":1.5}}}`)},
		{ID: "2", State: Parked},
		{ID: "3", State: Delivered, Metadata: []byte(`{"bank.code":"033","list":[1]}`)},
		{ID: "4", State: Failed, Metadata: []byte(`"text"`)},
		{ID: "5", State: Pending},
		{ID: "6", State: Expected},
		{ID: "7", State: Partial},
	} {
		k := report(r.ID)
		if i == 5 {
			k.Kind = Job
		}
		l.set(func(to *Receipt) { to.State, to.Metadata = r.State, r.Metadata }, k)
		l.clock.add(time.Minute)
	}
	return l, start
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	l, start := listed(t)
	meta := func(k, v string) Query { return Query{Meta: map[string]string{k: v}} }
	for name, test := range map[string]struct {
		q    Query
		want string
	}{
		"all, newest first":  {Query{}, "7 6 5 4 3 2 1 0"},
		"a state":            {Query{States: []State{Delivered}}, "3 1"},
		"states":             {Query{States: []State{Pending, Delivered, Pending}}, "5 3 1 0"},
		"an unknown state":   {Query{States: []State{"lost"}}, ""},
		"reports":            {Query{Kind: Report}, "7 6 4 3 2 1 0"},
		"jobs":               {Query{Kind: Job}, "5"},
		"since":              {Query{Since: start.Add(5 * time.Minute)}, "7 6 5"},
		"since, of a state":  {Query{Since: start.Add(1 * time.Minute), States: []State{Delivered, Pending}}, "5 3 1"},
		"string":             {meta("period", "2026-01"), "0"},
		"number":             {meta("n", "7"), "0"},
		"bool":               {meta("ok", "true"), "0"},
		"null":               {meta("none", "null"), "0"},
		"path":               {meta("bank.code", "001"), "1"},
		"longer path":        {meta("bank.deep.x", "1.5"), "1"},
		"key with a dot":     {meta("bank.code", "033"), "3"},
		"list":               {meta("list", "[1]"), ""},
		"another value":      {meta("period", "2026-03"), ""},
		"two keys":           {Query{Meta: map[string]string{"period": "2026-01", "n": "7"}}, "0"},
		"two keys, one hits": {Query{Meta: map[string]string{"period": "2026-01", "n": "8"}}, ""},
	} {
		for _, limit := range []int{0, 1, 3, 1000} {
			test.q.Limit = limit
			if got, _ := l.pages(test.q); strings.Join(got, " ") != test.want {
				t.Errorf("%s, pages of %d: %v, want %s", name, limit, got, test.want)
			}
		}
	}
}

func TestListPagesEndAndAreNotDisturbedByChanges(t *testing.T) {
	t.Parallel()
	l, _ := listed(t)
	rows, after, err := l.List(t.Context(), Query{Limit: 8})
	if err != nil || len(rows) != 8 || after != "" {
		t.Errorf("a full last page: %d rows, cursor %q, %v", len(rows), after, err)
	}
	_, after, err = l.List(t.Context(), Query{Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	l.set(func(r *Receipt) { r.State = Delivered }, report("2")) // moves to the front
	if got, _ := l.pages(Query{Limit: 3, After: after}); strings.Join(got, " ") != "4 3 1 0" {
		t.Errorf("after a change: %v", got)
	}
	for _, cursor := range []string{"x", "%%", "AAAA", strings.Repeat("A", 40)} {
		if _, _, err := l.List(t.Context(), Query{After: cursor}); !errors.Is(err, ErrInvalid) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

func TestAListThatMatchesLittleComesInBoundedSteps(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	const n = mostScanned + 500
	var keys []Key
	for i := range n {
		keys = append(keys, report(fmt.Sprintf("%05d", i)))
	}
	for chunk := range slices.Chunk(keys, 256) {
		l.set(func(r *Receipt) {
			if r.ID == "00000" {
				r.Metadata = []byte(`{"x":"y"}`)
			}
		}, chunk...)
	}
	got, pages := l.pages(Query{Meta: map[string]string{"x": "y"}})
	if fmt.Sprint(got) != "[00000]" || pages != 2 {
		t.Errorf("%v in %d pages", got, pages)
	}
	if got, _ := l.pages(Query{}); len(got) != n {
		t.Errorf("%d of %d", len(got), n)
	}
}
