package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

var errDisk = errors.New("input/output error")

// eventually waits for a condition that needs no more than time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting for: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// nextCommit replaces the commit of the next transaction.
func (l *ledger) nextCommit(f func(*bolt.Tx) error) {
	l.t.Helper()
	err := l.between(l.t.Context(), func() error {
		l.commit = func(tx *bolt.Tx) error {
			l.commit = (*bolt.Tx).Commit
			return f(tx)
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// held keeps the committer busy until release is called, and returns once it is.
func (l *ledger) held() (release func()) {
	l.t.Helper()
	busy, free := make(chan struct{}), make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		_ = l.between(context.Background(), func() error { close(busy); <-free; return nil })
	})
	<-busy
	return sync.OnceFunc(func() { close(free); done.Wait() })
}

func (l *ledger) waiting() int {
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	return len(l.queue.waiting)
}

func TestAfterAFailedCommitTheLedgerIsOpenedAgainAndSaysWhatIsOnDisk(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		commit func(*bolt.Tx) error
		again  Outcome
	}{
		"nothing reached the disk": {func(*bolt.Tx) error { return errDisk }, Admitted},
		"all of it did":            {func(tx *bolt.Tx) error { _ = tx.Commit(); return errDisk }, Repeated},
		"it panicked":              {func(*bolt.Tx) error { panic("page 7: what is this") }, Admitted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			l.admit([]Admission{event("e0", "r0")}, Admitted)
			l.nextCommit(test.commit)
			if _, err := l.Admit(t.Context(), []Admission{event("e1", "r1")}); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("error %v", err)
			}
			eventually(t, "the ledger to be open again", func() bool { return l.Healthy() == nil })
			l.admit([]Admission{event("e0", "r0"), event("e1", "r1")}, Repeated, test.again)
			if s := l.stats(); s.Events != 2 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestUntilTheLedgerIsOpenAgainEveryCallFails(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.admit([]Admission{event("e0", "r0")}, Admitted)
	release := l.held()
	var queued sync.WaitGroup
	away := l.path + ".away"
	queued.Go(func() {
		_ = l.between(context.Background(), func() error {
			l.commit = func(*bolt.Tx) error {
				l.commit = (*bolt.Tx).Commit
				return errors.Join(errDisk, os.Rename(l.path, away))
			}
			return nil
		})
	})
	eventually(t, "the change of the commit", func() bool { return l.waiting() == 1 })
	queued.Go(func() {
		if _, err := l.Admit(context.Background(), []Admission{event("e1", "r1")}); !errors.Is(err, ErrUnavailable) || !errors.Is(err, errDisk) {
			t.Errorf("the one whose commit failed: %v", err)
		}
	})
	eventually(t, "the admission", func() bool { return l.waiting() == 2 })
	release()
	queued.Wait()

	_, getErr := l.Get(t.Context(), report("r0"))
	_, statsErr := l.Stats(t.Context())
	for name, err := range map[string]error{
		"get": getErr, "stats": statsErr, "health": l.Healthy(),
		"set fact": l.SetFact(t.Context(), "x", []byte("x")),
		"backup":   l.Backup(t.Context(), filepath.Join(t.TempDir(), "backup")),
	} {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Rename(away, l.path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ledger to be open again", func() bool { return l.Healthy() == nil })
	l.admit([]Admission{event("e0", "r0"), event("e1", "r1")}, Repeated, Admitted)
}

func TestAStoreThatCanNotOpenItsLedgerAgainCloses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "recibo.db")
	s, err := Open(path, Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{s, t, nil}
	l.nextCommit(func(*bolt.Tx) error { return errors.Join(errDisk, os.Remove(path)) })
	if err := s.SetFact(t.Context(), "x", []byte("x")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestAnotherLedgerInItsPlaceIsNotTakenForIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, other := filepath.Join(dir, "recibo.db"), filepath.Join(dir, "other.db")
	for _, p := range []string{path, other} {
		s, err := Open(p, Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	l := &ledger{s, t, nil}
	l.nextCommit(func(*bolt.Tx) error { return errors.Join(errDisk, os.Rename(other, path)) })
	_ = s.SetFact(t.Context(), "x", []byte("x"))
	if err := s.Healthy(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("health: %v", err)
	}
}

func TestWhoeverWaitsSharesOneCommit(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	release := l.held()
	defer release()
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			if _, err := l.Admit(context.Background(), []Admission{event(fmt.Sprint(i), "r")}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Go(func() { // its mistake is its own
		err := l.Change(context.Background(), []Key{report("bad")}, func(*Receipt, bool) bool { return true })
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("invalid change: %v", err)
		}
	})
	eventually(t, "all of them in the queue", func() bool { return l.waiting() == 11 })
	release()
	all.Wait()
	if s := l.stats(); s.Commits != 1 || s.Events != 10 {
		t.Errorf("%d commits, %d events", s.Commits, s.Events)
	}
}

func TestATransactionIsBounded(t *testing.T) {
	t.Parallel()
	q := queue{wake: make(chan struct{}, 1)}
	for _, cost := range []int{300, 200, 100, 2000, 1, 0, 1} {
		op := &operation{cost: cost}
		if cost == 0 {
			op.alone = func() error { return nil }
		}
		if err := q.push(op); err != nil {
			t.Fatal(err)
		}
	}
	var sizes []int
	for ops := q.take(); len(ops) > 0; ops = q.take() {
		sizes = append(sizes, len(ops))
	}
	if fmt.Sprint(sizes) != "[2 1 1 1 1 1]" {
		t.Errorf("transactions of %v", sizes)
	}
}

func TestAContextThatEndsInTheQueueWithdraws(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	release := l.held()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	var call sync.WaitGroup
	call.Go(func() {
		if _, err := l.Admit(ctx, []Admission{event("e1", "r1")}); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
	eventually(t, "the admission", func() bool { return l.waiting() == 1 })
	cancel()
	call.Wait()
	release()
	l.admit([]Admission{event("e1", "r1")}, Admitted)
	if _, err := l.Admit(ctx, []Admission{event("e2", "r2")}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that ended before: %v", err)
	}
}

func TestAContextThatEndsDuringTheCommitHidesNoOutcome(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	ctx, cancel := context.WithCancel(t.Context())
	l.nextCommit(func(tx *bolt.Tx) error { cancel(); return tx.Commit() })
	got, err := l.Admit(ctx, []Admission{event("e1", "r1")})
	if err != nil || len(got) != 1 || got[0] != Admitted {
		t.Errorf("%v, %v", got, err)
	}
}

func TestCloseCarriesOutWhatIsQueuedAndRefusesTheRest(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	release := l.held()
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := l.Admit(context.Background(), []Admission{event("e1", "r1")}); err != nil {
			t.Errorf("queued before: %v", err)
		}
	})
	eventually(t, "the admission", func() bool { return l.waiting() == 1 })
	all.Go(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	eventually(t, "the queue to be shut", func() bool {
		l.queue.mu.Lock()
		defer l.queue.mu.Unlock()
		return errors.Is(l.queue.refusal, ErrClosed)
	})
	release()
	all.Wait()
	_, admitErr := l.Admit(t.Context(), []Admission{event("e2", "r2")})
	_, getErr := l.Get(t.Context(), report("r1"))
	for name, err := range map[string]error{"admit": admitErr, "get": getErr, "health": l.Healthy()} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after close: %v", name, err)
		}
	}
	again := openAt(t, l.path)
	again.admit([]Admission{event("e1", "r1")}, Repeated)
	if again.InstanceID() != l.InstanceID() || !again.Created().Equal(l.clock.now()) {
		t.Errorf("it is another ledger now: %s of %v", again.InstanceID(), again.Created())
	}
}
