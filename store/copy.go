package store

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
)

// recorder notes which rows change while a backup runs. A nil recorder notes nothing.
type recorder struct {
	mu   sync.Mutex
	rows map[change]bool
}

func (c *recorder) add(changes []change) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, row := range changes {
		c.rows[row] = true
	}
}

func (c *recorder) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.rows)
}

// take returns what was noted, in the order of the ledger, and begins anew.
func (c *recorder) take() []change {
	c.mu.Lock()
	rows := c.rows
	c.rows = map[change]bool{}
	c.mu.Unlock()
	list := make([]change, 0, len(rows))
	for row := range rows {
		list = append(list, row)
	}
	slices.SortFunc(list, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.key, b.key))
	})
	return list
}

// viewer runs a function in a short read transaction.
type viewer func(context.Context, func(*reader) error) error

// pair is a row that outlives its transaction; value nil: there is none.
type pair struct{ key, value []byte }

// copyRows is how many rows are copied in one read transaction at most; pageBytes bounds them too.
const copyRows = 1000

// copyAll copies every row, a page at a time.
func copyAll(ctx context.Context, view viewer, to *draft) error {
	for id := range bucketCount {
		var next []byte
		for {
			var page []pair
			err := view(ctx, func(r *reader) error {
				page, next = r.rows(id, next)
				return nil
			})
			if err != nil {
				return err
			}
			if err := to.putAll(id, page); err != nil {
				return err
			}
			if next == nil {
				break
			}
		}
	}
	return nil
}

// rows returns a page of a bucket and the key with which the next one begins, nil at the end.
func (r *reader) rows(id bucketID, from []byte) (page []pair, next []byte) {
	size := 0
	c := r.cursor(id)
	k, v := c.Seek(from)
	for ; k != nil && len(page) < copyRows && size < pageBytes; k, v = c.Next() {
		size += len(v)
		page = append(page, pair{bytes.Clone(k), bytes.Clone(v)})
	}
	return page, bytes.Clone(k)
}

// copyChanges brings rows of the copy to what they are now.
func copyChanges(ctx context.Context, view viewer, changes []change, to *draft) error {
	for len(changes) > 0 {
		id := changes[0].bucket
		n, size := 0, 0
		var page []pair
		err := view(ctx, func(r *reader) error {
			for n < len(changes) && n < copyRows && size < pageBytes && changes[n].bucket == id {
				key := []byte(changes[n].key)
				value := bytes.Clone(r.get(id, key))
				page = append(page, pair{key, value})
				n, size = n+1, size+len(value)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := to.putAll(id, page); err != nil {
			return err
		}
		changes = changes[n:]
	}
	return nil
}

func (d *draft) putAll(id bucketID, page []pair) error {
	if len(page) == 0 {
		return nil
	}
	return d.write(func(t *txn) error {
		for _, p := range page {
			if p.value == nil {
				t.del(id, p.key)
			} else {
				t.put(id, p.key, p.value)
			}
		}
		return nil
	})
}
