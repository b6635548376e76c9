package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestABackupShowsOneMomentWhileWritersGoOn(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	var batch []Admission
	for i := range 3 * copyRows {
		batch = append(batch, event(fmt.Sprint("old-", i), fmt.Sprint("old-", i)))
	}
	if _, err := l.Admit(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	const writers = 3
	var all sync.WaitGroup
	var stop atomic.Bool
	var done [writers]atomic.Int64
	for w := range writers {
		all.Go(func() {
			for i := 0; !stop.Load(); i++ {
				id := fmt.Sprintf("new-%d-%06d", w, i)
				if _, err := l.Admit(context.Background(), []Admission{event(id, id), kept(id)}); err != nil {
					t.Error(err)
					return
				}
				done[w].Store(int64(i + 1))
				// Rows move in the indexes and entries go, while they are copied.
				_ = l.Change(context.Background(), []Key{report(id), report(fmt.Sprint("old-", i))}, func(r *Receipt, fresh bool) bool {
					r.State, r.Due = Delivered, time.Time{}
					return !fresh
				})
				if _, err := l.Prune(context.Background(), l.clock.now().Add(time.Second), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	eventually(t, "the writers", func() bool { return done[0].Load() > 0 && done[1].Load() > 0 && done[2].Load() > 0 })
	before := done[0].Load() + done[1].Load() + done[2].Load()
	file := filepath.Join(t.TempDir(), "backup.db")
	err := l.Backup(t.Context(), file)
	after := done[0].Load() + done[1].Load() + done[2].Load()
	stop.Store(true)
	all.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if after == before {
		t.Error("no writer got on while the backup ran")
	}
	// Counters, indexes and rows agree, as they do between two commits and at no other time.
	if err := Check(t.Context(), file); err != nil {
		t.Errorf("the copy is of no one moment: %v", err)
	}
	b := openAt(t, file)
	if b.InstanceID() != l.InstanceID() {
		t.Error("the copy has another instance")
	}
	if s := b.stats(); s.Quarantined < before {
		t.Errorf("the copy misses what was done before: %d of %d", s.Quarantined, before)
	}
	at, err := b.Fact(t.Context(), BackupAt)
	if when, parseErr := time.Parse(time.RFC3339Nano, string(at)); err != nil || parseErr != nil || !when.Equal(l.clock.now()) {
		t.Errorf("time of the backup: %q, %v", at, err)
	}
	if value, err := l.Fact(t.Context(), BackupAt); err != nil || value != nil {
		t.Errorf("the original is marked as a backup: %q, %v", value, err)
	}
}

func TestWhatChangesBetweenTwoPagesIsCopiedAgain(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{event("e1", "r1"), event("e2", "r2"), event("e3", "r3")}, Admitted, Admitted, Admitted)
	changed := &recorder{rows: map[change]bool{}}
	if err := l.between(t.Context(), func() error { l.recorder = changed; return nil }); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "copy.db")
	d, err := newDraft(file)
	if err != nil {
		t.Fatal(err)
	}
	defer d.discard()
	n := 0
	err = copyAll(t.Context(), func(ctx context.Context, f func(*reader) error) error {
		n++
		// A writer between any two pages: changes, additions and removals, on both sides of where the copy stands.
		l.set(func(r *Receipt) { r.State, r.Due, r.Intent = States[n%len(States)], time.Time{}, nil }, report("r1"))
		l.admit([]Admission{event(fmt.Sprint("n", n), fmt.Sprint("n", n))}, Admitted)
		l.set(func(r *Receipt) { r.State, r.Due = Delivered, time.Time{} }, report("r2"))
		l.prune(l.clock.add(time.Second), 1)
		return l.view(ctx, f)
	}, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := copyChanges(t.Context(), l.view, changed.take(), d); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.seal(), d.install(file)); err != nil {
		t.Fatal(err)
	}
	if err := Check(t.Context(), file); err != nil {
		t.Error(err)
	}
}

func TestABackupThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	busy := func(on *recorder) {
		if err := l.between(t.Context(), func() error { l.recorder = on; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if err := l.Backup(ended, filepath.Join(dir, "b")); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
	busy(&recorder{rows: map[change]bool{}})
	if err := l.Backup(t.Context(), filepath.Join(dir, "b")); !errors.Is(err, ErrBusy) {
		t.Errorf("busy: %v", err)
	}
	busy(nil)
	if err := l.Backup(t.Context(), filepath.Join(dir, "none", "b")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
	file := filepath.Join(dir, "b")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Backup(t.Context(), file); !errors.Is(err, ErrExists) {
		t.Errorf("exists: %v", err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "mine" {
		t.Errorf("the file that was there: %q, %v", data, err)
	}
	// None of this keeps the next one from working.
	if err := l.Backup(t.Context(), filepath.Join(dir, "good")); err != nil {
		t.Error(err)
	}
}

func TestRestore(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	dir := t.TempDir()
	backup := filepath.Join(dir, "backup.db")
	l.admit([]Admission{event("e1", "r1")}, Admitted)
	moment := l.clock.now()
	if err := l.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	l.clock.add(time.Hour)
	l.admit([]Admission{event("e2", "r2")}, Admitted)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	when, err := Restore(t.Context(), backup, l.path)
	if err != nil || !when.Equal(moment) {
		t.Fatalf("%v, %v", when, err)
	}
	again := openAt(t, l.path)
	again.admit([]Admission{event("e1", "r1"), event("e2", "r2")}, Repeated, Admitted)
	if from, err := again.Fact(t.Context(), RestoredFrom); err != nil || string(from) != moment.Format(time.RFC3339Nano) {
		t.Errorf("restored from %q, %v", from, err)
	}
	if at, err := again.Fact(t.Context(), RestoredAt); err != nil || at == nil {
		t.Errorf("restored at %q, %v", at, err)
	}
	old := openAt(t, l.path+".before-restore")
	old.admit([]Admission{event("e2", "r2")}, Repeated)

	// To a place where there is none yet, and of a ledger that was simply copied while it was closed.
	elsewhere := filepath.Join(dir, "new", "recibo.db")
	if when, err = Restore(t.Context(), backup, elsewhere); err != nil || !when.Equal(moment) {
		t.Errorf("elsewhere: %v, %v", when, err)
	}
	openAt(t, elsewhere).admit([]Admission{event("e1", "r1")}, Repeated)
	plain := ledgerFile(t, closedLedger(t, true, 1))
	info, err := os.Stat(plain)
	if err != nil {
		t.Fatal(err)
	}
	if when, err = Restore(t.Context(), plain, filepath.Join(dir, "plain.db")); err != nil || !when.Equal(info.ModTime()) {
		t.Errorf("plain copy: %v, %v", when, err)
	}
}

func TestARestoreThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{event("e1", "r1")}, Admitted)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	good := closedLedger(t, true, 1)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var damaged *DamagedError
	half := ledgerFile(t, good[:20_000])
	_, err := Restore(t.Context(), half, l.path)
	if !errors.As(err, &damaged) || damaged.Path != half {
		t.Errorf("damaged: %v", err)
	}
	if _, err := Restore(t.Context(), filepath.Join(t.TempDir(), "none"), l.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := Restore(ended, ledgerFile(t, good), l.path); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
	entries, err := os.ReadDir(filepath.Dir(l.path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
	openAt(t, l.path).admit([]Admission{event("e1", "r1")}, Repeated)
}

func TestCompactGivesRoomBackAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	var batch []Admission
	var keys []Key
	for i := range 2000 {
		batch = append(batch, event(fmt.Sprint("e", i), fmt.Sprint("r", i)))
		keys = append(keys, batch[i].Receipt)
	}
	if _, err := l.Admit(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	l.set(func(r *Receipt) { r.State, r.Due = Delivered, time.Time{} }, keys[:1990]...)
	if n := l.prune(l.clock.add(time.Hour), 10_000); n != 1990 {
		t.Fatalf("pruned %d", n)
	}
	want := l.stats()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Compact(ended, l.path); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
	before, after, err := Compact(t.Context(), l.path)
	if err != nil || before != want.FileSize || after >= before/2 {
		t.Errorf("from %d to %d bytes, %v", before, after, err)
	}
	again := openAt(t, l.path)
	got := again.stats()
	want.FileSize, got.FileSize = 0, 0
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	again.admit([]Admission{event("e1995", "r1995"), event("e5", "r5")}, Repeated, Admitted)
}

func TestWhatACrashLeftOfADraftIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "recibo.db")
	left := filepath.Join(dir, draftPrefix(path)+"123")
	other := filepath.Join(dir, draftPrefix(path+"x")+"123")
	openAt(t, path)
	for _, name := range []string{left, other} {
		if err := os.WriteFile(name, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := prepare(path, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("another's: %v", err)
	}
}
