package store

import (
	"bytes"
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

// Mark is where a look at what is due ended: the next one may go on from there. The zero Mark is the beginning.
type Mark struct {
	At  time.Time // a due time
	key []byte    // the row at that time which was looked at last; nil: none of them
}

// DueLook is what one look has shown.
type DueLook struct {
	Due  []Due
	End  Mark
	More bool      // the look was cut short at End
	Next time.Time // when the first of those not yet due will be, at most MaxWait from now; zero when there is none
}

// Due returns up to limit receipts whose due time has come, urgent ones first and then the oldest first, leaving out those
// for which skip, which may be nil and must not call the store, returns true. Those that are not urgent are looked at from a
// mark on. No receipt is read for this, and one look passes over a bounded number of rows.
//
// A due time that lies further away than MaxWait on the store's own clock was written while that clock was wrong. Such
// receipts are made due at once: they would be stranded otherwise (law 8: every wait has a bound).
func (s *Store) Due(ctx context.Context, now time.Time, from Mark, limit int, skip func(Key) bool) (DueLook, error) {
	var look DueLook
	var stranded []Key
	err := s.view(ctx, func(r *reader) error {
		if stranded = r.stranded(s.o.Now().Add(MaxWait)); len(stranded) == 0 {
			look = r.due(now, from, limit, skip)
		}
		return nil
	})
	if err != nil || len(stranded) == 0 {
		return look, err
	}
	var damaged *DamagedError // of a receipt that can't be read, which is not to strand the others
	if err := s.rescue(ctx, stranded); err != nil && !errors.As(err, &damaged) {
		return look, err
	}
	err = s.view(ctx, func(r *reader) error {
		look = r.due(now, from, limit, skip)
		return nil
	})
	return look, err
}

// mostSkipped bounds what one look passes over besides what it returns.
const mostSkipped = 4096

func (r *reader) due(now time.Time, from Mark, limit int, skip func(Key) bool) (look DueLook) {
	c := r.cursor(dueBucket)
	look.End = from
	for _, lane := range [...]byte{urgentFirst, inTurn} {
		begin, passed := []byte{lane}, 0
		if lane == inTurn && !from.At.IsZero() {
			begin = timedKey(begin, nanos(from.At), nil)
			if from.key != nil {
				begin = from.key
			}
		}
		k, _ := c.Seek(begin)
		if lane == inTurn && from.key != nil && bytes.Equal(k, from.key) {
			k, _ = c.Next()
		}
		for ; inLane(k, lane, nanos(now)); k, _ = c.Next() {
			if len(look.Due) == limit || passed == mostSkipped {
				look.More = len(look.Due) == limit || lane == inTurn // urgent ones that are in work already come first again
				break
			}
			d, ok := parseDue(k)
			if lane == inTurn && ok {
				look.End = Mark{At: d.At, key: bytes.Clone(k)}
			}
			if !ok || skip != nil && skip(d.Key) {
				passed++
				continue
			}
			look.Due = append(look.Due, d)
		}
		k, _ = c.Seek(timedKey([]byte{lane}, nanos(now)+1, nil))
		if !inLane(k, lane, ^uint64(0)) {
			continue
		}
		if at, _, err := splitTimed(k, 1); err == nil && (look.Next.IsZero() || timeOf(at).Before(look.Next)) {
			look.Next = timeOf(at)
		}
	}
	if latest := now.Add(MaxWait); look.Next.After(latest) {
		look.Next = latest
	}
	return look
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
