package store

import "time"

// change names a row that was written or removed.
type change struct {
	bucket bucketID
	key    string
}

// txn is the one transaction that writes. Every change of the ledger passes through put and del, so that a backup in
// progress learns of it.
type txn struct {
	reader
	now      time.Time
	counters counters
	record   bool     // whether to keep changes
	changes  []change // while record is set
	wrote    bool
	err      error // a failed write: the whole transaction is lost
}

func (t *txn) put(id bucketID, key, value []byte) {
	if value == nil {
		value = []byte{} // until it is committed, bbolt would show nil as an absent row
	}
	t.note(id, key)
	t.fail(t.bucket(id).Put(key, value))
}

func (t *txn) del(id bucketID, key []byte) {
	t.note(id, key)
	t.fail(t.bucket(id).Delete(key))
}

func (t *txn) note(id bucketID, key []byte) {
	t.wrote = true
	if t.record {
		t.changes = append(t.changes, change{id, string(key)})
	}
}

func (t *txn) fail(err error) {
	if err != nil && t.err == nil {
		t.err = err
	}
}

// saveCounters closes the transaction's books.
func (t *txn) saveCounters() {
	t.counters.Commits++
	t.put(metaBucket, []byte(countersName), t.counters.encode())
}
