package agent

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"recibo/rest"
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
	outlet     *outlet      // where its file goes
	asked      time.Time    // when the list was asked for that gave the description; zero for one of its own

	rehearsal bool // nothing is told

	done, total atomic.Int64 // bytes; total is -1 while unknown
}

// queue holds transfers that wait for a worker, urgent ones first.
type queue struct {
	mu             sync.Mutex
	urgent, normal []*transfer
	bytes          int
	filled         chan struct{}
}

func newQueue() *queue { return &queue{filled: make(chan struct{}, 1)} }

func (q *queue) push(t *transfer) {
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
			return t
		}
	}
	return nil
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

// lane is one pool of workers: its queue, how many there are, what permits the next one to start, and what it does.
type lane struct {
	queue   *queue
	workers int
	acquire func(context.Context) error
	cancel  func()
	work    func(context.Context, *transfer)
}

// reportLanes are the pools that reports go through.
func (a *Agent) reportLanes(workers int) []lane {
	if a.Reporter == nil {
		return nil
	}
	lanes := []lane{describeLane(a, workers), hintLane(a, workers)}
	if a.Folder != nil {
		lanes = append(lanes, downloadLane(a, a.Config.Workers))
	}
	return lanes
}

func describeLane(a *Agent, workers int) lane {
	return lane{
		queue: a.described, workers: workers, work: a.describe,
		acquire: func(ctx context.Context) error { return a.Reporter.Acquire(ctx, rest.Get) },
		cancel:  func() { a.Reporter.Cancel(rest.Get) },
	}
}

// hintLane settles what a list has just described: it asks nobody, so no gate and no pace holds it.
func hintLane(a *Agent, workers int) lane {
	return lane{
		queue: a.hinted, workers: workers, work: a.decide,
		acquire: func(context.Context) error { return nil }, cancel: func() {},
	}
}

func downloadLane(a *Agent, workers int) lane {
	return lane{
		queue: a.ready, workers: workers, work: a.bringHome,
		acquire: func(ctx context.Context) error {
			if err := a.waitFor(ctx, a.outlets[0]); err != nil {
				return err
			}
			return a.Reporter.Acquire(ctx, rest.Download)
		},
		cancel: func() { a.Reporter.Cancel(rest.Download) },
	}
}

// dispatch gives queued transfers to workers. It is the dispatcher that waits for gates and paces, never a worker; and
// it takes the most urgent transfer only once it may start.
func (a *Agent) dispatch(ctx, work context.Context, workers *sync.WaitGroup, l lane) {
	slots := make(chan struct{}, l.workers)
	for l.queue.wait(ctx) {
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		if l.acquire(ctx) != nil {
			<-slots
			return // ctx ended
		}
		t := l.queue.pop()
		if t == nil {
			l.cancel()
			<-slots
			continue
		}
		workers.Go(func() {
			defer func() { <-slots }()
			l.work(work, t)
		})
	}
}

const (
	// scanPage bounds how many due receipts one look at the ledger returns.
	scanPage = 256
	// describeBacklog is how many may wait to be described by one service: the ledger holds the rest.
	describeBacklog = 512
	// readyBacklog bounds the memory of what waits to be downloaded, in bytes: some 100,000 ordinary descriptions. Until
	// it is reached, a queue of large files delays no description.
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
	for _, f := range a.fetching {
		queues = append(queues, f.asked, f.ready)
	}
	for _, q := range queues {
		for q.pop() != nil {
		}
	}
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

// Active is how many receipts are in a queue or with a worker.
func (a *Agent) Active() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.active)
}
