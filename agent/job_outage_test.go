package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"recibo/fetcher"
	"recibo/hub"
	"recibo/reporter"
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
		memory  = 256 << 10
		large   = 512 << 10
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
		p.jobs.section = func(c *fetcher.Config, _ []*sandbox.Fetcher) { c.Memory, c.MaxResult = memory, 4<<20 }
	}))
	ids := []string{h.ended(0, sandbox.Job{Size: large}).ID}
	for i := range 30 {
		ids = append(ids, h.ended(0, sandbox.Job{Size: int64(20_000 + 4000*i)}).ID)
	}
	batch := make([]hub.Delivery, len(ids))
	for i, id := range ids {
		batch[(i+15)%len(ids)] = h.message(0, id, sandbox.Emission{}) // the large one in the middle
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

// What holds all work is told, and what holds one kind only is not.
func TestWaitingEndsWhenAllThatThereIsToDoIsHeld(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spoil func(*house)
		name  string // of what is away
		fine  store.Kind
	}{
		"Reporter is away":         {func(h *house) { h.reporter.Down(sandbox.Refuse) }, "reporter", store.Job},
		"the object store is away": {func(h *house) { h.fetchers[0].Objects.Down(true) }, "fetcher", store.Report},
		"Fetcher is away":          {func(h *house) { h.fetchers[0].Down(true) }, "fetcher", store.Report},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goOn := make(chan struct{})
			wait := func(ctx context.Context) {
				select {
				case <-goOn:
				case <-ctx.Done():
				}
			}
			h := newHouse(t, jobs(counted(&results{before: func(ctx context.Context, _ string) {
				if test.fine == store.Job {
					wait(ctx)
				}
			}})))
			if test.fine == store.Report {
				h.Agent.Reporter = waiting{h.Agent.Reporter, wait}
			}
			h.Now = func() time.Time { return time.Now().Add(time.Minute) } // a gate that closes has been closed for long
			test.spoil(h)
			job, report := h.ended(0, sandbox.Job{}), h.reporter.Add(sandbox.Report{})
			fine, away := keyOf(report.ID), jobKey(job.ID)
			if test.fine == store.Job {
				fine, away = away, fine
			}
			h.work()
			events := []hub.Delivery{h.message(0, job.ID, sandbox.Emission{})}
			if name == "Fetcher is away" {
				events = append(events, h.message(0, job.ID, sandbox.Emission{Status: sandbox.JobFailed})) // it has to be asked about
			}
			h.announced(events...)
			h.event("e-1", hub.ReportFinished, report.ID)
			h.eventually("one kind is held, and the other at work", func() bool {
				return h.closedFor(need{kind: away.Kind}, 0) != nil && h.isActive(fine)
			}, func() string { return fmt.Sprint(h.closedFor(need{kind: away.Kind}, 0)) })
			if err := h.Held(t.Context()); err != nil {
				t.Errorf("held, though one kind is at work: %v", err)
			}
			idle := make(chan error, 1)
			go func() { idle <- h.WaitIdle(t.Context(), h.Now()) }()
			both := make(chan error, 1)
			var seen []store.Key
			go func() {
				asked := map[store.Key]uint64{fine: 1, away: h.receiptOf(away).Generation}
				both <- h.Wait(t.Context(), asked, false, func(r *store.Receipt) error {
					seen = append(seen, r.Key())
					return nil
				})
			}()
			one := make(chan error, 1)
			go func() {
				one <- h.Wait(t.Context(), map[store.Key]uint64{fine: 1}, false, func(*store.Receipt) error { return nil })
			}()
			close(goOn)
			for what, err := range map[string]error{"WaitIdle": <-idle, "Wait": <-both} {
				if !isUnreachable(err, test.name) {
					t.Errorf("%s ended with %v", what, err)
				}
			}
			if err := <-one; err != nil {
				t.Errorf("waiting for what is well ended with %v", err)
			}
			if len(seen) != 1 || seen[0] != fine {
				t.Errorf("told of %v, want %v", seen, fine)
			}
			if r := h.receiptOf(fine); r.State != store.Delivered {
				t.Errorf("given up before what is well was home:\n%s", describeReceipt(r))
			}
			h.eventually("what holds all that is left is told", func() bool {
				return isUnreachable(h.Held(t.Context()), test.name)
			}, func() string { return fmt.Sprint(h.Held(t.Context())) })
		})
	}
}

// waiting is a Reporter whose downloads wait.
type waiting struct {
	Reporter
	before func(context.Context)
}

func (r waiting) Download(ctx context.Context, id string, resume reporter.Resume) (*reporter.Download, error) {
	r.before(ctx)
	return r.Reporter.Download(ctx, id, resume)
}

func isUnreachable(err error, service string) bool {
	return errors.Is(err, ErrUnreachable) && strings.HasPrefix(err.Error(), service)
}
