package agent

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"recibo/store"
)

// transfer is one receipt being worked on. While it exists no other worker touches the receipt.
type transfer struct {
	key        store.Key
	urgent     bool
	generation uint64       // what this attempt started from
	described  *description // nil for a download without one
	source     int          // of a job: which Fetcher it is of
	asks       []int        // of a job: the Fetchers that are still to be asked
	unsure     error        // of a job: why one that was asked did not answer
	waits      bool         // of a job: for its turn to be asked about; guarded by Agent.mu
	verified   bool         // of a job: a verified result is home, which an encrypted one must not follow
	outlet     *outlet      // where its file goes
	asked      time.Time    // when the list was asked for that gave the description; zero for one of its own

	rehearsal bool // nothing is told

	waitsFor atomic.Pointer[need] // what it is queued for; nil while it is worked on

	done, total atomic.Int64 // bytes; total is -1 while unknown
}

// queue holds transfers that wait for a worker, urgent ones first.
type queue struct {
	mu             sync.Mutex
	urgent, normal []*transfer
	bytes          int
	filled         chan struct{}
	of             need // what those in it wait for; the zero need is nothing that could be away
}

func newQueue() *queue { return &queue{filled: make(chan struct{}, 1)} }

func (q *queue) push(t *transfer) {
	if q.of != (need{}) {
		t.waitsFor.Store(&q.of)
	}
	q.mu.Lock()
	q.bytes += t.weight()
	if t.urgent {
		q.urgent = append(q.urgent, t)
	} else {
		q.normal = append(q.normal, t)
	}
	q.mu.Unlock()
	q.announce()
}

func (q *queue) announce() {
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

func (q *queue) pop() *transfer {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, list := range []*[]*transfer{&q.urgent, &q.normal} {
		if len(*list) > 0 {
			t := (*list)[0]
			(*list)[0] = nil
			*list = (*list)[1:]
			q.bytes -= t.weight()
			t.waitsFor.Store(nil)
			return t
		}
	}
	return nil
}

// keys lists what is in the queue and meets a condition.
func (q *queue) keys(met func(*transfer) bool) []store.Key {
	q.mu.Lock()
	defer q.mu.Unlock()
	var list []store.Key
	for _, t := range slices.Concat(q.urgent, q.normal) {
		if met(t) {
			list = append(list, t.key)
		}
	}
	return list
}

// weight is about how much memory the queue holds, in bytes.
func (q *queue) weight() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

func (t *transfer) weight() int {
	const bare = 600
	if t.described == nil {
		return bare // before its description, which must not change while it is queued
	}
	return bare + len(t.described.metadata)
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.urgent) + len(q.normal)
}

// wait returns false when ctx ends before something is queued.
func (q *queue) wait(ctx context.Context) bool {
	for q.len() == 0 {
		select {
		case <-ctx.Done():
			return false
		case <-q.filled:
		}
	}
	return ctx.Err() == nil
}

// Transfer is the progress of one download.
type Transfer struct {
	ID    string `json:"id"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // -1 while unknown
}

// Transfers returns the downloads that have begun.
func (a *Agent) Transfers() []Transfer {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []Transfer
	for k, t := range a.active {
		if done := t.done.Load(); done > 0 {
			list = append(list, Transfer{k.ID, done, t.total.Load()})
		}
	}
	return list
}
