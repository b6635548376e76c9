package agent

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"recibo/fetcher"
	"recibo/rest"
	"recibo/sandbox"
	"recibo/store"
)

// TestResultsGoIntoTheFoldersOfTheirSources has two sources with folders of their own, and one without.
func TestResultsGoIntoTheFoldersOfTheirSources(t *testing.T) {
	t.Parallel()
	h := newHouse(t, several(3, func(p *plan) {
		p.jobs.own, p.jobs.manifest = []string{"", "first", "second"}, true
	}))
	h.work()
	var ids []string
	want := map[string]string{}
	for i := range h.fetchers {
		id := h.completes(i, sandbox.Job{}).ID
		r := h.untilJob(id, "delivery", in(store.Delivered))
		if r.Source != sourceName(i) {
			t.Errorf("source %q", r.Source)
		}
		ids = append(ids, id)
		want[id+".json"] = "sound"
		h.soundJob(i, id)
	}
	for i, id := range ids {
		for j, dir := range []string{h.dir, "first", "second"} {
			if j > 0 {
				dir = filepath.Join(filepath.Dir(h.dir), dir)
			}
			for _, name := range []string{id + ".json", id + ".json.receipt.json"} {
				if isThere(dir, name) != (i == j) {
					t.Errorf("%s in %s: %v", name, dir, i != j)
				}
			}
		}
	}
	h.verifies(want)
}

// TestAFolderThatIsGonePausesOnlyItsOwnJobs takes the folder of one source away; with one worker the others go on.
func TestAFolderThatIsGonePausesOnlyItsOwnJobs(t *testing.T) {
	t.Parallel()
	h := newHouse(t, several(2, func(p *plan) {
		p.agent.Workers, p.jobs.own = 1, []string{"", "own"}
	}))
	h.work()
	own := filepath.Join(filepath.Dir(h.dir), "own")
	first := h.completes(1, sandbox.Job{}).ID
	h.untilJob(first, "delivery into its own folder", in(store.Delivered))
	if err := os.Rename(own, own+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(own, 0o755); err != nil { // as the mount point of a share that is not mounted
		t.Fatal(err)
	}
	var waits []string
	for range 10 {
		waits = append(waits, h.completes(1, sandbox.Job{}).ID)
	}
	h.eventually("its jobs are paused", func() bool {
		s, err := h.Status(t.Context())
		return err == nil && s.Folder != ""
	}, func() string { return "" })
	if s, _ := h.Status(t.Context()); true {
		readable(t, s.Folder, own)
	}
	report := h.reporter.Add(sandbox.Report{})
	h.event("e-1", "report.finished", report.ID)
	h.until(report.ID, "delivery of a report", in(store.Delivered))
	for range 3 {
		id := h.completes(0, sandbox.Job{}).ID
		h.untilJob(id, "delivery of the other source's", in(store.Delivered))
		h.soundJob(0, id)
	}
	for _, id := range waits {
		if r := h.receiptOf(jobKey(id)); r.State != store.Pending || r.Attempts != 0 || r.Due.IsZero() || notes(r, "attempt ") > 0 {
			t.Errorf("without its folder:\n%s", describeReceipt(r))
		}
	}
	if left, _ := os.ReadDir(own); len(left) > 0 {
		t.Errorf("written into a folder that is not ours: %v", left)
	}
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(own+".away", own); err != nil {
		t.Fatal(err)
	}
	for _, id := range waits {
		h.untilJob(id, "delivery once the folder is back", in(store.Delivered))
		h.soundJob(1, id)
	}
	if visible, staged := filesIn(t, own); len(visible) != 11 || len(staged) > 0 {
		t.Errorf("the folder holds %q, staged %q", visible, staged)
	}
}

// TestAJobOfAnUnknownSourceIsFoundWhereItIs: whoever knows it is found, whatever the others answer.
func TestAJobOfAnUnknownSourceIsFoundWhereItIs(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*sandbox.Fetcher){
		"all are well":          func(*sandbox.Fetcher) {},
		"one is down":           func(f *sandbox.Fetcher) { f.Down(true) },
		"one refuses the token": func(f *sandbox.Fetcher) { f.Refuse(http.StatusUnauthorized) },
		"one is in trouble":     func(f *sandbox.Fetcher) { f.Refuse(http.StatusServiceUnavailable) },
		"one answers nonsense":  func(f *sandbox.Fetcher) { f.Refuse(http.StatusTeapot) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, several(3, func(p *plan) {
				p.jobs.own = []string{"", "", "third"}
				p.options = rest.Options{ProbeBase: time.Hour, ProbeCap: time.Hour} // whoever waits for a closed gate waits for ever
			}))
			spoil(h.fetchers[0])
			var ids []string
			for range 30 {
				ids = append(ids, h.ended(2, sandbox.Job{}).ID)
			}
			h.work()
			h.watches(ids...)
			for _, id := range ids {
				r := h.untilJob(id, "delivery", in(store.Delivered))
				if r.Source != sourceName(2) || r.Authority != byFetcher || r.Attempts != 0 || notes(r, "attempt ") > 0 {
					t.Errorf("found at %q by the word of %s:\n%s", r.Source, r.Authority, describeReceipt(r))
				}
				h.soundJob(2, id)
				if n := h.fetchers[2].Requests()[id]; n != 1 {
					t.Errorf("the one that knows it was asked %d times", n)
				}
			}
			h.eventually("nothing is left in work", func() bool { return h.Active() == 0 }, func() string { return "" })
		})
	}
}

// TestAJobThatOneFetcherMayKnowIsNotGivenUp: one that does not answer may be the one that knows it.
func TestAJobThatOneFetcherMayKnowIsNotGivenUp(t *testing.T) {
	t.Parallel()
	h := newHouse(t, several(3, func(p *plan) { p.agent.Attempts = 2 }))
	h.fetchers[1].Down(true)
	there, nowhere := h.ended(1, sandbox.Job{}).ID, unknownJobs(1)[0]
	h.work()
	h.watches(there, nowhere)
	h.eventually("the two that are well have been asked, and the third is probed", func() bool {
		closed, _ := h.closed()
		return closed && h.fetchers[0].Requests()[there] > 1 && h.fetchers[2].Requests()[there] > 1
	}, func() string { return fmt.Sprint(h.fetchers[0].Requests(), h.fetchers[2].Requests()) })
	for _, id := range []string{there, nowhere} {
		if r := h.receiptOf(jobKey(id)); r.State != store.Expected || r.Attempts != 0 || notes(r, "attempt ") > 0 || r.Due.IsZero() {
			t.Errorf("while one is away:\n%s", describeReceipt(r))
		}
	}
	h.fetchers[1].Down(false)
	r := h.untilJob(there, "delivery once it is back", in(store.Delivered))
	if r.Source != sourceName(1) {
		t.Errorf("found at %q", r.Source)
	}
	h.soundJob(1, there)
	r = h.untilJob(nowhere, "given up once all have said that they don't know it", in(store.Parked))
	readable(t, r.Reason, "FET-1001")
	if r.Attempts != 2 {
		t.Errorf("%d attempts", r.Attempts)
	}
}

// TestAJobIsAskedAboutAtItsOwnFetcherOnly, once its source is known.
func TestAJobIsAskedAboutAtItsOwnFetcherOnly(t *testing.T) {
	t.Parallel()
	h := newHouse(t, several(2))
	h.work()
	job := h.ended(1, sandbox.Job{})
	h.announced(h.message(1, job.ID, sandbox.Emission{Status: sandbox.JobFailed}), h.message(1, job.ID, sandbox.Emission{}))
	r := h.untilJob(job.ID, "delivery", in(store.Delivered))
	other, own := h.fetchers[0].Requests()[job.ID], h.fetchers[1].Requests()[job.ID]
	if r.Authority != byFetcher || own != 1 || other != 0 {
		t.Errorf("by the word of %s, asked %d times, and another %d times", r.Authority, own, other)
	}
}

// TestAJobOfASourceThatIsGoneIsParked with the reason, and comes home once its source is back.
func TestAJobOfASourceThatIsGoneIsParked(t *testing.T) {
	t.Parallel()
	h := newHouse(t, several(2))
	job := h.ended(1, sandbox.Job{})
	h.announced(h.message(1, job.ID, sandbox.Emission{}))
	h.restarts(func(c *fetcher.Config, _ []*sandbox.Fetcher) { c.Sources = c.Sources[:1] })
	r := h.untilJob(job.ID, "parked", in(store.Parked))
	readable(t, r.Reason, sourceName(1))
	h.restarts(nil)
	h.retries(job.ID)
	h.untilJob(job.ID, "delivery", in(store.Delivered))
	h.soundJob(1, job.ID)
	if r := h.receiptOf(jobKey(job.ID)); time.Since(r.Newest().Published) < 0 || r.Attempts != 0 {
		t.Errorf("delivered with:\n%s", describeReceipt(r))
	}
}
