package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// bodyA and bodyB are what two events of one id say. No encoder of ours would write them so.
const (
	bodyA = `{ "z":1, "jobId":"j1", "n":12345678901234567890.10, "t":"<&>\u003c\u00e9é` + "\u2028" + `" }`
	bodyB = `{ "z":2, "jobId":"j1", "n":12345678901234567890.10, "t":"<&>\u003c\u00e9é` + "\u2028" + `" }`
)

func job(id string) Key { return Key{Job, id} }

// signedEvent is an event that its receipt is settled from.
func signedEvent(id, name, receipt, body string) Admission {
	return Admission{
		Feed: Jobs, EventID: id, EventName: name, Receipt: job(receipt), Transport: "amqp", Origin: "recibo.jobs",
		Source: "//lerian.fetcher/worker", Tenant: "acme",
		Body: json.RawMessage(body), Headers: map[string]string{"t": "1"}, Data: []byte(body),
	}
}

func completed(body string) Admission { return signedEvent("c1", "job.completed", "j1", body) }

// says checks what the events on record say, up to JSON's white space.
func (l *ledger) says(receipt string, want map[string]string) {
	l.t.Helper()
	got := l.receipt(job(receipt)).Announced
	if len(got) != len(want) {
		l.t.Errorf("on record are %s", got)
	}
	for name, body := range want {
		var compact bytes.Buffer
		if err := json.Compact(&compact, []byte(body)); err != nil {
			l.t.Fatal(err)
		}
		if string(got[name]) != compact.String() {
			l.t.Errorf("%s says %s, want %s", name, got[name], compact.String())
		}
	}
}

func TestABodyIsKeptWithItsReceiptAsItWasWritten(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{completed(bodyA), event("e1", "r1")}, Admitted, Admitted)
	l.says("j1", map[string]string{"job.completed": bodyA})
	r := l.receipt(job("j1"))
	if r.State != Pending || r.Contested || r.Generation != 1 || r.Source != "//lerian.fetcher/worker" || r.Tenant != "acme" {
		t.Errorf("receipt %+v", r)
	}
	l.admit([]Admission{signedEvent("f1", "job.failed", "j1", bodyB)}, Admitted)
	l.says("j1", map[string]string{"job.completed": bodyA, "job.failed": bodyB})
	if r := l.receipt(job("j1")); r.Contested || r.Generation != 2 {
		t.Errorf("one event of each name is for the reader to judge: %+v", r)
	}
	if r := l.receipt(report("r1")); r.Announced != nil {
		t.Errorf("a hint is kept as %s", r.Announced)
	}
}

func TestAnEventRepeatsAnotherOnlyWithTheSameBody(t *testing.T) {
	t.Parallel()
	fresh := completed(bodyA) // emitted again
	fresh.Headers, fresh.Origin, fresh.Source = map[string]string{"t": "2"}, "recibo.jobs-2", "//another"
	hint := completed(bodyA)
	hint.Body = nil
	for name, test := range map[string]struct {
		again Admission
		want  Outcome
	}{
		"the same bytes":           {fresh, Repeated},
		"another body":             {completed(bodyB), Conflict},
		"the same in other digits": {completed(strings.Replace(bodyA, "1,", "1.0,", 1)), Conflict},
		"without a body":           {hint, Conflict},
		"another name":             {signedEvent("c1", "job.failed", "j1", bodyA), Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.admit([]Admission{completed(bodyA)}, Admitted)
			commits := l.stats().Commits
			l.clock.add(time.Minute)
			l.admit([]Admission{test.again}, test.want)
			l.says("j1", map[string]string{"job.completed": bodyA})
			r, s := l.receipt(job("j1")), l.stats()
			conflict := test.want == Conflict
			if r.Contested != conflict || (r.Generation == 2) != conflict || r.Due.Equal(l.clock.now()) != conflict {
				t.Errorf("receipt %+v", r)
			}
			if (s.Commits > commits) != conflict || s.Events != 1 {
				t.Errorf("%d commits, %d events", s.Commits-commits, s.Events)
			}
		})
	}
}

func TestAConflictOfBodiesIsQuarantinedOnceHoweverOftenItComes(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	// Within one batch, and again later.
	l.admit([]Admission{completed(bodyA), completed(bodyB), completed(bodyA), completed(bodyB)}, Admitted, Conflict, Repeated, Conflict)
	l.set(func(r *Receipt) { r.State, r.Due = Delivered, time.Time{} }, job("j1"))
	l.admit([]Admission{completed(bodyB), completed(bodyB)}, Conflict, Conflict)
	r := l.receipt(job("j1"))
	if r.Generation != 2 || !r.Due.IsZero() || r.State != Delivered || !r.Contested {
		t.Errorf("what was contradicted before is due anew: %+v", r)
	}
	entries, err := l.Quarantine(t.Context(), 0, 10)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	q := entries[0]
	if q.Times != 4 || string(q.Data) != bodyB || q.Feed != Jobs || q.Receipt != job("j1") ||
		!strings.HasSuffix(q.Reason, "with another body or source") {
		t.Errorf("entry %+v", q)
	}
	// A third body is news.
	l.admit([]Admission{completed(`{"z":3}`)}, Conflict)
	if r := l.receipt(job("j1")); r.Generation != 3 || r.Due.IsZero() || r.State != Delivered {
		t.Errorf("after a third body: %+v", r)
	}
	if s := l.stats(); s.Quarantined != 2 {
		t.Errorf("%d entries", s.Quarantined)
	}
}

func TestAConflictBetweenTwoJobsContestsBoth(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	other := signedEvent("c1", "job.completed", "j2", bodyA)
	l.admit([]Admission{completed(bodyA), other}, Admitted, Conflict)
	for _, id := range []string{"j1", "j2"} {
		if r := l.receipt(job(id)); !r.Contested || r.Due.IsZero() || r.State != Pending {
			t.Errorf("receipt %+v", r)
		}
	}
	if r := l.receipt(job("j2")); r.Announced != nil {
		t.Errorf("what is in quarantine is announced: %s", r.Announced)
	}
	// Of reports only hints come: nothing of them is contested.
	l.admit([]Admission{event("e1", "r1"), event("e1", "r2")}, Admitted, Conflict)
	if r := l.receipt(report("r1")); r.Contested {
		t.Errorf("receipt %+v", r)
	}
}

func TestAReleaseOverridesWhatIsAnnounced(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{completed(bodyA), completed(bodyB)}, Admitted, Conflict)
	l.set(func(r *Receipt) { r.State, r.Due, r.Handled = Delivered, time.Time{}, r.Generation }, job("j1"))
	l.clock.add(time.Hour)
	if got, err := l.Release(t.Context(), 1, completed(bodyB)); got != Admitted || err != nil {
		t.Fatalf("%v, %v", got, err)
	}
	l.says("j1", map[string]string{"job.completed": bodyB})
	r := l.receipt(job("j1"))
	if r.Generation != 3 || !r.Due.Equal(l.clock.now()) || r.State != Delivered || r.Contested {
		t.Errorf("receipt %+v", r)
	}
	if s := l.stats(); s.Quarantined != 0 || s.Events != 2 {
		t.Errorf("stats %+v", s)
	}
	// Neither of the two is news now, and the decision stands.
	l.admit([]Admission{completed(bodyA), completed(bodyB)}, Repeated, Conflict)
	l.says("j1", map[string]string{"job.completed": bodyB})
	if r := l.receipt(job("j1")); r.Generation != 3 || r.Contested {
		t.Errorf("delivered again: %+v", r)
	}
}

func TestABodyThatIsNoJSONHoldsUpNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for i, body := range []string{"", "{", "not json", `{"a":1} {"b":2}`, "{\"a\":\x01}", `{"a":"` + "\n" + `"}`} {
		bad := signedEvent("bad", "job.completed", "bad", body)
		if body == "" {
			bad.Body = json.RawMessage{}
		}
		good := signedEvent(string(rune('a'+i)), "job.completed", string(rune('a'+i)), bodyA)
		l.admit([]Admission{bad, good, bad}, Kept, Admitted, Kept)
		if _, err := l.Get(t.Context(), job("bad")); !errors.Is(err, ErrNotFound) {
			t.Errorf("body %q: receipt: %v", body, err)
		}
		if _, err := l.Release(t.Context(), uint64(i+1), bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("body %q: release: %v", body, err)
		}
	}
	q, err := l.Quarantined(t.Context(), 2)
	if err != nil || q.Times != 2 || string(q.Data) != "{" || !strings.Contains(q.Reason, "not JSON") {
		t.Errorf("entry %+v, %v", q, err)
	}
	l.admit([]Admission{signedEvent("bad", "job.completed", "bad", bodyA)}, Admitted) // it suppressed nothing
}

// TestARecordFromBeforeThereWereDigestsIsRead as one of an event without a body: those were all that there were.
func TestARecordFromBeforeThereWereDigestsIsRead(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{event("e1", "r1")}, Admitted)
	key := eventKey(Reports, "e1")
	l.raw(func(tx *txn) {
		data := tx.get(eventBucket, key)
		if n := len(data); n == 0 || data[n-1] != 0 {
			t.Fatalf("the record does not end with the length of an empty digest: %x", data)
		}
		tx.put(eventBucket, key, bytes.Clone(data[:len(data)-1]))
	})
	e, err := l.Event(t.Context(), Reports, "e1")
	if err != nil || e.Receipt != report("r1") || e.Name != "report.finished" || e.Transport != "nats" ||
		e.Source != "//lerian/reporter" {
		t.Fatalf("%+v, %v", e, err)
	}
	l.admit([]Admission{event("e1", "r1"), event("e1", "r2")}, Repeated, Conflict)
	l.set(func(r *Receipt) { r.State, r.Due = Delivered, time.Time{} }, report("r1"))
	if n := l.prune(l.clock.add(time.Hour), 10); n != 1 {
		t.Errorf("removed %d", n)
	}
	if _, err := l.Event(t.Context(), Reports, "e1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("pruned with its receipt: %v", err)
	}
}

// TestAnEventRecordThatEndsEarlyIsDamage, wherever it ends: only a whole text may be missing, and that at the end.
func TestAnEventRecordThatEndsEarlyIsDamage(t *testing.T) {
	t.Parallel()
	whole := encodeEvent(&EventRecord{
		Name: "job.completed", Receipt: job("j1"), Transport: "amqp", Origin: "q", Source: "s", id: "c1", digest: "0123456789abcdef",
	})
	if e, err := decodeEvent(whole); err != nil || e.digest != "0123456789abcdef" {
		t.Fatalf("%+v, %v", e, err)
	}
	old := len(whole) - 17
	for n := range len(whole) {
		e, err := decodeEvent(whole[:n])
		if (err == nil) != (n == old) {
			t.Errorf("the first %d bytes of %d: %+v, %v", n, len(whole), e, err)
		}
	}
	long := append(binary.AppendUvarint(bytes.Clone(whole[:old]), 1<<40), "x"...)
	if e, err := decodeEvent(long); err == nil {
		t.Errorf("a digest beyond the record: %+v", e)
	}
}

func TestWhatEventsSaySurvives(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(*testing.T, *ledger) string{
		"a restart": func(t *testing.T, l *ledger) string { return l.path },
		"a backup and its restore": func(t *testing.T, l *ledger) string {
			backup, target := filepath.Join(t.TempDir(), "backup.db"), filepath.Join(t.TempDir(), "restored.db")
			if err := l.Backup(t.Context(), backup); err != nil {
				t.Fatal(err)
			}
			if _, err := Restore(t.Context(), backup, target); err != nil {
				t.Fatal(err)
			}
			return target
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "recibo.db")
			s, err := Open(path, Options{Create: true, Now: newClock().now})
			if err != nil {
				t.Fatal(err)
			}
			l := &ledger{s, t, newClock()}
			l.admit([]Admission{completed(bodyA), completed(bodyB), signedEvent("f2", "job.failed", "j2", bodyB)}, Admitted, Conflict, Admitted)
			target := move(t, l)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			l = openAt(t, target)
			l.says("j1", map[string]string{"job.completed": bodyA})
			l.says("j2", map[string]string{"job.failed": bodyB})
			if r := l.receipt(job("j1")); !r.Contested || r.Generation != 2 || r.Due.IsZero() {
				t.Errorf("receipt %+v", r)
			}
			l.admit([]Admission{completed(bodyA), completed(bodyB), completed(`{"z":3}`), signedEvent("f2", "job.failed", "j2", bodyB)},
				Repeated, Conflict, Conflict, Repeated)
			if got, err := l.Release(t.Context(), 1, completed(bodyB)); got != Admitted || err != nil {
				t.Errorf("%v, %v", got, err)
			}
			l.says("j1", map[string]string{"job.completed": bodyB})
		})
	}
}

// Where the source of an event decides and is not signed, a copy under another one is no repetition.
func TestABodyUnderAnotherMarkIsAContradiction(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	marked := func(mark string) Admission {
		a := completed(bodyA)
		a.Mark = mark
		return a
	}
	l.admit([]Admission{marked("0"), marked("0"), marked("1")}, Admitted, Repeated, Conflict)
	if r := l.receipt(job("j1")); !r.Contested || r.Due.IsZero() {
		t.Errorf("%+v", r)
	}
}
