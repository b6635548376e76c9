package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Facts that the store itself keeps; their values are times in RFC 3339.
const (
	BackupAt     = "backup_at"     // in a backup: the moment that it shows
	RestoredAt   = "restored_at"   // in a restored ledger: when that was done
	RestoredFrom = "restored_from" // in a restored ledger: the moment that its backup shows
)

// Backup writes a copy of the ledger to file, which must not exist (ErrExists), and which appears under that name only
// complete and on disk. The copy shows one moment, close to the end of the call. One backup runs at a time (ErrBusy).
//
// Writers go on meanwhile: the ledger is copied in pages, each in a short read transaction of its own (law 9: no reader
// holds a transaction longer than a page of rows), while the committer notes what changes; what changed is copied again,
// and the last few rows between two commits.
func (s *Store) Backup(ctx context.Context, file string) error {
	if err := absent(file); err != nil {
		return err
	}
	if err := s.backup(ctx, file); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

func (s *Store) backup(ctx context.Context, file string) error {
	changed := &recorder{rows: map[change]bool{}}
	err := s.between(ctx, func() error {
		if s.recorder != nil {
			return ErrBusy
		}
		s.recorder = changed
		return nil
	})
	if err != nil {
		return err
	}
	// Also after ctx has ended, or else the committer would note changes for nobody. A closed store notes none.
	defer func() { _ = s.between(context.WithoutCancel(ctx), func() error { s.recorder = nil; return nil }) }()

	draft, err := newDraft(file)
	if err != nil {
		return err
	}
	defer draft.discard()
	if err := s.copyLive(ctx, changed, draft); err != nil {
		return err
	}
	if err := draft.seal(); err != nil {
		return err
	}
	if err := absent(file); err != nil {
		return err
	}
	return draft.install(file)
}

func absent(file string) error {
	switch _, err := os.Lstat(file); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s: %w", file, ErrExists)
}

const (
	backupRounds = 8   // of copying again what changed, while writers keep changing more than
	fewChanges   = 256 // rows, which then are copied between two commits
)

func (s *Store) copyLive(ctx context.Context, changed *recorder, to *draft) error {
	if err := copyAll(ctx, s.view, to); err != nil {
		return err
	}
	for range backupRounds {
		if changed.size() <= fewChanges {
			break
		}
		if err := copyChanges(ctx, s.view, changed.take(), to); err != nil {
			return err
		}
	}
	return s.between(ctx, func() error {
		at := s.o.Now()
		if err := copyChanges(ctx, s.view, changed.take(), to); err != nil {
			return err
		}
		return to.write(func(t *txn) error {
			t.put(factBucket, []byte(BackupAt), timeText(at))
			return nil
		})
	})
}

func timeText(t time.Time) []byte { return []byte(t.UTC().Format(time.RFC3339Nano)) }
