package store

import (
	"context"
	"errors"
	"iter"
)

// allPage is how many rows All reads in one transaction.
const allPage = 256

// All gives every receipt that q selects, newest first, page by page: no transaction is open while the caller works on
// one, so a slow caller stops no writer. A receipt that changes meanwhile may come twice or not at all. Rows that can't be
// read don't hide the others: the last pair is then (nil, *DamagedError). Any other error ends the sequence.
func (s *Store) All(ctx context.Context, q Query) iter.Seq2[*Receipt, error] {
	return func(yield func(*Receipt, error) bool) {
		q.Limit, q.After = allPage, ""
		var damage error
		for {
			rows, after, err := s.List(ctx, q)
			var damaged *DamagedError
			if errors.As(err, &damaged) && damaged.Row != "" {
				damage, err = errors.Join(damage, err), nil
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, r := range rows {
				if !yield(r, nil) {
					return
				}
			}
			if q.After = after; after == "" {
				break
			}
		}
		if damage != nil {
			yield(nil, damage)
		}
	}
}
