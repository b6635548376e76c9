package store

import (
	"bytes"
	"context"
	"fmt"
	"os"
)

// Get returns one receipt, ErrNotFound, or a *DamagedError that names it.
func (s *Store) Get(ctx context.Context, k Key) (*Receipt, error) {
	var receipt *Receipt
	err := s.view(ctx, func(r *reader) (err error) {
		receipt, err = r.receipt(k)
		return err
	})
	return receipt, err
}

// Resolve returns the receipts of either kind whose id starts with prefix, at most 3. An id that is exactly prefix wins
// over longer ones.
func (s *Store) Resolve(ctx context.Context, prefix string) ([]Key, error) {
	var exact, longer []Key
	err := s.view(ctx, func(r *reader) error {
		c := r.cursor(receiptBucket)
		for _, kind := range [...]Kind{Report, Job} {
			start := receiptKey(Key{kind, prefix})
			for k, _ := c.Seek(start); bytes.HasPrefix(k, start) && len(longer) < mostResolved; k, _ = c.Next() {
				key, err := parseReceiptKey(k)
				switch {
				case err != nil:
					return r.rowError(receiptBucket, fmt.Sprintf("%x", k), err)
				case key.ID == prefix:
					exact = append(exact, key)
				default:
					longer = append(longer, key)
				}
			}
		}
		return nil
	})
	if len(exact) > 0 {
		return exact, err
	}
	return longer, err
}

// mostResolved is enough to say that a prefix is ambiguous.
const mostResolved = 3

// Intents returns receipts with a publication that was announced and not settled, in the order of their keys and starting
// after a key; the zero Key starts at the beginning. It may return fewer than limit while there are more; none means the
// end. With a *DamagedError that names a row, the other rows of the page are returned too.
func (s *Store) Intents(ctx context.Context, after Key, limit int) ([]*Receipt, error) {
	var rows []*Receipt
	err := s.view(ctx, func(r *reader) error {
		p := newPage(r, limit)
		c := r.cursor(intentBucket)
		var start []byte
		if after != (Key{}) {
			start = append(receiptKey(after), 0) // the least key above
		}
		for k, _ := c.Seek(start); k != nil && p.room(); k, _ = c.Next() {
			p.add(k)
		}
		rows = p.rows
		return p.damage()
	})
	return rows, err
}

// Event returns what is on record about an event, or ErrNotFound.
func (s *Store) Event(ctx context.Context, feed, id string) (*EventRecord, error) {
	var record *EventRecord
	err := s.view(ctx, func(r *reader) (err error) {
		data := r.get(eventBucket, eventKey(feed, id))
		if data == nil {
			return fmt.Errorf("event %s of %s: %w", shorten(id), feed, ErrNotFound)
		}
		if record, err = decodeEvent(data); err != nil {
			return r.rowError(eventBucket, feed+" "+id, err)
		}
		return nil
	})
	return record, err
}

// Fact returns the value kept under a name, nil when there is none.
func (s *Store) Fact(ctx context.Context, name string) ([]byte, error) {
	var value []byte
	err := s.view(ctx, func(r *reader) error {
		value = bytes.Clone(r.get(factBucket, []byte(name)))
		return nil
	})
	return value, err
}

// Stats are numbers about the ledger. They are read from counters, not counted.
type Stats struct {
	Receipts    map[Kind]map[State]int64 `json:"receipts"` // every kind and state is there
	Events      int64                    `json:"events"`
	Quarantined int64                    `json:"quarantined"` // entries that wait for a decision
	Due         int64                    `json:"due"`         // receipts with a due time, passed or not
	FileSize    int64                    `json:"file_size"`   // bytes
	Commits     uint64                   `json:"commits"`     // since the ledger was made
}

// Count is the number of receipts in a state, of either kind.
func (s Stats) Count(state State) int64 {
	return s.Receipts[Report][state] + s.Receipts[Job][state]
}

// Stats costs the same however much the ledger holds.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	var count counters
	err := s.view(ctx, func(r *reader) (err error) {
		if count, err = decodeCounters(r.get(metaBucket, []byte(countersName))); err != nil {
			return r.rowError(metaBucket, countersName, err)
		}
		return nil
	})
	if err != nil {
		return Stats{}, err
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return Stats{}, err
	}
	return Stats{
		Receipts: count.byName(), Events: count.Events, Quarantined: count.Quarantined, Due: count.Due,
		FileSize: info.Size(), Commits: count.Commits,
	}, nil
}
