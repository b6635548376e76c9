package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Restore puts a backup in the place of the ledger at path and returns the moment that the backup shows. The caller holds
// the Lock of path. The backup is copied beside path and the copy is checked in full; only then does it take the place, in
// one step. What was there is kept as <path>.before-restore, with a number behind it when that name is taken. The facts RestoredAt
// and RestoredFrom tell what was done.
//
// A copy of a ledger that no store had open serves as a backup too; it shows the moment at which the file last changed.
func Restore(ctx context.Context, backup, path string) (when time.Time, err error) {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return when, err
	}
	info, err := os.Stat(backup)
	if err != nil {
		return when, fmt.Errorf("restore: %w", err)
	}
	name, err := copyFile(ctx, backup, path)
	if err != nil {
		return when, fmt.Errorf("restore: %w", err)
	}
	d := &draft{name: name}
	defer d.discard()
	if when, err = d.checked(ctx, backup, info.ModTime()); err != nil {
		return when, err
	}
	if d.db, err = openBolt(name, false); err != nil {
		return when, fmt.Errorf("restore: %w", err)
	}
	err = d.write(func(t *txn) error {
		t.put(factBucket, []byte(RestoredAt), timeText(time.Now()))
		t.put(factBucket, []byte(RestoredFrom), timeText(when))
		t.del(factBucket, []byte(BackupAt))
		return nil
	})
	if err == nil {
		err = d.seal()
	}
	if err != nil {
		return when, fmt.Errorf("restore: %w", err)
	}
	if err := keepOld(path); err != nil {
		return when, fmt.Errorf("restore: %w", err)
	}
	return when, d.install(path)
}

// checked checks the copy of a backup and reads its moment. What is wrong is said of the backup, not of the copy.
func (d *draft) checked(ctx context.Context, backup string, changed time.Time) (when time.Time, err error) {
	err = inspect(ctx, d.name, func(r *reader) error {
		when = changed
		if text := r.get(factBucket, []byte(BackupAt)); text != nil {
			when, err = time.Parse(time.RFC3339Nano, string(text))
		}
		return err
	})
	var damaged *DamagedError
	var newer *NewerError
	switch {
	case errors.As(err, &damaged):
		damaged.Path = backup
	case errors.As(err, &newer):
		newer.Path = backup
	}
	return when, err
}

// copyFile copies a file to a new one in the folder of target and returns its name. The copy is synced with the rest, when
// it is sealed.
func copyFile(ctx context.Context, from, target string) (name string, err error) {
	src, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer src.Close()
	if name, err = draftName(target); err != nil {
		return "", err
	}
	dst, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err == nil {
		_, err = io.Copy(dst, &stoppable{ctx, src})
		err = errors.Join(err, dst.Close())
	}
	if err != nil {
		_ = os.Remove(name)
	}
	return name, err
}

// stoppable reads until a context ends.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s *stoppable) Read(b []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(b)
}

// freeName adds a number to a name that is taken: what an earlier restore kept may be the only copy of something.
func freeName(name string) (string, error) {
	for n, free := 2, name; ; n++ {
		_, err := os.Lstat(free)
		if errors.Is(err, fs.ErrNotExist) {
			return free, nil
		}
		if err != nil {
			return "", err
		}
		free = fmt.Sprintf("%s-%d", name, n)
	}
}

// keepOld gives the present ledger a second name, so that at every instant there is one under its own.
func keepOld(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	old, err := freeName(path + ".before-restore")
	if err != nil {
		return err
	}
	if err = os.Link(path, old); err == nil {
		return nil
	}
	// A file system without hard links: for a moment there is no ledger under its own name, and never a wrong one.
	return os.Rename(path, old)
}
