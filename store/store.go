package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"recibo/setting"
)

// Options of Open.
type Options struct {
	Create  bool             // make the ledger when there is none
	MinFree setting.Size     // Admit refuses with ErrNoRoom below this; 0: no limit
	Now     func() time.Time // default time.Now
	Log     *slog.Logger     // default: nothing is logged
}

// Store is an open ledger. Its methods may be called from any goroutine.
type Store struct {
	path string
	o    Options
	who  identity

	mu    sync.RWMutex // held for reading during a read transaction
	db    *bolt.DB     // nil while fault says why
	file  fs.FileInfo  // what path named when db was opened
	fault error

	queue   queue
	stop    chan struct{} // closed by Close
	stopped chan struct{} // closed by the committer once it is done
	closing sync.Once
	closed  error // what closing came to

	// Of the committer alone.
	commit   func(*bolt.Tx) error // a test makes it fail
	counters counters
	recorder *recorder // while a backup runs
	written  bool      // since the ledger was opened
}

// Open opens the ledger at path; the caller holds its Lock. It fails with ErrMissing, *DamagedError, *NewerError or
// ErrNetworkFS, and in each case has changed nothing.
func Open(path string, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := prepare(path, o); err != nil {
		return nil, err
	}
	db, who, count, err := openLedger(context.Background(), path)
	if err != nil {
		return nil, err
	}
	s := &Store{
		path: path, o: o, who: who, db: db, file: statOf(path), counters: count,
		queue:   queue{wake: make(chan struct{}, 1)},
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
		commit:  (*bolt.Tx).Commit,
	}
	go s.run()
	return s, nil
}

// statOf is nil where the file can't be looked at; then a commit does not look either.
func statOf(path string) fs.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

// inPlace reports whether path still names the file that is open. What is written into a file without a name is lost with
// the process.
func (s *Store) inPlace() error {
	if s.file == nil {
		return nil
	}
	now, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	if !os.SameFile(now, s.file) {
		return fmt.Errorf("%s: another file has taken the ledger's place", s.path)
	}
	return nil
}

// prepare sees to it that there is a ledger on a file system that keeps its promises.
func prepare(path string, o Options) error {
	dir := filepath.Dir(path)
	if o.Create {
		if err := makeFolder(dir); err != nil {
			return err
		}
	}
	switch _, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist) && !o.Create:
		return fmt.Errorf("%s: %w", path, ErrMissing)
	case errors.Is(err, fs.ErrNotExist):
		if err := refuseNetwork(dir); err != nil {
			return err
		}
		return createLedger(path, o.Now())
	case err != nil:
		return err
	}
	if err := refuseNetwork(path); err != nil {
		return err
	}
	return sweepDrafts(path)
}

// Close carries out what is queued, refuses what comes later with ErrClosed, and closes the file.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.queue.refuse(ErrClosed)
		close(s.stop)
		<-s.stopped
		s.closed = s.shut()
	})
	return s.closed
}

// shut closes the file once the committer has ended and the readers are out.
func (s *Store) shut() error {
	s.mu.Lock()
	db := s.db
	s.db, s.fault = nil, ErrClosed
	s.mu.Unlock()
	if db == nil {
		return nil
	}
	var err error
	if s.written {
		err = guard(s.path, func() error { return sealFreelist(db) })
	}
	return errors.Join(err, db.Close())
}

// InstanceID is a UUID made with the ledger. A backup has that of its original.
func (s *Store) InstanceID() string { return s.who.instance }

// Created is when the ledger was made.
func (s *Store) Created() time.Time { return s.who.created }

// Healthy returns nil, or why writes fail now: ErrClosed, ErrUnavailable, *DamagedError or ErrNoRoom.
func (s *Store) Healthy() error {
	s.mu.RLock()
	fault := s.fault
	s.mu.RUnlock()
	if fault != nil {
		return fault
	}
	return s.room()
}

// room says whether the file system has the room that intake needs.
func (s *Store) room() error {
	if s.o.MinFree <= 0 {
		return nil
	}
	free, err := freeBytes(filepath.Dir(s.path))
	if err != nil {
		return fmt.Errorf("room of %s: %w", s.path, err)
	}
	if free < uint64(s.o.MinFree) {
		return fmt.Errorf("%s: %d bytes free, %d wanted: %w", s.path, free, s.o.MinFree, ErrNoRoom)
	}
	return nil
}

// view runs f in a read transaction. f must be short: it keeps the file from growing.
func (s *Store) view(ctx context.Context, f func(*reader) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return s.fault
	}
	return look(s.path, s.db, f)
}
