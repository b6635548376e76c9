package store

import (
	"context"
	"sync/atomic"

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
		s.reopenUntilGood()
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
		if err := s.inPlace(); err != nil {
			return err
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
