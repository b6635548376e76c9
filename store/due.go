package store

import (
	"context"
	"encoding/binary"
	"errors"
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
		if stranded = r.stranded(s.o.Now().Add(MaxWait)); len(stranded) == 0 {
			due, next = r.due(now, limit, skip)
		}
		return nil
	})
	if err != nil || len(stranded) == 0 {
		return due, next, err
	}
	var damaged *DamagedError // of a receipt that can't be read, which is not to strand the others
	if err := s.rescue(ctx, stranded); err != nil && !errors.As(err, &damaged) {
		return nil, time.Time{}, err
	}
	err = s.view(ctx, func(r *reader) error {
		due, next = r.due(now, limit, skip)
		return nil
	})
	return due, next, err
}

// mostSkipped bounds what one call looks at besides what it returns.
const mostSkipped = 4096

func (r *reader) due(now time.Time, limit int, skip func(Key) bool) (due []Due, next time.Time) {
	c := r.cursor(dueBucket)
	skipped := 0
	for _, lane := range [...]byte{urgentFirst, inTurn} {
		k, _ := c.Seek([]byte{lane})
		for ; inLane(k, lane, nanos(now)) && len(due) < limit && skipped < mostSkipped; k, _ = c.Next() {
			d, ok := parseDue(k)
			if !ok || skip != nil && skip(d.Key) {
				skipped++
				continue
			}
			due = append(due, d)
		}
		k, _ = c.Seek(timedKey([]byte{lane}, nanos(now)+1, nil))
		if !inLane(k, lane, ^uint64(0)) {
			continue
		}
		if at, _, err := splitTimed(k, 1); err == nil && (next.IsZero() || timeOf(at).Before(next)) {
			next = timeOf(at)
		}
	}
	if latest := now.Add(MaxWait); next.After(latest) {
		next = latest
	}
	return due, next
}

// inLane reports whether an index key belongs to the lane and is not after a time.
func inLane(k []byte, lane byte, until uint64) bool {
	return len(k) >= 9 && k[0] == lane && binary.BigEndian.Uint64(k[1:]) <= until
}

// parseDue reads an index key. One that is spoiled is passed over, for Check to report: work must go on.
func parseDue(k []byte) (Due, bool) {
	at, rest, err := splitTimed(k, 1)
	if err != nil {
		return Due{}, false
	}
	key, err := parseReceiptKey(rest)
	return Due{Key: key, At: timeOf(at), Urgent: k[0] == urgentFirst}, err == nil
}

// stranded returns some receipts whose due time is after latest.
func (r *reader) stranded(latest time.Time) []Key {
	var keys []Key
	c := r.cursor(dueBucket)
	for _, lane := range [...]byte{urgentFirst, inTurn} {
		for k := lastOf(c, []byte{lane}); inLane(k, lane, ^uint64(0)) && len(keys) < pageRows; k, _ = c.Prev() {
			d, ok := parseDue(k)
			if !ok {
				continue
			}
			if !d.At.After(latest) {
				break
			}
			keys = append(keys, d.Key)
		}
	}
	return keys
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
