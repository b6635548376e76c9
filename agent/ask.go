package agent

import (
	"context"
	"slices"

	"recibo/fetcher"
	"recibo/store"
)

// asks lists the Fetchers that may know a job: its own, or all while that is not known. Those that were in trouble when they
// were asked last come last: the one that knows the job may be well.
func (a *Agent) asks(source int) []int {
	var well, away []int
	for i := range a.fetching {
		switch {
		case i != source && source >= 0, !a.Fetcher.Asks(i):
		case a.fetching[i].away.Load():
			away = append(away, i)
		default:
			well = append(well, i)
		}
	}
	return append(well, away...)
}

// AsksAboutJobs reports whether there is anybody to ask about a job that no event told of.
func (a *Agent) AsksAboutJobs() bool { return len(a.asks(-1)) > 0 }

func (a *Agent) askNext(ctx context.Context, t *transfer) {
	i := t.asks[0]
	t.asks = t.asks[1:]
	q := a.fetching[i].asked
	if q.weight() >= readyBacklog && !t.urgent {
		a.giveBack(ctx, t)
		return
	}
	a.mu.Lock()
	t.waits = true
	a.mu.Unlock()
	if r, err := a.Ledger.Get(ctx, t.key); err == nil && r.Generation > t.generation {
		a.weighAgain([]store.Key{t.key}) // an event came before it was known to wait
		return
	}
	another := slices.ContainsFunc(t.asks, func(j int) bool { return !a.fetching[j].away.Load() })
	q.push(t)
	if another && a.fetching[i].away.Load() {
		a.weighAgain([]store.Key{t.key}) // it was found to be away just now
	}
	a.Wake() // there may be room for more to be weighed
}

// weighAgain has jobs weighed again that wait for their turn to be asked about: an event that has just come may settle them,
// or another Fetcher may know them while the one that they wait for is away.
func (a *Agent) weighAgain(keys []store.Key) {
	for _, k := range keys {
		a.mu.Lock()
		t := a.active[k]
		if t == nil || !t.waits {
			a.mu.Unlock()
			continue
		}
		anew := &transfer{key: k, urgent: t.urgent}
		anew.total.Store(-1)
		a.active[k] = anew // takesTurn tells the other one that it is given up
		a.mu.Unlock()
		a.weighed.push(anew)
	}
}

// takesTurn reports whether a transfer that waited for its turn still stands for its job.
func (a *Agent) takesTurn(t *transfer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.waits = false
	return a.active[t.key] == t
}

// askFetcher asks one Fetcher about a job and follows the answer.
func (a *Agent) askFetcher(ctx context.Context, t *transfer, i int) {
	if !a.takesTurn(t) {
		a.Fetcher.CancelJob(i)
		return
	}
	r, ok := a.start(ctx, t)
	if !ok {
		a.Fetcher.CancelJob(i)
		return
	}
	a.counts.descriptions.Add(1)
	job, err := a.Fetcher.Job(ctx, i, t.key.ID)
	if away := err != nil && ofService(err); a.fetching[i].away.Swap(away) != away && away {
		a.weighAgain(a.fetching[i].asked.keys(func(t *transfer) bool { return len(t.asks) > 0 })) // others are asked first
	}
	switch {
	case err != nil && len(t.asks) > 0 && ctx.Err() == nil:
		if !fetcher.Unknown(err) && t.unsure == nil {
			t.unsure = err
		}
		a.askNext(ctx, t)
		return
	case fetcher.Unknown(err) && t.unsure != nil:
		err = t.unsure // one that did not answer may know it
	}
	switch {
	case err == nil:
		said, _ := readTold(r) // what can't be read was logged when it was weighed
		t.described = ofJob(job, said)
		if t.source < 0 {
			t.source = i
			t.described.source, t.described.tenant = a.Fetcher.Name(i)
		}
		if a.forgotten(t, r) {
			a.settle(ctx, t, a.leaveForgotten)
			a.finish(t)
			return
		}
		a.follow(ctx, t, r)
	case unreadable(err):
		a.settle(ctx, t, func(t *transfer, r *store.Receipt) { a.waitWithoutBlame(r, err) })
		a.Log.Warn("a job can't be described", "job", t.key.ID, "error", err)
		a.finish(t)
	default:
		a.failed(ctx, t, err)
	}
}
