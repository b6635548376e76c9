package agent

import (
	"context"
	"sync/atomic"
	"time"

	"recibo/store"
)

const (
	// scanPage bounds how many due receipts one look at the ledger returns.
	scanPage = 256
	// describeBacklog is how many may wait to be described by Reporter, or for their events to be weighed: the ledger holds
	// the rest.
	describeBacklog = 512
	// readyBacklog bounds the memory of what waits to be downloaded, or to be asked about at one Fetcher, in bytes: some
	// 100,000 ordinary descriptions. Until it is reached, a queue of large files delays no description.
	readyBacklog = 64 << 20
	// rescan is the longest wait between looks at the ledger from its beginning, in case a clock jumped.
	rescan = time.Minute
	// markLag is how far behind the newest due time a look begins: a row may be committed later than its due time says.
	markLag = 2 * time.Second
)

// schedule moves due receipts of one kind from the ledger into the queues. Each kind has its own, so that what waits for
// one service holds up nothing that waits for another.
type schedule struct {
	kind  store.Kind
	room  func() bool // for more in the queues
	wake  chan struct{}
	again atomic.Bool // something may be due that lies behind the mark
}

func (a *Agent) newSchedules() {
	rooms := map[store.Kind]func() bool{
		store.Report: func() bool { return a.described.len() < describeBacklog && a.ready.weight() < readyBacklog },
		store.Job:    func() bool { return a.weighed.len() < describeBacklog },
	}
	for _, kind := range [...]store.Kind{store.Report, store.Job} {
		if a.works(kind) {
			a.schedules = append(a.schedules, &schedule{kind: kind, room: rooms[kind], wake: make(chan struct{}, 1)})
		}
	}
}

// lookAgain has receipts of a kind looked for from the beginning: one is due at its old time.
func (a *Agent) lookAgain(kind store.Kind) {
	for _, s := range a.schedules {
		if s.kind == kind {
			s.again.Store(true)
		}
	}
}

// takeDue looks for due receipts until ctx ends. They stay due while they are in work, so each look goes on where the one
// before ended: otherwise every look would pass over all that is in work.
func (a *Agent) takeDue(ctx context.Context, s *schedule) {
	passOver := func(k store.Key) bool { return k.Kind != s.kind || a.isActive(k) }
	var from store.Mark
	rescanned := time.Now()
	for {
		wait := rescan
		if time.Since(rescanned) >= rescan || s.again.Swap(false) {
			from, rescanned = store.Mark{}, time.Now()
		}
		if s.room() {
			look, err := a.Ledger.Due(ctx, a.Now(), from, scanPage, passOver)
			if err != nil {
				if ctx.Err() == nil {
					a.Log.Error("the ledger can't be read", "error", err)
				}
				wait = 5 * time.Second
			} else {
				a.enqueue(look.Due)
				from = look.End
				if look.More {
					continue
				}
				if lagging := a.Now().Add(-markLag); from.At.After(lagging) {
					from = store.Mark{At: lagging}
				}
				if !look.Next.IsZero() {
					wait = min(wait, max(look.Next.Sub(a.Now()), time.Millisecond))
				}
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// enqueue takes receipts into work.
func (a *Agent) enqueue(due []store.Due) {
	for _, d := range due {
		t := &transfer{key: d.Key, urgent: d.Urgent}
		t.total.Store(-1)
		a.mu.Lock()
		listed, found := a.hints[d.Key]
		delete(a.hints, d.Key)
		a.active[d.Key] = t
		a.mu.Unlock()
		if d.Key.Kind == store.Job {
			a.weighed.push(t)
		} else if found && a.Now().Sub(listed.asked) < hintFor {
			t.described, t.asked = ofReport(listed.report), listed.asked
			a.hinted.push(t)
		} else {
			a.described.push(t)
		}
	}
}

func (a *Agent) isActive(k store.Key) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.active[k] != nil
}

// finish gives a receipt free. The ledger tells when it is due again.
func (a *Agent) finish(t *transfer) {
	a.mu.Lock()
	delete(a.active, t.key)
	delete(a.hints, t.key)
	a.mu.Unlock()
	a.settles.raise(t.key)
	a.Wake()
}

// release gives free what was queued when the work ended.
func (a *Agent) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.active)
	clear(a.hints)
	queues := []*queue{a.described, a.hinted, a.ready, a.weighed}
	for i := range a.fetching {
		queues = append(queues, a.fetching[i].asked, a.fetching[i].ready)
	}
	for _, q := range queues {
		for q.pop() != nil {
		}
	}
}

// Active is how many receipts are in a queue or with a worker.
func (a *Agent) Active() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.active)
}
