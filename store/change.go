package store

import (
	"context"
	"errors"
	"fmt"
)

// Change runs f once on each of the receipts, within the committer and in one transaction for all keys, of which there are
// a few hundred at most. fresh tells that the receipt did not exist: then it has Kind, ID and Created only, and f must give
// it a state. f returns whether to write; what it did to a receipt it does not want written is forgotten. Updated, the
// indexes and the counters follow by themselves; a Due further away than MaxWait is brought forward to that.
//
// f holds up every writer: it must be quick and must not call the store. A panic in f ends Change with that panic and
// writes nothing. A receipt that f left invalid fails the whole call with ErrInvalid and writes nothing. A receipt that
// can't be read does not stop the others: they are changed, and a *DamagedError names it.
func (s *Store) Change(ctx context.Context, keys []Key, f func(r *Receipt, fresh bool) bool) error {
	keys, err := distinct(keys)
	if err != nil || len(keys) == 0 {
		return err
	}
	var damaged []error
	err = s.submit(ctx, len(keys), func(t *txn) error {
		rows := make([]*row, 0, len(keys))
		for _, k := range keys {
			w, err := t.load(k)
			if err != nil {
				damaged = append(damaged, err)
				continue
			}
			write, err := call(f, w)
			if err != nil {
				return err
			}
			if !write {
				continue
			}
			if err := t.stage(w); err != nil {
				return err
			}
			rows = append(rows, w)
		}
		for _, w := range rows {
			t.save(w)
		}
		return nil
	})
	if p := (*panicked)(nil); errors.As(err, &p) {
		panic(p.value)
	}
	if err != nil {
		return err
	}
	return errors.Join(damaged...)
}

// call runs f on a receipt. The panic of a caller's function must not look like damage, nor reach the committer.
func call(f func(*Receipt, bool) bool, w *row) (write bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p}
		}
	}()
	key := w.Key()
	write = f(w.Receipt, !w.before.exists)
	if write && w.Key() != key {
		return false, fmt.Errorf("%s: %w change of its key to %s", key, ErrInvalid, w.Key())
	}
	return write, nil
}

// panicked carries a caller's panic back to the caller's goroutine.
type panicked struct{ value any }

func (p *panicked) Error() string { return fmt.Sprintf("panic in a change: %v", p.value) }

func distinct(keys []Key) ([]Key, error) {
	seen := make(map[Key]bool, len(keys))
	list := make([]Key, 0, len(keys))
	for _, k := range keys {
		if err := k.valid(); err != nil {
			return nil, err
		}
		if !seen[k] {
			seen[k] = true
			list = append(list, k)
		}
	}
	return list, nil
}

// SetFact keeps a value under a name; nil removes it.
func (s *Store) SetFact(ctx context.Context, name string, value []byte) error {
	if name == "" || len(name) > maxID {
		return fmt.Errorf("%w name of a fact (%d bytes)", ErrInvalid, len(name))
	}
	return s.submit(ctx, 1, func(t *txn) error {
		if value == nil {
			t.del(factBucket, []byte(name))
		} else {
			t.put(factBucket, []byte(name), value)
		}
		return nil
	})
}
