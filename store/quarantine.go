package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Quarantined is a message that was authentic and could not be processed (law 5: nothing authentic is thrown away). It
// suppresses nothing. Once released or dropped it stays, without its data, to absorb the same message delivered again.
type Quarantined struct {
	ID         uint64            `json:"id"`
	At         time.Time         `json:"at"`    // first kept
	Times      int               `json:"times"` // how often it came
	Feed       string            `json:"feed"`
	Transport  string            `json:"transport"`
	Origin     string            `json:"origin,omitempty"`
	Reason     string            `json:"reason"`
	EventID    string            `json:"event_id,omitempty"`
	EventName  string            `json:"event_name,omitempty"`
	Receipt    Key               `json:"receipt,omitzero"`
	Headers    map[string]string `json:"headers,omitempty"`
	Data       []byte            `json:"data,omitempty"`
	Unproven   bool              `json:"unproven,omitempty"` // nothing shows that it is authentic
	Dropped    string            `json:"dropped,omitempty"`  // why it was dropped
	DroppedAt  time.Time         `json:"dropped_at,omitzero"`
	ReleasedAt time.Time         `json:"released_at,omitzero"`

	sum []byte // digest of the message, which outlives its data
}

// Open reports whether the entry waits for a decision.
func (q *Quarantined) Open() bool { return q.DroppedAt.IsZero() && q.ReleasedAt.IsZero() }

// Closed says what became of an entry, empty while it is open.
func (q *Quarantined) Closed() string {
	switch {
	case !q.ReleasedAt.IsZero():
		return "released " + q.ReleasedAt.UTC().Format(time.RFC3339)
	case !q.DroppedAt.IsZero():
		return "dropped " + q.DroppedAt.UTC().Format(time.RFC3339) + ": " + q.Dropped
	}
	return ""
}

// Quarantine returns entries with an id above after, oldest first, released and dropped ones included. It may return
// fewer than limit while there are more; none means the end. With a *DamagedError that names a row, the other rows of the
// page are returned too.
func (s *Store) Quarantine(ctx context.Context, after uint64, limit int) ([]Quarantined, error) {
	var entries []Quarantined
	err := s.view(ctx, func(r *reader) error {
		var damaged []error
		size := 0
		c := r.cursor(quarantineBucket)
		for k, v := c.Seek(idKey(after + 1)); k != nil && len(entries) < min(limit, pageRows) && size < pageBytes; k, v = c.Next() {
			size += len(v)
			q, err := decodeQuarantined(v)
			if err != nil {
				damaged = append(damaged, r.rowError(quarantineBucket, idText(k), err))
				continue
			}
			entries = append(entries, *q)
		}
		return errors.Join(damaged...)
	})
	return entries, err
}

// Bounds of a page: what one read transaction decodes at most.
const (
	pageRows  = 256
	pageBytes = 8 << 20
)

func idText(key []byte) string {
	if len(key) != 8 {
		return fmt.Sprintf("%x", key)
	}
	return strconv.FormatUint(binary.BigEndian.Uint64(key), 10)
}

// Quarantined returns one entry, or ErrNotFound.
func (s *Store) Quarantined(ctx context.Context, id uint64) (*Quarantined, error) {
	var q *Quarantined
	err := s.view(ctx, func(r *reader) (err error) {
		q, err = r.quarantined(id)
		return err
	})
	return q, err
}

func (r *reader) quarantined(id uint64) (*Quarantined, error) {
	data := r.get(quarantineBucket, idKey(id))
	if data == nil {
		return nil, fmt.Errorf("quarantine entry %d: %w", id, ErrNotFound)
	}
	q, err := decodeQuarantined(data)
	if err != nil {
		return nil, r.rowError(quarantineBucket, strconv.FormatUint(id, 10), err)
	}
	return q, nil
}

// Release admits what an entry has become, and closes the entry, in one transaction. An entry whose id stands for another
// event is admitted under a key of ours, since it would be a conflict for ever: its receipt is made due. It fails with
// ErrNotFound or ErrNotOpen, and then changes nothing.
func (s *Store) Release(ctx context.Context, id uint64, a Admission) (Outcome, error) {
	return s.release(ctx, id, a, true)
}

// ReleaseUndisputed is Release where no person has decided about the entry: one whose id stands for another event is a
// Conflict, and stays as it is.
func (s *Store) ReleaseUndisputed(ctx context.Context, id uint64, a Admission) (Outcome, error) {
	return s.release(ctx, id, a, false)
}

func (s *Store) release(ctx context.Context, id uint64, a Admission, decided bool) (Outcome, error) {
	if err := a.valid(); err != nil {
		return 0, err
	}
	var outcome Outcome
	err := s.submit(ctx, 1, func(t *txn) error {
		q, err := t.openEntry(id)
		if err != nil {
			return err
		}
		in := newIntake(t, 1)
		if outcome, err = in.release(id, &a, decided); err != nil || outcome == Conflict {
			return err
		}
		in.finish()
		q.ReleasedAt = t.now
		return t.closeEntry(q)
	})
	return outcome, err
}

func (in *intake) release(id uint64, a *Admission, decided bool) (Outcome, error) {
	key := eventKey(a.Feed, a.EventID)
	switch known := in.known(key); {
	case known == nil:
	case known.same(a):
		return Repeated, nil
	case !decided:
		return Conflict, nil
	default:
		key = releasedKey(id)
	}
	w, err := in.row(a.Receipt)
	if err != nil {
		return 0, err
	}
	in.admit(a, key, w)
	if decided {
		w.Contested = false
	}
	return Admitted, nil
}

// Drop closes an entry without admitting it and keeps the reason. It fails with ErrNotFound or ErrNotOpen.
func (s *Store) Drop(ctx context.Context, id uint64, reason string) error {
	return s.submit(ctx, 1, func(t *txn) error {
		q, err := t.openEntry(id)
		if err != nil {
			return err
		}
		q.Dropped, q.DroppedAt = reason, t.now
		return t.closeEntry(q)
	})
}

// openEntry returns an entry that waits for a decision.
func (t *txn) openEntry(id uint64) (*Quarantined, error) {
	q, err := t.quarantined(id)
	if err != nil {
		return nil, err
	}
	if !q.Open() {
		return nil, fmt.Errorf("quarantine entry %d: %w", id, ErrNotOpen)
	}
	return q, nil
}

// closeEntry makes an entry a tombstone.
func (t *txn) closeEntry(q *Quarantined) error {
	q.Data = nil
	t.counters.Quarantined--
	t.put(closedBucket, timedKey(nil, nanos(t.now), idKey(q.ID)), nil)
	return t.putEntry(q)
}

// entry fills what a quarantine entry leaves open from the admission.
func (a *Admission) entry(q Quarantined) *Quarantined {
	fill := func(field *string, from string) {
		if *field == "" {
			*field = from
		}
	}
	fill(&q.Feed, a.Feed)
	fill(&q.Transport, a.Transport)
	fill(&q.Origin, a.Origin)
	fill(&q.EventID, a.EventID)
	fill(&q.EventName, a.EventName)
	if q.Receipt == (Key{}) {
		q.Receipt = a.Receipt
	}
	if q.Headers == nil {
		q.Headers = a.Headers
	}
	if q.Data == nil {
		q.Data = a.Data
	}
	return &q
}

// keep puts an entry into quarantine, or counts it there when it is the same message again: then it is not fresh.
func (t *txn) keep(q *Quarantined) (fresh bool) {
	q.sum = q.digest()
	if id := t.get(digestBucket, q.sum); len(id) == 8 {
		if known, err := t.quarantined(binary.BigEndian.Uint64(id)); err == nil {
			known.Times++
			t.fail(t.putEntry(known))
			return false
		}
	}
	t.counters.Entries++
	t.counters.Quarantined++
	q.ID, q.At, q.Times = t.counters.Entries, t.now, 1
	t.put(digestBucket, q.sum, idKey(q.ID))
	t.fail(t.putEntry(q))
	return true
}

func (t *txn) putEntry(q *Quarantined) error {
	data, err := encodeJSON(entryRow{q, q.sum})
	if err != nil {
		return err
	}
	t.put(quarantineBucket, idKey(q.ID), data)
	return nil
}

// digest tells one message from another, however often it is delivered and by whatever transport. A forgery may have the
// body of the genuine message: it must not absorb that.
func (q *Quarantined) digest() []byte {
	parts := []string{q.Feed, q.EventID, q.EventName, string(q.Receipt.Kind), q.Receipt.ID}
	if q.Unproven {
		for _, name := range slices.Sorted(maps.Keys(q.Headers)) {
			parts = append(parts, name, q.Headers[name])
		}
	}
	h := sha256.New()
	for _, part := range parts {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write([]byte(part))
	}
	h.Write(q.Data)
	return h.Sum(nil)
}
