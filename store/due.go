package store

import (
	"context"
	"encoding/binary"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Due is a receipt that is to be worked on.
type Due struct {
	Key
	At     time.Time
	Urgent bool // asked for by a person
}

// Due returns up to limit receipts whose due time has come, urgent ones first and then the oldest first, leaving out those
// for which skip, which may be nil and must not call the store, returns true. next is when the first of the others will be
// due, at most MaxWait after now; zero when there is none. No receipt is read for this.
//
// A due time that lies further away than MaxWait on the store's own clock was written while that clock was wrong. Such
// receipts are made due at once: they would be stranded otherwise (law 8).
func (s *Store) Due(ctx context.Context, now time.Time, limit int, skip func(Key) bool) ([]Due, time.Time, error) {
	var due []Due
	var next time.Time
	var stranded []Key
	err := s.view(ctx, func(r *reader) error {
		var err error
		if stranded, err = r.stranded(s.o.Now().Add(MaxWait)); err != nil || len(stranded) > 0 {
			return err
		}
		due, next, err = r.due(now, limit, skip)
		return err
	})
	if err != nil || len(stranded) == 0 {
		return due, next, err
	}
	if err := s.rescue(ctx, stranded); err != nil {
		return nil, time.Time{}, err
	}
	err = s.view(ctx, func(r *reader) (err error) {
		due, next, err = r.due(now, limit, skip)
		return err
	})
	return due, next, err
}

// mostSkipped bounds what one call looks at besides what it returns.
const mostSkipped = 4096

func (r *reader) due(now time.Time, limit int, skip func(Key) bool) (due []Due, next time.Time, err error) {
	c := r.cursor(dueBucket)
	skipped := 0
	for _, lane := range [...]byte{urgentFirst, inTurn} {
		k, _ := c.Seek([]byte{lane})
		for ; inLane(k, lane, nanos(now)) && len(due) < limit && skipped < mostSkipped; k, _ = c.Next() {
			d, err := r.parseDue(k)
			if err != nil {
				return nil, next, err
			}
			if skip != nil && skip(d.Key) {
				skipped++
				continue
			}
			due = append(due, d)
		}
		k, _ = c.Seek(timedKey([]byte{lane}, nanos(now)+1, nil))
		if !inLane(k, lane, ^uint64(0)) {
			continue
		}
		d, err := r.parseDue(k)
		if err != nil {
			return nil, next, err
		}
		if next.IsZero() || d.At.Before(next) {
			next = d.At
		}
	}
	if latest := now.Add(MaxWait); next.After(latest) {
		next = latest
	}
	return due, next, nil
}

// inLane reports whether an index key belongs to the lane and is not after a time.
func inLane(k []byte, lane byte, until uint64) bool {
	return len(k) >= 9 && k[0] == lane && binary.BigEndian.Uint64(k[1:]) <= until
}

func (r *reader) parseDue(k []byte) (Due, error) {
	at, rest, err := splitTimed(k, 1)
	if err == nil {
		var key Key
		if key, err = parseReceiptKey(rest); err == nil {
			return Due{Key: key, At: timeOf(at), Urgent: k[0] == urgentFirst}, nil
		}
	}
	return Due{}, r.rowError(dueBucket, "", err)
}

// stranded returns some receipts whose due time is after latest.
func (r *reader) stranded(latest time.Time) ([]Key, error) {
	var keys []Key
	c := r.cursor(dueBucket)
	for _, lane := range [...]byte{urgentFirst, inTurn} {
		for k := lastOf(c, []byte{lane}); inLane(k, lane, ^uint64(0)) && len(keys) < pageRows; k, _ = c.Prev() {
			d, err := r.parseDue(k)
			if err != nil {
				return nil, err
			}
			if !d.At.After(latest) {
				break
			}
			keys = append(keys, d.Key)
		}
	}
	return keys, nil
}

// lastOf moves a cursor to the last key that begins with prefix, or to the one before where none does.
func lastOf(c *bolt.Cursor, prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	end[len(end)-1]++
	if k, _ := c.Seek(end); k == nil {
		k, _ = c.Last()
		return k
	}
	k, _ := c.Prev()
	return k
}

func (s *Store) rescue(ctx context.Context, keys []Key) error {
	now := s.o.Now()
	s.o.Log.Warn("ledger: due times lie in the far future: the clock was wrong when they were written", "receipts", len(keys))
	return s.Change(ctx, keys, func(r *Receipt, fresh bool) bool {
		if fresh || !r.Due.After(now.Add(MaxWait)) {
			return false
		}
		r.Due = now
		r.Note(now, "due at once: its due time was written by a clock that was wrong")
		return true
	})
}
