package agent

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"recibo/hub"
	"recibo/rest"
	"recibo/sandbox"
	"recibo/setting"
	"recibo/store"
)

// due adds reports and admits an event about each.
func (h *house) due(n int, report sandbox.Report) []string {
	h.t.Helper()
	ids := make([]string, n)
	batch := make([]hub.Delivery, n)
	for i := range n {
		ids[i] = h.reporter.Add(report).ID
		batch[i] = delivery("e-"+ids[i], hub.ReportFinished, ids[i])
	}
	if _, err := h.Admit(h.t.Context(), batch); err != nil {
		h.t.Fatal(err)
	}
	return ids
}

// home waits until all reports are delivered and returns how long that took.
func (h *house) home(ids []string) time.Duration {
	h.t.Helper()
	begun := time.Now()
	h.eventually(fmt.Sprintf("%d reports delivered", len(ids)), func() bool {
		return h.count(store.Delivered) >= int64(len(ids))
	}, func() string {
		stats, _ := h.Ledger.Stats(h.t.Context())
		return fmt.Sprintf("%v\n%+v", stats.Receipts[store.Report], h.Agent.Reporter.Gates())
	})
	return time.Since(begun)
}

func (h *house) count(state store.State) int64 {
	h.t.Helper()
	stats, err := h.Ledger.Stats(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return stats.Count(state)
}

// TestAnOutageOfReporterParksNothing: Reporter is away for twenty times as long as a report's whole budget would last if
// the outage spent it. Two houses wait it out together, one for each way of being away.
func TestAnOutageOfReporterParksNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("an outage of 20 s")
	}
	const (
		outage  = 20 * time.Second
		reports = 300
	)
	houses, ids := map[string]*house{}, map[string][]string{}
	for name, mode := range map[string]sandbox.DownMode{"refused": sandbox.Refuse, "unavailable": sandbox.Unavailable} {
		h := newHouse(t, func(p *plan) {
			p.agent.Backoff = setting.Range{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
			p.options = rest.Options{} // the waits between probes as they are in a house
		})
		h.reporter.Down(mode)
		h.work()
		houses[name], ids[name] = h, h.due(reports, sandbox.Report{Size: 2000})
	}
	<-time.After(outage)
	asked := map[string]int{}
	for name, h := range houses {
		for _, id := range ids[name] {
			if r := h.receipt(id); r.State != store.Pending || r.Attempts != 0 || r.Due.IsZero() || len(r.Timeline) > 1 {
				t.Fatalf("%s, after the outage:\n%s", name, describeReceipt(r))
			}
		}
		asked[name] = h.reporter.Requests().WhileDown
		if asked[name] == 0 || asked[name] >= 60 {
			t.Errorf("%s: %d requests during the outage, want some and fewer than 60", name, asked[name])
		}
		h.reporter.Down(sandbox.Up)
	}
	for name, h := range houses {
		took := h.home(ids[name]) // within patience, a minute
		t.Logf("%s: %d requests during %s; all home within %s", name, asked[name], outage, took.Round(time.Millisecond))
		if n := h.count(store.Parked); n > 0 {
			t.Errorf("%s: %d reports parked", name, n)
		}
		for _, id := range ids[name] {
			if r := h.receipt(id); notes(r, "attempt ") > 0 {
				t.Errorf("%s: the outage was held against a report:\n%s", name, describeReceipt(r))
			}
		}
		if got := h.reporter.Requests().Downloads; got != reports {
			t.Errorf("%s: %d downloads of %d reports", name, got, reports)
		}
	}
}

// TestAnOutageInTheMiddle: what an outage breaks off costs one attempt at most, and only what was under way.
func TestAnOutageInTheMiddle(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.work()
	ids := h.due(40, sandbox.Report{Size: 50_000, Faults: []sandbox.Fault{{Kind: sandbox.SlowBytes, Bytes: 5000, Interval: 10 * time.Millisecond}}})
	h.eventually("some downloads are under way", func() bool { return len(h.Transfers()) > 1 }, func() string { return "" })
	before := h.reporter.Requests().WhileDown
	h.reporter.Down(sandbox.Refuse)
	h.eventually("the outage is noticed", func() bool { return h.reporter.Requests().WhileDown >= before+3 }, func() string { return "" })
	h.reporter.Down(sandbox.Up)
	h.home(ids)
	broken := 0
	for _, id := range ids {
		r := h.receipt(id)
		n := notes(r, "attempt ")
		if n > 1 {
			t.Errorf("one outage spent %d attempts:\n%s", n, describeReceipt(r))
		}
		broken += min(n, 1)
		h.sound(id)
	}
	if workers := h.Config.Workers; broken > workers {
		t.Errorf("%d reports were broken off with %d workers", broken, workers)
	}
}

// TestARateLimitSetsThePaceAndSpendsNothing: v1.1 grants ten downloads a window, and says so.
func TestARateLimitSetsThePaceAndSpendsNothing(t *testing.T) {
	t.Parallel()
	const limit, windows = 10, 5
	h := newHouse(t, func(p *plan) {
		p.options = rest.Options{}
		p.sandbox.Reporter.DownloadLimit, p.sandbox.Reporter.Window = limit, 2*time.Second
	})
	h.work()
	ids := h.due(limit*windows, sandbox.Report{Size: 2000})
	took := h.home(ids)
	asked := h.reporter.Requests()
	t.Logf("%d reports home in %s, %d downloads, %d of them answered 429", len(ids), took.Round(time.Millisecond), asked.Downloads, asked.Limited)
	// The first window can't be known before its first answer, and each window's end only to the second.
	if most := 2 * windows; asked.Limited > most {
		t.Errorf("%d answers of 429, want at most %d", asked.Limited, most)
	}
	for _, id := range ids {
		if r := h.receipt(id); notes(r, "attempt ") > 0 {
			t.Errorf("the limit was held against a report:\n%s", describeReceipt(r))
		}
	}
}

// TestWhatIsSlowForOneReportNeverDelaysAnother has one report in trouble of its own, and many that are well.
func TestWhatIsSlowForOneReportNeverDelaysAnother(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		report sandbox.Report
		change func(*plan)
	}{
		"slow bytes": {report: sandbox.Report{Size: 100_000,
			Faults: []sandbox.Fault{{Kind: sandbox.SlowBytes, Bytes: 100, Interval: time.Second}}, Sticky: true}},
		"a header that never comes": {report: sandbox.Report{Faults: []sandbox.Fault{{Kind: sandbox.Hang}}, Sticky: true}},
		"a description that never comes": {report: sandbox.Report{
			Faults: []sandbox.Fault{{Class: sandbox.ClassGet, Kind: sandbox.Hang}}, Sticky: true}},
		"no file": {report: sandbox.Report{Faults: []sandbox.Fault{{Kind: sandbox.MissingFile}}, Sticky: true},
			change: func(p *plan) { p.agent.Backoff = setting.Range{Min: 100 * time.Millisecond, Max: time.Minute} }},
		"no file, 2026": {report: sandbox.Report{Faults: []sandbox.Fault{{Kind: sandbox.MissingFile}}, Sticky: true},
			change: func(p *plan) {
				p.sandbox.Reporter.Era = sandbox.V2026
				p.agent.Backoff = setting.Range{Min: 100 * time.Millisecond, Max: time.Minute}
			}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, func(p *plan) {
				p.agent.Shutdown = 10 * time.Millisecond
				if test.change != nil {
					test.change(p)
				}
			})
			h.work()
			bad := h.due(1, test.report)[0]
			h.eventually("the bad one is under way", func() bool {
				asked := h.reporter.Requests()
				return asked.DownloadsOf[bad] > 0 || asked.GetsOf[bad] > 0
			}, func() string { return "" })
			h.home(h.due(100, sandbox.Report{Size: 2000}))
			if r := h.receipt(bad); r.State != store.Pending {
				t.Errorf("the bad one was to last longer than the others:\n%s", describeReceipt(r))
			}
		})
	}
}

// TestAQueueOfLargeDownloadsDelaysNoPartial: describing has workers of its own, and however many wait for a download, the
// ledger is looked at for what is due behind them.
func TestAQueueOfLargeDownloadsDelaysNoPartial(t *testing.T) {
	t.Parallel()
	for _, queued := range []int{100, 1500, 4500} { // above what waits to be described, and above what one look passes over
		t.Run(strconv.Itoa(queued), func(t *testing.T) {
			t.Parallel()
			if testing.Short() && queued > 1500 {
				t.Skip("thousands of descriptions")
			}
			h := newHouse(t, func(p *plan) { p.agent.Shutdown = 10 * time.Millisecond })
			h.work()
			h.due(queued, sandbox.Report{Size: 200_000, Faults: []sandbox.Fault{{Kind: sandbox.SlowBytes, Bytes: 100, Interval: time.Second}}})
			partial := h.reporter.Add(sandbox.Report{Status: sandbox.Partial, Metadata: map[string]any{"sections": []string{"core"}}})
			h.event("e-partial", hub.ReportPartial, partial.ID)
			h.eventually("every worker is busy with a large one", func() bool { return len(h.Transfers()) >= h.Config.Workers },
				func() string { return fmt.Sprintf("%+v", h.Transfers()) })
			begun := time.Now()
			h.until(partial.ID, "the partial is recorded", in(store.Partial))
			t.Logf("recorded %s after the workers were busy, %d descriptions", time.Since(begun).Round(time.Millisecond), h.reporter.Requests().Gets)
			if n := h.count(store.Delivered); n > 0 {
				t.Errorf("%d large ones ended before: they were to hold every worker", n)
			}
		})
	}
}
