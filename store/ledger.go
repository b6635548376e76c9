package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/google/uuid"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// identity is what a ledger says about itself.
type identity struct {
	instance string
	created  time.Time
}

// openLedger opens an existing file for writing, after a survey of it, and writes nothing.
func openLedger(ctx context.Context, path string) (*bolt.DB, identity, counters, error) {
	if err := survey(ctx, path); err != nil {
		return nil, identity{}, counters{}, err
	}
	db, err := openBolt(path, false)
	if err != nil {
		return nil, identity{}, counters{}, err
	}
	var who identity
	var count counters
	err = look(path, db, func(r *reader) (err error) {
		who, count, err = r.introduce(path)
		return err
	})
	if err != nil {
		_ = db.Close()
		return nil, identity{}, counters{}, err
	}
	return db, who, count, nil
}

// introduce reads what every use of a ledger begins with, and refuses a format that is not known here.
func (r *reader) introduce(path string) (who identity, count counters, err error) {
	damaged := func(err error) error { return &DamagedError{Path: path, Err: err} }
	meta := r.tx.Bucket([]byte(bucketNames[metaBucket]))
	if meta == nil {
		return who, count, damaged(errors.New("not a ledger of recibo"))
	}
	have, err := strconv.Atoi(string(meta.Get([]byte(formatName))))
	if err != nil {
		return who, count, damaged(fmt.Errorf("format: %w", err))
	}
	if have > format {
		return who, count, &NewerError{Path: path, Have: have, Know: format}
	}
	for id := range bucketCount {
		r.bucket(id)
	}
	who.instance = string(meta.Get([]byte(instanceName)))
	if who.created, err = time.Parse(time.RFC3339Nano, string(meta.Get([]byte(createdName)))); err != nil {
		return who, count, damaged(fmt.Errorf("time of creation: %w", err))
	}
	if count, err = decodeCounters(meta.Get([]byte(countersName))); err != nil {
		return who, count, damaged(fmt.Errorf("counters: %w", err))
	}
	return who, count, nil
}

// createLedger makes an empty ledger under another name and moves it into place, so that a crash leaves none rather than
// the beginning of one.
func createLedger(path string, now time.Time) error {
	draft, err := newDraft(path)
	if err != nil {
		return err
	}
	defer draft.discard()
	err = draft.write(func(t *txn) error {
		t.put(metaBucket, []byte(formatName), []byte(strconv.Itoa(format)))
		t.put(metaBucket, []byte(instanceName), []byte(uuid.NewString()))
		t.put(metaBucket, []byte(createdName), []byte(now.UTC().Format(time.RFC3339Nano)))
		t.put(metaBucket, []byte(countersName), (&counters{}).encode())
		return nil
	})
	if err != nil {
		return err
	}
	if err := draft.seal(); err != nil {
		return err
	}
	return draft.install(path)
}

// openBolt opens path with the settings that the ledger is built on. It never waits long for the file, and does not write.
func openBolt(path string, readOnly bool) (db *bolt.DB, err error) {
	err = guard(path, func() (err error) {
		db, err = bolt.Open(path, 0o600, &bolt.Options{
			Timeout:         time.Second, // a second opener fails instead of hanging
			NoFreelistSync:  true,        // less to write per commit; seal writes it once, for a fast start
			FreelistType:    bolt.FreelistMapType,
			InitialMmapSize: mapSize(), // address space only: growth within it never waits for a reader
			ReadOnly:        readOnly,
			NoStatistics:    true,
		})
		return err
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, &OwnedError{Lock: path} // somebody has it open without holding the lock
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return db, nil
}

func mapSize() int {
	if math.MaxInt > math.MaxInt32 {
		return 1 << 30
	}
	return 64 << 20
}

// sealFreelist writes the list of free pages, so that the next open need not look for them.
func sealFreelist(db *bolt.DB) error {
	db.NoFreelistSync = false
	tx, err := db.Begin(true)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// guard turns what bbolt does on a damaged file into an error: it panics, or it faults where the memory map has no file
// behind it, which only a goroutine that asked for it can recover from.
func guard(path string, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damageOf(path, p)
		}
	}()
	return f()
}

func damageOf(path string, p any) error {
	if damaged, ok := p.(*DamagedError); ok {
		damaged.Path = path
		return damaged
	}
	return &DamagedError{Path: path, Err: fmt.Errorf("reading it failed: %v", p)}
}

// look runs f in a read transaction of db.
func look(path string, db *bolt.DB, f func(*reader) error) error {
	return guard(path, func() error {
		tx, err := db.Begin(false)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		return f(&reader{tx: tx, path: path})
	})
}

// makeFolder makes a folder that only its owner enters, and sees to it that its name is on disk.
func makeFolder(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(dir))
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
