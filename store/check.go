package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
)

// Check reads a closed ledger in full: its structure, every row, and whether indexes and counters agree with the rows. The
// caller holds the Lock. It fails with *DamagedError, *NewerError or ErrMissing, and changes nothing.
func Check(ctx context.Context, path string) error {
	return inspect(ctx, path, func(*reader) error { return nil })
}

// inspect checks a closed ledger and, if it is good, runs f on it.
func inspect(ctx context.Context, path string, f func(*reader) error) error {
	if err := survey(ctx, path); err != nil {
		return missing(path, err)
	}
	db, err := openBolt(path, true)
	if err != nil {
		return err
	}
	defer db.Close()
	return look(path, db, func(r *reader) error {
		_, count, err := r.introduce(path)
		if err != nil {
			return err
		}
		a := audit{reader: r, ctx: ctx}
		if err := a.run(count); err != nil {
			return err
		}
		return f(r)
	})
}

func missing(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, ErrMissing)
	}
	return err
}

// audit compares the rows with what speaks of them. Every row has its index entries, and there are as many entries as
// rows: so no entry is without its row.
type audit struct {
	*reader
	ctx     context.Context
	found   counters
	intents int64
	closed  int64
}

func (a *audit) run(kept counters) error {
	for _, step := range []func() error{a.receipts, a.events, a.entries} {
		if err := step(); err != nil {
			return err
		}
	}
	a.found.Entries, a.found.Commits = max(a.found.Entries, kept.Entries), kept.Commits
	if a.found != kept {
		return &DamagedError{Path: a.path, Err: fmt.Errorf("the counters say %s, the rows %s", kept.encode(), a.found.encode())}
	}
	var states int64
	for _, byState := range a.found.Receipts {
		for _, n := range byState {
			states += n
		}
	}
	entries := a.found.Quarantined + a.closed
	for id, want := range map[bucketID]int64{
		dueBucket: a.found.Due, stateBucket: states, intentBucket: a.intents, shelfBucket: a.found.Events,
		digestBucket: entries, closedBucket: a.closed,
	} {
		if err := a.size(id, want); err != nil {
			return err
		}
	}
	return nil
}

// each runs f on every row of a bucket; its error is the damage of that row.
func (a *audit) each(id bucketID, f func(k, v []byte) error) error {
	c := a.cursor(id)
	n := 0
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if n++; n%1024 == 0 && a.ctx.Err() != nil {
			return a.ctx.Err()
		}
		if err := f(k, v); err != nil {
			return a.rowError(id, fmt.Sprintf("%q", k), err)
		}
	}
	return nil
}

func (a *audit) size(id bucketID, want int64) error {
	var have int64
	err := a.each(id, func(_, _ []byte) error { have++; return nil })
	if err == nil && have != want {
		err = &DamagedError{Path: a.path, Err: fmt.Errorf("bucket %q has %d rows instead of %d", bucketNames[id], have, want)}
	}
	return err
}

// entry reports an index entry that is missing.
func (a *audit) entry(id bucketID, key []byte) error {
	if a.get(id, key) == nil {
		return fmt.Errorf("it is missing from bucket %q", bucketNames[id])
	}
	return nil
}

func (a *audit) receipts() error {
	return a.each(receiptBucket, func(k, v []byte) error {
		r, err := decodeReceipt(v)
		if err != nil {
			return err
		}
		if !bytes.Equal(k, receiptKey(r.Key())) {
			return errors.New("it holds another receipt")
		}
		a.found.receipts(r.Kind, r.State, 1)
		err = a.entry(stateBucket, stateKey(r.State, r.Updated, k))
		if err == nil && !r.Due.IsZero() {
			a.found.Due++
			err = a.entry(dueBucket, dueKey(r.Urgent, r.Due, k))
		}
		if err == nil && r.Intent != nil {
			a.intents++
			err = a.entry(intentBucket, k)
		}
		return err
	})
}

func (a *audit) events() error {
	return a.each(eventBucket, func(k, v []byte) error {
		record, err := decodeEvent(v)
		if err != nil {
			return err
		}
		a.found.Events++
		return a.entry(shelfBucket, timedKey(nil, record.shelf, k))
	})
}

func (a *audit) entries() error {
	return a.each(quarantineBucket, func(k, v []byte) error {
		q, err := decodeQuarantined(v)
		if err != nil {
			return err
		}
		if !bytes.Equal(k, idKey(q.ID)) || !bytes.Equal(a.get(digestBucket, q.sum), k) {
			return errors.New("it is not what its digest leads to")
		}
		a.found.Entries = binary.BigEndian.Uint64(k)
		if q.Open() {
			a.found.Quarantined++
			return nil
		}
		a.closed++
		closed := q.ReleasedAt
		if !q.DroppedAt.IsZero() {
			closed = q.DroppedAt
		}
		return a.entry(closedBucket, timedKey(nil, nanos(closed), k))
	})
}
