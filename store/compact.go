package store

import (
	"context"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"
)

// Compact writes a closed ledger anew without the room that removed rows left behind, and returns its size in bytes before
// and after. The caller holds the Lock. The ledger at path is the old or the new one at every instant.
func Compact(ctx context.Context, path string) (before, after int64, err error) {
	if before, err = fileSize(path); err != nil {
		return 0, 0, err
	}
	db, _, _, err := openLedger(ctx, path)
	if err != nil {
		return before, before, err
	}
	defer db.Close()
	d, err := newDraft(path)
	if err != nil {
		return before, before, fmt.Errorf("compact: %w", err)
	}
	defer d.discard()
	if err := copyAll(ctx, viewOf(path, db), d); err != nil {
		return before, before, fmt.Errorf("compact: %w", err)
	}
	if err := d.seal(); err != nil {
		return before, before, fmt.Errorf("compact: %w", err)
	}
	if err := d.install(path); err != nil {
		return before, before, err
	}
	after, err = fileSize(path)
	return before, after, err
}

// viewOf reads from a file that is not a Store's.
func viewOf(path string, db *bolt.DB) viewer {
	return func(ctx context.Context, f func(*reader) error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return look(path, db, f)
	}
}

func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, missing(path, err)
	}
	return info.Size(), nil
}
