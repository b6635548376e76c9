package agent

import (
	"context"
	"io"
	"sync/atomic"

	"recibo/fetcher"
	"recibo/hub"
	"recibo/rest"
	"recibo/store"
)

// Fetcher is what the agent needs of the Fetchers of the configuration. Each is known by its number, from 0. Every Acquire
// is followed by one call of its kind or a Cancel.
type Fetcher interface {
	Sources() int
	Find(source, tenant string) int // -1: none speaks for them
	Name(i int) (source, tenant string)

	Acquire(ctx context.Context, i int) error // of the object store
	Cancel(i int)
	CanOpen(i int) bool
	Encrypted() string // what becomes of results that can't be opened: fetcher.Refuse or fetcher.Deliver
	Mode() string      // of result files
	Fetch(ctx context.Context, i int, w fetcher.Wanted, deliver func([]byte, fetcher.Proof) error) error
	FetchEncrypted(ctx context.Context, i int, w fetcher.Wanted, deliver func(io.Reader, int64) error) error

	Asks(i int) bool                             // there is an address to ask about jobs
	AcquireJob(ctx context.Context, i int) error // of that address
	CancelJob(i int)
	Job(ctx context.Context, i int, id string) (*fetcher.Job, error)

	StoreGate(i int) rest.GateStatus
	JobGates(i int) []rest.GateStatus
	Gates() []fetcher.NamedGate
	Again(headers map[string]string, raw []byte, transport, origin string) hub.Delivery
	KeyTrouble() error // why the keys of now can't be used, so that those from before stay in force
}

// fetching is the work for one Fetcher. Each has queues and workers of its own, so that the trouble of one never delays
// the jobs of another.
type fetching struct {
	asked  *queue // jobs to be asked about
	ready  *queue // results to be brought home
	outlet *outlet
	away   atomic.Bool // the last question met with trouble of the service
}

func newFetching(f Fetcher) []fetching {
	if f == nil {
		return nil
	}
	all := make([]fetching, f.Sources())
	for i := range all {
		all[i].asked, all[i].ready = newQueue(), newQueue()
		all[i].asked.of, all[i].ready.of = need{store.Job, i, asking}, need{store.Job, i, bringing}
	}
	return all
}

// sourceOf is the number of the Fetcher that a job is of, -1 while that is not known.
func (a *Agent) sourceOf(r *store.Receipt) int {
	if a.Fetcher == nil {
		return -1
	}
	return a.Fetcher.Find(r.Source, r.Tenant)
}

// jobLanes are the pools that jobs go through: what their events say is weighed by one, and each Fetcher has one for
// questions and one for results.
func (a *Agent) jobLanes(workers int) []lane {
	if a.Fetcher == nil {
		return nil
	}
	lanes := []lane{{
		queue: a.weighed, workers: workers, work: a.weigh,
		acquire: func(context.Context) error { return nil }, cancel: func() {},
	}}
	for i := range a.fetching {
		f := &a.fetching[i]
		if a.Fetcher.Asks(i) {
			lanes = append(lanes, lane{
				queue: f.asked, workers: workers, work: func(ctx context.Context, t *transfer) { a.askFetcher(ctx, t, i) },
				acquire: func(ctx context.Context) error { return a.Fetcher.AcquireJob(ctx, i) },
				cancel:  func() { a.Fetcher.CancelJob(i) },
			})
		}
		if f.outlet != nil {
			lanes = append(lanes, lane{
				queue: f.ready, workers: a.Config.Workers, work: a.bringHome,
				acquire: func(ctx context.Context) error {
					if err := a.waitFor(ctx, f.outlet); err != nil {
						return err
					}
					return a.Fetcher.Acquire(ctx, i)
				},
				cancel: func() { a.Fetcher.Cancel(i) },
			})
		}
	}
	return lanes
}

// watchKeys tells of a file of keys that was replaced by one that can't be used: nothing else would, before a message comes
// that is signed with the new key.
func (a *Agent) watchKeys(ctx context.Context) {
	if a.Fetcher == nil {
		return
	}
	for told := ""; ; {
		now := a.keyTrouble()
		switch {
		case now == told:
		case now == "":
			a.Log.Info("fetcher's keys can be used again")
		default:
			a.Log.Error("fetcher's keys can't be used; those from before stay in force", "error", now)
		}
		told = now
		if !sleep(ctx, filesEvery) {
			return
		}
	}
}

func (a *Agent) keyTrouble() string {
	if a.Fetcher == nil {
		return ""
	}
	if err := a.Fetcher.KeyTrouble(); err != nil {
		return err.Error()
	}
	return ""
}

// works reports whether there is anybody to work on receipts of a kind. Those of another stay due.
func (a *Agent) works(kind store.Kind) bool {
	if kind == store.Job {
		return a.Fetcher != nil
	}
	return a.Reporter != nil
}
