package store

import (
	"fmt"
	"time"
)

// mark is what the indexes and counters hold about a receipt.
type mark struct {
	exists  bool
	state   State
	updated time.Time
	due     time.Time
	urgent  bool
	intent  bool
}

func markOf(r *Receipt) mark {
	return mark{true, r.State, r.Updated, r.Due, r.Urgent, r.Intent != nil}
}

// row is a receipt on its way through a transaction.
type row struct {
	*Receipt
	key    []byte
	before mark
	data   []byte // encoded, once staged
}

// load reads a receipt to change it. A receipt that does not exist is made, not yet written: before.exists is false.
func (t *txn) load(k Key) (*row, error) {
	r, err := t.find(k)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return &row{Receipt: &Receipt{Kind: k.Kind, ID: k.ID, Created: t.now}, key: receiptKey(k)}, nil
	}
	return &row{Receipt: r, key: receiptKey(k), before: markOf(r)}, nil
}

// MaxWait is the longest that a receipt waits for its due time (law 8: every wait has a bound). A later one is brought
// forward when it is stored.
const MaxWait = 7 * 24 * time.Hour

// stage makes a changed receipt ready to be saved and is the last step that can fail, so that a bad one is refused before
// anything is written.
func (t *txn) stage(w *row) error {
	w.Updated = t.now
	if latest := t.now.Add(MaxWait); w.Due.After(latest) {
		w.Due = latest
	}
	if n := len(w.Events); n > MaxEvents {
		w.Events = w.Events[n-MaxEvents:]
	}
	if n := len(w.Timeline); n > MaxTimeline {
		w.Timeline = w.Timeline[n-MaxTimeline:]
	}
	if stateByte(w.State) == 0 {
		return fmt.Errorf("%s: %w state %q", w.Key(), ErrInvalid, w.State)
	}
	var err error
	if w.data, err = encodeReceipt(w.Receipt); err != nil {
		return fmt.Errorf("%s: %w receipt: %w", w.Key(), ErrInvalid, err)
	}
	return nil
}

// save writes a staged receipt and brings the indexes and counters in line with it.
func (t *txn) save(w *row) {
	after := markOf(w.Receipt)
	t.put(receiptBucket, w.key, w.data)
	t.index(w.Kind, w.key, w.before, after)
	w.before = after
}

// remove deletes a receipt with its index entries.
func (t *txn) remove(w *row) {
	t.del(receiptBucket, w.key)
	t.index(w.Kind, w.key, w.before, mark{})
}

func (t *txn) index(kind Kind, key []byte, before, after mark) {
	if before.exists {
		t.counters.receipts(kind, before.state, -1)
		if !after.exists || before.state != after.state || !before.updated.Equal(after.updated) {
			t.del(stateBucket, stateKey(before.state, before.updated, key))
		}
	}
	if after.exists {
		t.counters.receipts(kind, after.state, 1)
		t.put(stateBucket, stateKey(after.state, after.updated, key), nil)
	}
	t.indexDue(key, before, after)
	switch {
	case after.intent && !before.intent:
		t.put(intentBucket, key, nil)
	case before.intent && !after.intent:
		t.del(intentBucket, key)
	}
}

func (t *txn) indexDue(key []byte, before, after mark) {
	if before.due.Equal(after.due) && before.urgent == after.urgent {
		return
	}
	if !before.due.IsZero() {
		t.del(dueBucket, dueKey(before.urgent, before.due, key))
		t.counters.Due--
	}
	if !after.due.IsZero() {
		t.put(dueBucket, dueKey(after.urgent, after.due, key), nil)
		t.counters.Due++
	}
}
