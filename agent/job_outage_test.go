package agent

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"recibo/fetcher"
	"recibo/hub"
	"recibo/rest"
	"recibo/sandbox"
	"recibo/setting"
	"recibo/store"
)

// TestAnOutageOfTheObjectStoreParksNothing: the store is away for many times as long as a job's whole budget would last if
// the outage spent it. Each house waits one way of being away out.
func TestAnOutageOfTheObjectStoreParksNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("an outage of 4 s")
	}
	const (
		outage = 4 * time.Second
		n      = 200
	)
	ways := map[string]func(*sandbox.Objects, bool){
		"refused": func(o *sandbox.Objects, away bool) { o.Down(away) },
		"unavailable": func(o *sandbox.Objects, away bool) {
			o.Fail(map[bool]int{true: -1}[away], http.StatusServiceUnavailable)
		},
	}
	houses, ids, tries := map[string]*house{}, map[string][]string{}, map[string]*results{}
	for name, away := range ways {
		tries[name] = &results{}
		h := newHouse(t, jobs(counted(tries[name]), func(p *plan) {
			p.agent.Backoff = setting.Range{Min: 10 * time.Millisecond, Max: 50 * time.Millisecond}
			p.options = rest.Options{ProbeBase: 100 * time.Millisecond, ProbeCap: time.Second}
		}))
		batch := h.events(0, n)
		for _, d := range batch {
			ids[name] = append(ids[name], d.Event.ReportID)
		}
		away(h.fetchers[0].Objects, true)
		h.work()
		h.announced(batch...)
		houses[name] = h
	}
	<-time.After(outage)
	before := map[string]int{}
	for name, h := range houses {
		for _, id := range ids[name] {
			if r := h.receiptOf(jobKey(id)); r.State != store.Pending || r.Attempts != 0 || r.Due.IsZero() || len(r.Timeline) > 1 {
				t.Fatalf("%s, after the outage:\n%s", name, describeReceipt(r))
			}
		}
		before[name] = tries[name].total()
		if before[name] < 3 || before[name] > 25 {
			t.Errorf("%s: %d attempts during the outage, want some and few", name, before[name])
		}
		ways[name](h.fetchers[0].Objects, false)
	}
	for name, h := range houses {
		took := h.home(ids[name])
		t.Logf("%s: %d attempts during %s; all home within %s", name, before[name], outage, took.Round(time.Millisecond))
		if parked := h.count(store.Parked); parked > 0 {
			t.Errorf("%s: %d jobs parked", name, parked)
		}
		for _, id := range ids[name] {
			if r := h.receiptOf(jobKey(id)); notes(r, "attempt ") > 0 {
				t.Errorf("%s: the outage was held against a job:\n%s", name, describeReceipt(r))
			}
		}
		if tried := tries[name].total(); tried > n+25 {
			t.Errorf("%s: %d attempts at %d results", name, tried, n)
		}
	}
}

// TestReporterAndFetcherDoNotWaitForEachOther has the service of one kind away, with more to do than its queue holds, and the
// other kind going on.
func TestReporterAndFetcherDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	const many, few = describeBacklog + scanPage, 20
	t.Run("Reporter is away", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, jobs())
		h.reporter.Down(sandbox.Unavailable)
		h.due(many, sandbox.Report{Size: 2000})
		batch := h.events(0, few)
		h.announced(batch...)
		h.work()
		h.home(idsOf(batch))
	})
	t.Run("Fetcher is away", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, jobs())
		h.fetchers[0].Down(true)
		h.watches(unknownJobs(many)...)
		ids := h.due(few, sandbox.Report{Size: 2000})
		batch := h.events(0, few) // what is signed needs no question
		h.announced(batch...)
		h.work()
		h.home(append(ids, idsOf(batch)...))
	})
	t.Run("the object store is away", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, jobs())
		h.announced(h.events(0, many)...)
		h.fetchers[0].Objects.DenyAll(true)
		ids := h.due(few, sandbox.Report{Size: 2000})
		failed := h.ended(0, sandbox.Job{Status: sandbox.JobFailed})
		h.announced(h.message(0, failed.ID, sandbox.Emission{}))
		h.work()
		h.home(ids)
		h.untilJob(failed.ID, "the failure to be recorded", in(store.Failed))
	})
}

func idsOf(batch []hub.Delivery) []string {
	ids := make([]string, len(batch))
	for i, d := range batch {
		ids[i] = d.Event.ReportID
	}
	return ids
}

func unknownJobs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("00000000-0000-7000-9000-%012d", i)
	}
	return ids
}

// TestResultsStayWithinTheirMemory holds every result that is opened for others to follow it: what is in memory at once never
// exceeds the setting, whatever there are workers for. One that is larger than that comes home alone.
func TestResultsStayWithinTheirMemory(t *testing.T) {
	t.Parallel()
	const (
		memory  = 8 << 20
		large   = 12 << 20
		medium  = 1 << 20 // up to this size results wait for no share
		workers = 12
	)
	var now, peak, exceeded, opened atomic.Int64
	fetched := &results{deliver: func(size int, deliver func() error) error {
		used := now.Add(int64(size))
		defer now.Add(-int64(size))
		opened.Add(1)
		switch {
		case used == large:
		case used > memory:
			exceeded.Store(used)
		default:
			peak.Store(max(peak.Load(), used))
		}
		<-time.After(20 * time.Millisecond) // for others to come, where nothing keeps them from it
		return deliver()
	}}
	h := newHouse(t, jobs(counted(fetched), func(p *plan) {
		p.agent.Workers = workers
		p.jobs.section = func(c *fetcher.Config, _ []*sandbox.Fetcher) { c.Memory, c.MaxResult = memory, 2*large }
	}))
	ids := []string{h.ended(0, sandbox.Job{Size: large}).ID}
	for i := range 20 {
		ids = append(ids, h.ended(0, sandbox.Job{Size: medium + int64(20_000*(i+1))}).ID)
	}
	batch := make([]hub.Delivery, len(ids))
	for i, id := range ids {
		batch[(i+10)%len(ids)] = h.message(0, id, sandbox.Emission{}) // the large one in the middle
	}
	h.announced(batch...)
	h.work()
	h.home(ids)
	for _, id := range ids {
		h.soundJob(0, id)
	}
	if most := exceeded.Load(); most > 0 {
		t.Errorf("%d bytes were in memory at once, with %d set aside", most, memory)
	}
	if most := peak.Load(); most < memory/4 {
		t.Errorf("at most %d bytes were in memory at once: they did not come side by side", most)
	}
	if got := opened.Load(); got != int64(len(ids)) {
		t.Errorf("%d results were opened", got)
	}
}

// TestAStoreInTroubleDelaysNoJobOfAnother has two sources, one worker, and the store of the first out of order.
func TestAStoreInTroubleDelaysNoJobOfAnother(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(*sandbox.Fetcher, *front)
		many  int // jobs of the first, all of them due before those of the second
	}{
		"down":      {func(f *sandbox.Fetcher, _ *front) { f.Objects.Down(true) }, 20},
		"no access": {func(f *sandbox.Fetcher, _ *front) { f.Objects.DenyAll(true) }, 20},
		"no access, with more jobs than are weighed at a time": {
			func(f *sandbox.Fetcher, _ *front) { f.Objects.DenyAll(true) }, describeBacklog + scanPage},
		"silent":     {func(_ *sandbox.Fetcher, fr *front) { fr.meets(silence) }, 20},
		"slow bytes": {func(_ *sandbox.Fetcher, fr *front) { fr.meets(slowly(make([]byte, 4004))) }, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var fr *front
			h := newHouse(t, several(2, func(p *plan) {
				p.agent.Workers, p.agent.Shutdown = 1, 10*time.Millisecond
				p.jobs.section = func(c *fetcher.Config, fs []*sandbox.Fetcher) {
					fr = newFront(t, fs[0])
					c.Sources[0].Objects.Endpoint = fr.server.URL
				}
			}))
			test.spoil(h.fetchers[0], fr)
			batch := h.events(0, test.many)
			others := make([]string, 20)
			for i := range others {
				others[i] = h.ended(1, sandbox.Job{}).ID
				batch = append(batch, h.message(1, others[i], sandbox.Emission{}))
			}
			h.announced(batch...)
			h.work()
			for _, id := range others {
				h.untilJob(id, "delivery from the store that is well", in(store.Delivered))
				h.soundJob(1, id)
			}
			if n := h.count(store.Delivered); n != int64(len(others)) {
				t.Errorf("%d delivered; the first store was to be out of order all the time", n)
			}
			if n := h.count(store.Parked); n > 0 {
				t.Errorf("%d parked", n)
			}
		})
	}
}

// events makes the events of n jobs at Fetcher i.
func (h *house) events(i, n int) []hub.Delivery {
	h.t.Helper()
	batch := make([]hub.Delivery, n)
	for j := range batch {
		batch[j] = h.message(i, h.ended(i, sandbox.Job{Size: 2000}).ID, sandbox.Emission{})
	}
	return batch
}
