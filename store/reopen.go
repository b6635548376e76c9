package store

import (
	"context"
	"fmt"
	"time"
)

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

// reopenUntilGood opens the ledger again, with back-off, until that succeeds or the store is closed.
func (s *Store) reopenUntilGood() {
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
	s.db, s.file, s.fault = db, statOf(s.path), nil
	s.mu.Unlock()
	return nil
}
