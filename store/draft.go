package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// draft is a ledger under construction beside the name that it will get: a new one, a backup, a restored or a compacted
// one. It is synced once, when it is complete, and then takes its name in one step.
type draft struct {
	name string
	db   *bolt.DB // nil once sealed
}

// newDraft makes an empty ledger in the folder of target.
func newDraft(target string) (*draft, error) {
	name, err := draftName(target)
	if err != nil {
		return nil, err
	}
	// bbolt initialises an empty file.
	db, err := openBolt(name, false)
	if err != nil {
		_ = os.Remove(name)
		return nil, err
	}
	db.NoSync = true
	d := &draft{name: name, db: db}
	err = guard(name, func() error {
		return db.Update(func(tx *bolt.Tx) error {
			for id := range bucketCount {
				if _, err := tx.CreateBucket([]byte(bucketNames[id])); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		d.discard()
		return nil, err
	}
	return d, nil
}

// draftName makes an empty file, readable by its owner only, in the folder of target.
func draftName(target string) (string, error) {
	if err := sweepDrafts(target); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(target), draftPrefix(target)+"*")
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

func draftPrefix(target string) string { return "." + filepath.Base(target) + ".draft-" }

// sweepDrafts removes what a crash left behind. At most one draft of a target is under construction: the Lock sees to that
// for a ledger, and the store for its backup.
func sweepDrafts(target string) error {
	entries, err := os.ReadDir(filepath.Dir(target))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), draftPrefix(target)) {
			if err := os.Remove(filepath.Join(filepath.Dir(target), e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// write changes the draft in one transaction.
func (d *draft) write(f func(*txn) error) error {
	return guard(d.name, func() error {
		return d.db.Update(func(tx *bolt.Tx) error {
			t := &txn{reader: reader{tx: tx, path: d.name, packed: true}}
			if err := f(t); err != nil {
				return err
			}
			return t.err
		})
	})
}

// seal closes the draft and puts it on disk, without the room that bbolt makes ahead.
func (d *draft) seal() error {
	err := guard(d.name, func() error { return sealFreelist(d.db) })
	err = errors.Join(err, d.db.Close())
	d.db = nil
	if err != nil {
		return err
	}
	file, err := os.OpenFile(d.name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	meta, err := readMeta(file, info.Size())
	if err != nil {
		return err
	}
	if err := file.Truncate(int64(meta.pages * meta.pageSize)); err != nil {
		return err
	}
	return file.Sync()
}

// install gives the sealed draft its name. A file of that name is replaced.
func (d *draft) install(path string) error {
	if err := os.Rename(d.name, path); err != nil {
		return fmt.Errorf("put the ledger in place: %w", err)
	}
	return syncFolder(filepath.Dir(path))
}

// discard removes what is left of the draft; after install there is nothing.
func (d *draft) discard() {
	if d.db != nil {
		_ = d.db.Close()
		d.db = nil
	}
	_ = os.Remove(d.name)
}
