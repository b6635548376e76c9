package store

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// reader is a transaction that only reads.
type reader struct {
	tx      *bolt.Tx
	path    string
	packed  bool // pages are filled to the brim: a copy that is written in order
	buckets [bucketCount]*bolt.Bucket
}

// bucket returns a bucket. One that is missing is damage: every ledger is made with all of them.
func (r *reader) bucket(id bucketID) *bolt.Bucket {
	if b := r.buckets[id]; b != nil {
		return b
	}
	b := r.tx.Bucket([]byte(bucketNames[id]))
	if b == nil {
		panic(&DamagedError{Err: fmt.Errorf("bucket %q is missing", bucketNames[id])})
	}
	b.FillPercent = id.fill()
	if r.packed {
		b.FillPercent = 1
	}
	r.buckets[id] = b
	return b
}

// get returns a value, valid until the transaction ends; nil when there is none.
func (r *reader) get(id bucketID, key []byte) []byte { return r.bucket(id).Get(key) }

func (r *reader) cursor(id bucketID) *bolt.Cursor { return r.bucket(id).Cursor() }

// rowError is the damage of one row.
func (r *reader) rowError(id bucketID, key string, err error) *DamagedError {
	return &DamagedError{Path: r.path, Row: bucketNames[id] + " " + key, Err: err}
}

// receipt reads one receipt: ErrNotFound, or *DamagedError with its key.
func (r *reader) receipt(k Key) (*Receipt, error) {
	receipt, err := r.find(k)
	if err == nil && receipt == nil {
		return nil, fmt.Errorf("%s: %w", k, ErrNotFound)
	}
	return receipt, err
}

// find is receipt for when there often is none: then it returns nil and no error.
func (r *reader) find(k Key) (*Receipt, error) {
	data := r.get(receiptBucket, receiptKey(k))
	if data == nil {
		return nil, nil
	}
	receipt, err := decodeReceipt(data)
	if err == nil && receipt.Key() != k {
		err = errors.New("it holds another receipt")
	}
	if err != nil {
		return nil, r.rowError(receiptBucket, k.String(), err)
	}
	return receipt, nil
}
