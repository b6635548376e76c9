package store

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childVariable makes this test binary play another process.
const childVariable = "RECIBO_STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "hold":
		os.Exit(holdLock(os.Args[1]))
	case "admit":
		os.Exit(admitForEver(os.Args[1]))
	}
	goleak.VerifyTestMain(m)
}

// holdLock takes the lock, says so, and keeps it until its input ends.
func holdLock(path string) int {
	if _, err := Acquire(path); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// admitForEver admits and names each event once the store says that it is on disk.
func admitForEver(path string) int {
	s, err := Open(path, Options{Create: true})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	var out sync.Mutex
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d", w, i)
				if _, err := s.Admit(context.Background(), []Admission{event(id, "r-"+id)}); err != nil {
					return
				}
				out.Lock()
				fmt.Println(id)
				out.Unlock()
			}
		})
	}
	writers.Wait()
	return 1
}

// clock is a time that tests move by hand.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
	return c.at
}

// ledger is a store under test. When the test ends it is closed and checked in full.
type ledger struct {
	*Store
	t     *testing.T
	clock *clock
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "recibo.db"))
}

func openAt(t *testing.T, path string) *ledger {
	t.Helper()
	c := newClock()
	s, err := Open(path, Options{Create: true, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := Check(context.Background(), path); err != nil {
			t.Errorf("check after the test: %v", err)
		}
	})
	return &ledger{s, t, c}
}

func event(id, report string) Admission {
	return Admission{
		Feed: Reports, EventID: id, EventName: "report.finished", Receipt: Key{Report, report},
		Transport: "nats", Origin: "STREAMING_HUB/42", Source: "//lerian/reporter",
	}
}

// admit admits events and wants these outcomes.
func (l *ledger) admit(batch []Admission, want ...Outcome) {
	l.t.Helper()
	got, err := l.Admit(l.t.Context(), batch)
	if err != nil {
		l.t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		l.t.Fatalf("outcomes %v, want %v", got, want)
	}
}

func (l *ledger) receipt(k Key) *Receipt {
	l.t.Helper()
	r, err := l.Get(l.t.Context(), k)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// set changes receipts, making those that do not exist pending.
func (l *ledger) set(f func(*Receipt), keys ...Key) {
	l.t.Helper()
	err := l.Change(l.t.Context(), keys, func(r *Receipt, fresh bool) bool {
		if fresh {
			r.State, r.FoundBy = Pending, "poll"
		}
		f(r)
		return true
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *ledger) stats() Stats {
	l.t.Helper()
	stats, err := l.Stats(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return stats
}

func report(id string) Key { return Key{Report, id} }

// spoil overwrites a row with bytes that mean nothing, as rot would.
func (l *ledger) spoil(id bucketID, key []byte) {
	l.t.Helper()
	l.raw(func(t *txn) { t.put(id, key, []byte("{rot")) })
}

func (l *ledger) raw(f func(*txn)) {
	l.t.Helper()
	if err := l.submit(l.t.Context(), 1, func(t *txn) error { f(t); return nil }); err != nil {
		l.t.Fatal(err)
	}
}

// lines reads a child's output line by line.
func lines(r io.Reader) *bufio.Scanner { return bufio.NewScanner(r) }
