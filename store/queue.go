package store

import (
	"errors"
	"sync"
)

// maxCost bounds a transaction, so that nobody waits long behind a crowd.
const maxCost = 512

// queue holds operations in the order in which they came.
type queue struct {
	wake chan struct{} // has room for one

	mu      sync.Mutex
	waiting []*operation
	refusal error // why nothing is accepted now
}

func (q *queue) push(op *operation) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refusal != nil {
		return q.refusal
	}
	q.waiting = append(q.waiting, op)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// refuse makes push fail with err; nil accepts again. A closed queue stays closed.
func (q *queue) refuse(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !errors.Is(q.refusal, ErrClosed) {
		q.refusal = err
	}
}

// take removes what the next transaction is made of. One that must be alone is taken alone.
func (q *queue) take() []*operation {
	q.mu.Lock()
	defer q.mu.Unlock()
	var batch []*operation
	cost := 0
	for len(q.waiting) > 0 {
		op := q.waiting[0]
		if len(batch) > 0 && (cost+op.cost > maxCost || op.alone != nil) {
			break
		}
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		if !op.claimed.CompareAndSwap(false, true) {
			continue // withdrawn
		}
		batch, cost = append(batch, op), cost+op.cost
		if op.alone != nil {
			break
		}
	}
	return batch
}
