package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
)

// operation is one caller's change. The committer puts all that are waiting into one transaction, so that they share its
// sync, and answers them once it is on disk.
//
// run validates before it writes: its error is its caller's alone and leaves nothing to undo among its neighbours.
type operation struct {
	cost  int              // how many receipts it may touch
	run   func(*txn) error // within a transaction
	alone func() error     // instead of run: between two transactions

	claimed atomic.Bool // by the committer, or by a caller who no longer waits; the first wins
	done    chan struct{}
	err     error
}

// maxCost bounds a transaction, so that nobody waits long behind a crowd.
const maxCost = 512

// queue holds operations in the order in which they came.
type queue struct {
	wake chan struct{} // has room for one

	mu      sync.Mutex
	waiting []*operation
	refusal error // why nothing is accepted now
}

func (q *queue) push(op *operation) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refusal != nil {
		return q.refusal
	}
	q.waiting = append(q.waiting, op)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// refuse makes push fail with err; nil accepts again. A closed queue stays closed.
func (q *queue) refuse(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !errors.Is(q.refusal, ErrClosed) {
		q.refusal = err
	}
}

// take removes what the next transaction is made of. One that must be alone is taken alone.
func (q *queue) take() []*operation {
	q.mu.Lock()
	defer q.mu.Unlock()
	var batch []*operation
	cost := 0
	for len(q.waiting) > 0 {
		op := q.waiting[0]
		if len(batch) > 0 && (cost+op.cost > maxCost || op.alone != nil) {
			break
		}
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		if !op.claimed.CompareAndSwap(false, true) {
			continue // withdrawn
		}
		batch, cost = append(batch, op), cost+op.cost
		if op.alone != nil {
			break
		}
	}
	return batch
}

// submit has the committer run f and waits for the disk. When ctx ends first, the operation is either withdrawn, and
// never happens, or its outcome is awaited and reported as it is.
func (s *Store) submit(ctx context.Context, cost int, f func(*txn) error) error {
	return s.enqueue(ctx, &operation{cost: cost, run: f})
}

// between has the committer run f while no transaction is open, so that what f reads can't change meanwhile.
func (s *Store) between(ctx context.Context, f func() error) error {
	return s.enqueue(ctx, &operation{alone: f})
}

func (s *Store) enqueue(ctx context.Context, op *operation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	op.done = make(chan struct{})
	if err := s.queue.push(op); err != nil {
		return err
	}
	select {
	case <-op.done:
	case <-ctx.Done():
		if op.claimed.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		<-op.done // bounded by one commit
	}
	return op.err
}

// run is the committer: the only goroutine that writes. It ends once the store is closed and the queue is empty.
func (s *Store) run() {
	defer close(s.stopped)
	for {
		ops := s.queue.take()
		if len(ops) > 0 {
			s.process(ops)
			continue
		}
		select {
		case <-s.queue.wake:
		case <-s.stop:
			if ops := s.queue.take(); len(ops) > 0 {
				s.process(ops)
				continue
			}
			return
		}
	}
}

func (s *Store) process(ops []*operation) {
	if ops[0].alone != nil {
		ops[0].err = ops[0].alone()
		close(ops[0].done)
		return
	}
	err := s.unavailable()
	if err == nil {
		if err = s.transact(ops); err != nil {
			err = s.lose(err)
		}
	}
	for _, op := range ops {
		if err != nil {
			op.err = err
		}
		close(op.done)
	}
	if err != nil {
		s.recover()
	}
}

// unavailable says why there is no file to write to.
func (s *Store) unavailable() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.fault
}

// transact runs the operations in one transaction. Its error concerns all of them: the outcome is unknown.
func (s *Store) transact(ops []*operation) error {
	t := &txn{now: s.o.Now().UTC().Round(0), counters: s.counters, record: s.recorder != nil}
	err := guard(s.path, func() error {
		tx, err := s.db.Begin(true)
		if err != nil {
			return err
		}
		t.reader = reader{tx: tx, path: s.path}
		for _, op := range ops {
			if op.err = op.run(t); t.err != nil {
				return t.err
			}
		}
		if !t.wrote {
			return tx.Rollback()
		}
		t.saveCounters()
		return s.commit(tx)
	})
	if t.wrote {
		// After an error too: it may have happened, and reading a row once more does a backup no harm.
		s.recorder.add(t.changes)
		s.written = true
	}
	if err != nil {
		abandon(s.path, t.tx)
		return err
	}
	s.counters = t.counters
	return nil
}

// abandon ends a transaction that failed or faulted, if bbolt has not done so itself: until then its file can't be closed.
func abandon(path string, tx *bolt.Tx) {
	if tx != nil {
		_ = guard(path, tx.Rollback)
	}
}

// lose closes the file after a failed transaction and makes every call fail until it is open again. The file is not
// synced once more: after an error the kernel reports success for pages that never reached the disk.
func (s *Store) lose(cause error) error {
	fault := fmt.Errorf("%w: %w", ErrUnavailable, cause)
	s.o.Log.Error("ledger: commit failed, its outcome is unknown", "path", s.path, "error", cause)
	s.queue.refuse(fault)
	s.mu.Lock()
	db := s.db
	s.db, s.fault = nil, fault
	s.mu.Unlock()
	if err := db.Close(); err != nil {
		s.o.Log.Warn("ledger: close", "path", s.path, "error", err)
	}
	return fault
}

// How long the committer waits between two tries to open the ledger again.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 30 * time.Second
)

// recover opens the ledger again, with back-off, until that succeeds or the store is closed.
func (s *Store) recover() {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := s.reopen()
		if err == nil {
			s.o.Log.Info("ledger: open again", "path", s.path)
			s.queue.refuse(nil)
			return
		}
		fault := fmt.Errorf("%w: %w", ErrUnavailable, err)
		s.o.Log.Error("ledger: can't open it again", "path", s.path, "error", err)
		s.queue.refuse(fault)
		s.mu.Lock()
		s.fault = fault
		s.mu.Unlock()
		s.answer(fault)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.stop:
			timer.Stop()
			s.answer(fault)
			return
		}
	}
}

// answer fails whatever came into the queue before it was closed.
func (s *Store) answer(err error) {
	for ops := s.queue.take(); len(ops) > 0; ops = s.queue.take() {
		for _, op := range ops {
			op.err = err
			close(op.done)
		}
	}
}

// reopen reads the ledger from the disk, not from what the kernel remembers of writes that failed.
func (s *Store) reopen() error {
	if err := forgetCached(s.path); err != nil {
		return err
	}
	db, who, count, err := openLedger(context.Background(), s.path)
	if err != nil {
		return err
	}
	if who.instance != s.who.instance {
		_ = db.Close()
		return fmt.Errorf("%s: another ledger has taken its place", s.path)
	}
	s.counters = count
	s.mu.Lock()
	s.db, s.fault = db, nil
	s.mu.Unlock()
	return nil
}
