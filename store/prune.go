package store

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"
)

// Prune removes up to limit receipts that are settled (delivered, encrypted, failed or partial) and were last changed before a time,
// with the ids of their events, and quarantine entries that were closed before it. A receipt with a due time or an intent
// stays. The result counts receipts, closed entries and the ids of events that outlived their place in a receipt. Nothing
// is scanned that is younger, and the work is done in small transactions, so that writers get between.
//
// The id of an event stays as long as its receipt lists it, whatever its age; a receipt lists its newest MaxEvents.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (removed int, err error) {
	p := pruner{before: nanos(before)}
	for removed < limit {
		err := s.submit(ctx, pruneBatch, func(t *txn) error {
			p.t, p.left, p.removed, p.seen = t, min(limit-removed, pruneBatch), 0, 0
			p.receipts()
			p.events()
			p.entries()
			return nil
		})
		if err != nil {
			return removed, err
		}
		removed += p.removed
		if p.seen == 0 {
			break
		}
	}
	return removed, nil
}

// pruneBatch is what one transaction removes at most.
const pruneBatch = 256

var prunedStates = [...]State{Delivered, Encrypted, Failed, Partial}

type pruner struct {
	before uint64
	from   [len(prunedStates)][]byte // where the walk of a state goes on: past what must stay

	t       *txn
	left    int // how many more this transaction may remove
	removed int
	seen    int // rows that this transaction dealt with, removed or not
}

// remove counts a row that goes.
func (p *pruner) remove() { p.removed, p.left = p.removed+1, p.left-1 }

// old collects the oldest keys of an index that begin with prefix, up to n of them. They are collected before anything is
// removed, since a cursor does not survive that.
func (p *pruner) old(id bucketID, prefix, from []byte, n int) [][]byte {
	var keys [][]byte
	c := p.t.cursor(id)
	for k, _ := c.Seek(from); k != nil && len(keys) < n; k, _ = c.Next() {
		at, _, err := splitTimed(k, len(prefix))
		if err != nil || string(k[:len(prefix)]) != string(prefix) || at >= p.before {
			break
		}
		keys = append(keys, slices.Clone(k))
	}
	p.seen += len(keys)
	return keys
}

func (p *pruner) receipts() {
	for i, state := range prunedStates {
		prefix := []byte{stateByte(state)}
		if p.from[i] == nil {
			p.from[i] = prefix
		}
		for _, k := range p.old(stateBucket, prefix, p.from[i], p.left) {
			p.from[i] = append(k, 0)
			if key, err := parseReceiptKey(k[1+8:]); err == nil {
				p.receipt(key)
			}
		}
	}
}

func (p *pruner) receipt(k Key) {
	w, err := p.t.load(k)
	if err != nil || !w.before.exists || !w.Due.IsZero() || w.Intent != nil {
		return // one that can't be read is for a person to see
	}
	for _, id := range w.Events {
		p.listed(w.Receipt, eventKey(k.Kind.Feed(), id))
	}
	p.t.remove(w)
	p.remove()
}

// listed removes an event with its receipt.
func (p *pruner) listed(r *Receipt, key []byte) {
	record, err := decodeEvent(p.t.get(eventBucket, key))
	if err != nil || record.Receipt != r.Key() {
		return
	}
	p.event(key, record)
}

func (p *pruner) event(key []byte, record *EventRecord) {
	p.t.del(eventBucket, key)
	p.t.del(shelfBucket, timedKey(nil, record.shelf, key))
	p.t.counters.Events--
}

// events takes old event records from the shelf: those whose receipt is gone, or lists them no more. The others go back
// on the shelf, to be looked at again after some time, so that this never becomes a walk through all of them.
func (p *pruner) events() {
	for _, k := range p.old(shelfBucket, nil, nil, p.left) {
		at, key, _ := splitTimed(k, 0)
		record, err := decodeEvent(p.t.get(eventBucket, key))
		if err != nil || record.shelf != at {
			p.t.del(shelfBucket, k)
			continue
		}
		receipt, err := p.t.find(record.Receipt)
		if err != nil || (receipt != nil && slices.Contains(receipt.Events, record.id)) {
			p.t.del(shelfBucket, k)
			record.shelf = p.again(receipt)
			p.t.putEvent(key, record)
			continue
		}
		p.event(key, record)
		p.remove()
	}
}

// again is when to look at an event once more whose receipt lives.
func (p *pruner) again(r *Receipt) uint64 {
	later := p.before + uint64(24*time.Hour)
	if r != nil {
		later = max(later, nanos(r.Updated))
	}
	return later
}

// entries removes quarantine entries that were closed long ago.
func (p *pruner) entries() {
	for _, k := range p.old(closedBucket, nil, nil, p.left) {
		p.t.del(closedBucket, k)
		id := k[8:]
		q, err := p.t.quarantined(binary.BigEndian.Uint64(id))
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err == nil {
			p.t.del(digestBucket, q.sum)
		}
		p.t.del(quarantineBucket, id)
		p.remove()
	}
}
