package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"recibo/fetcher"
	"recibo/hub"
	"recibo/sandbox"
	"recibo/store"
)

// oracle answers GET /v1/fetcher/{id} as it is told to.
type oracle struct {
	server *httptest.Server

	mu     sync.Mutex
	answer string
	asked  map[string]int
	jobs   map[string]map[string]any // answers, by answer and id
}

func newOracle(t *testing.T) *oracle {
	o := &oracle{answer: "same", asked: map[string]int{}, jobs: map[string]map[string]any{"same": {}, "other": {}}}
	o.server = httptest.NewServer(o)
	t.Cleanup(o.server.Close)
	return o
}

func (o *oracle) says(answer string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = answer
}

// knows lets it tell of a job with the result of another one, which may be its own.
func (o *oracle) knows(answer, id string, f *sandbox.Fetcher, result string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.jobs[answer][id] = map[string]any{
		"id": id, "status": "completed", "createdAt": "2026-06-24T12:00:00Z", "completedAt": "2026-06-24T12:00:42Z",
		"resultPath": f.Key(result), "resultHmac": hmacOf(f, result), "metadata": map[string]any{"source": "oracle"},
	}
}

func (o *oracle) of(id string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked[id]
}

func (o *oracle) total() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, times := range o.asked {
		n += times
	}
	return n
}

func (o *oracle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := path.Base(r.URL.Path)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked[id]++
	reply := func(status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	switch o.answer {
	case "same", "other":
		reply(http.StatusOK, o.jobs[o.answer][id])
	case "failed":
		reply(http.StatusOK, map[string]any{"id": id, "status": "failed", "metadata": map[string]any{"error": "no such table"}})
	case "processing":
		reply(http.StatusOK, map[string]any{"id": id, "status": "processing"})
	case "unknown":
		reply(http.StatusNotFound, map[string]any{"code": "FET-1001", "title": "Entity Not Found", "message": "No job was found."})
	case "malformed":
		_, _ = w.Write([]byte("<html>welcome to the gateway</html>"))
	default:
		panic(http.ErrAbortHandler)
	}
}

// hmacOf is what an event says of a job's result.
func hmacOf(f *sandbox.Fetcher, id string) string {
	m, err := f.Message(id, sandbox.Emission{Status: sandbox.JobCompleted})
	if err != nil {
		return err.Error()
	}
	said, err := fetcher.ParseAnnounced(m.Body)
	if err != nil {
		return err.Error()
	}
	return said.Result.HMAC
}

// settlements has what becomes of a job, by what its events say, what Fetcher says when it is asked, and whether an earlier
// question has brought the result home: state, by whose word (event, fetcher or nobody's), the files (A is the result that
// the event announces, B the other one that Fetcher may tell of), and how often Fetcher was asked and a result fetched. With
// "asked" a person asks about a job whose event says failed. Two attempts are all that a job has.
const settlements = `
events     fetcher     | first                     | home already

none       same        | delivered fetcher A  1+1  | delivered fetcher A  1+0
none       other       | delivered fetcher B  1+1  | delivered fetcher AB 1+1
none       failed      | failed    fetcher -  1+0  | delivered fetcher A  1+0
none       processing  | expected  fetcher -  1+0  | delivered fetcher A  1+0
none       unknown     | parked    -       -  2+0  | delivered fetcher A  2+0
none       malformed   | pending   -       -  1+0  | delivered fetcher A  1+0
none       down        | pending   -       -  ?+0  | delivered fetcher A  ?+0
none       not-there   | expected  -       -  0+0  | delivered fetcher A  0+0

completed  same        | delivered event   A  0+1  | delivered event   A  0+0
completed  other       | delivered event   A  0+1  | delivered event   A  0+0
completed  failed      | delivered event   A  0+1  | delivered event   A  0+0
completed  processing  | delivered event   A  0+1  | delivered event   A  0+0
completed  unknown     | delivered event   A  0+1  | delivered event   A  0+0
completed  malformed   | delivered event   A  0+1  | delivered event   A  0+0
completed  down        | delivered event   A  0+1  | delivered event   A  0+0
completed  not-there   | delivered event   A  0+1  | delivered event   A  0+0

failed     same        | failed    event   -  0+0  | delivered fetcher A  0+0
failed     other       | failed    event   -  0+0  | delivered fetcher A  0+0
failed     failed      | failed    event   -  0+0  | delivered fetcher A  0+0
failed     processing  | failed    event   -  0+0  | delivered fetcher A  0+0
failed     unknown     | failed    event   -  0+0  | delivered fetcher A  0+0
failed     malformed   | failed    event   -  0+0  | delivered fetcher A  0+0
failed     down        | failed    event   -  0+0  | delivered fetcher A  0+0
failed     not-there   | failed    event   -  0+0  | delivered fetcher A  0+0

asked      same        | delivered fetcher A  1+1  | delivered fetcher A  1+0
asked      other       | delivered fetcher B  1+1  | delivered fetcher AB 1+1
asked      failed      | failed    fetcher -  1+0  | delivered fetcher A  1+0
asked      processing  | failed    fetcher -  1+0  | delivered fetcher A  1+0
asked      unknown     | parked    event   -  2+0  | delivered fetcher A  2+0
asked      malformed   | failed    event   -  1+0  | delivered fetcher A  1+0
asked      down        | failed    event   -  ?+0  | delivered fetcher A  ?+0
asked      not-there   | failed    event   -  0+0  | delivered fetcher A  0+0

both       same        | delivered fetcher A  1+1  | delivered fetcher A  1+0
both       other       | delivered fetcher B  1+1  | delivered fetcher AB 1+1
both       failed      | failed    fetcher -  1+0  | delivered fetcher A  1+0
both       processing  | expected  fetcher -  1+0  | delivered fetcher A  1+0
both       unknown     | parked    -       -  2+0  | delivered fetcher A  2+0
both       malformed   | pending   -       -  1+0  | delivered fetcher A  1+0
both       down        | pending   -       -  ?+0  | delivered fetcher A  ?+0
both       not-there   | delivered event   A  0+1  | delivered event   A  0+0

contested  same        | delivered fetcher A  1+1  | delivered fetcher A  1+0
contested  other       | delivered fetcher B  1+1  | delivered fetcher AB 1+1
contested  failed      | failed    fetcher -  1+0  | delivered fetcher A  1+0
contested  processing  | expected  fetcher -  1+0  | delivered fetcher A  1+0
contested  unknown     | parked    -       -  2+0  | delivered fetcher A  2+0
contested  malformed   | pending   -       -  1+0  | delivered fetcher A  1+0
contested  down        | pending   -       -  ?+0  | delivered fetcher A  ?+0
contested  not-there   | delivered event   A  0+1  | delivered event   A  0+0
`

// settlement is one line of settlements for one job.
type settlement struct {
	events, answer, want string
	home                 bool
	job, other           sandbox.Job
}

func (s *settlement) name() string { return fmt.Sprintf("%s, %s, home %v", s.events, s.answer, s.home) }

func readSettlements() map[string][]*settlement {
	all := map[string][]*settlement{}
	for _, line := range strings.Split(settlements, "\n")[2:] {
		if line == "" {
			continue
		}
		columns := strings.Split(line, "|")
		words := strings.Fields(columns[0])
		for i, want := range columns[1:] {
			all[words[1]] = append(all[words[1]], &settlement{
				events: words[0], answer: words[1], want: strings.Join(strings.Fields(want), " "), home: i == 1,
			})
		}
	}
	return all
}

// TestByWhoseWordAJobIsSettled goes through settlements, with one house for each thing that Fetcher may say.
func TestByWhoseWordAJobIsSettled(t *testing.T) {
	t.Parallel()
	all := readSettlements()
	if n := len(slices.Concat(slices.Collect(maps.Values(all))...)); n != 6*8*2 {
		t.Fatalf("%d settlements", n)
	}
	for answer, cells := range all {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			o, asks := newOracle(t), atomic.Bool{}
			asks.Store(true)
			fetched := &results{asks: asks.Load}
			h := newHouse(t, jobs(counted(fetched), func(p *plan) {
				p.agent.Attempts = 2
				p.jobs.section = func(c *fetcher.Config, _ []*sandbox.Fetcher) { c.URL = o.server.URL }
			}))
			f := h.fetchers[0]
			for i, c := range cells {
				c.job = h.ended(0, sandbox.Job{Size: int64(3000 + 10*i), NoEvent: true})
				c.other = h.ended(0, sandbox.Job{Size: int64(9000 + 10*i), NoEvent: true})
				o.knows("same", c.job.ID, f, c.job.ID)
				o.knows("other", c.job.ID, f, c.other.ID)
			}
			h.work()
			for _, c := range cells {
				if c.home {
					h.asksFor(c.job.ID)
					h.untilJob(c.job.ID, "the result to be home before", in(store.Delivered))
				}
			}
			asked, before := o.total(), map[string][2]int{}
			for _, c := range cells {
				before[c.job.ID] = [2]int{o.of(c.job.ID), fetched.of(c.job.ID)}
			}
			o.says(answer)
			asks.Store(answer != "not-there")
			for _, c := range cells {
				h.happens(c)
			}
			if answer == "down" {
				h.eventually("Fetcher's gate is closed and it is probed", func() bool {
					closed, _ := h.closed()
					return closed && o.total() >= asked+6
				}, func() string { return fmt.Sprint(o.total(), asked) })
			}
			var files []string
			for _, c := range cells {
				r := h.settledAs(c)
				got := fmt.Sprintf("%s %s %s %s+%d", r.State, wordOf(r), h.filesOf(r, c),
					countOf(c, o.of(c.job.ID)-before[c.job.ID][0]), fetched.of(c.job.ID)-before[c.job.ID][1])
				if got != c.want {
					t.Errorf("%s:\n got %s\nwant %s\n%s", c.name(), got, c.want, describeReceipt(r))
				}
				if r.Contested != (c.events == "contested") {
					t.Errorf("%s: contested %v", c.name(), r.Contested)
				}
				for _, f := range r.Files {
					files = append(files, f.Name)
				}
			}
			h.holds(files...)
		})
	}
}

// happens brings the events of one line about.
func (h *house) happens(c *settlement) {
	h.t.Helper()
	completed := func() hub.Delivery { return h.message(0, c.job.ID, sandbox.Emission{}) }
	failed := func() hub.Delivery { return h.message(0, c.job.ID, sandbox.Emission{Status: sandbox.JobFailed}) }
	changed := h.message(0, c.job.ID, sandbox.Emission{Body: func(body []byte) []byte {
		return []byte(strings.Replace(string(body), `"source":"reporter"`, `"source":"somebody else"`, 1))
	}})
	switch c.events {
	case "none":
		h.asksFor(c.job.ID)
	case "completed":
		h.announced(completed())
	case "failed":
		h.announced(failed())
	case "asked":
		h.announced(failed())
		h.untilJob(c.job.ID, "the failure to be recorded", func(r *store.Receipt) bool { return r.Handled == r.Generation })
		h.asksFor(c.job.ID)
	case "both":
		h.announced(failed(), completed())
	case "contested":
		if got := h.announced(completed(), changed); got[1] != hub.Quarantined {
			h.t.Errorf("another body under the same id: outcome %v", got)
		}
	}
}

// settledAs waits until there is nothing more to do about a job for now.
func (h *house) settledAs(c *settlement) *store.Receipt {
	h.t.Helper()
	if strings.Contains(c.want, "?") { // it waits at the gate
		r := h.receiptOf(jobKey(c.job.ID))
		if r.Attempts != 0 || r.Due.IsZero() || notes(r, "attempt ") > 0 || r.Handled == r.Generation {
			h.t.Errorf("%s: the service was away, and the job paid for it:\n%s", c.name(), describeReceipt(r))
		}
		return r
	}
	return h.untilJob(c.job.ID, c.name(), func(r *store.Receipt) bool {
		return r.Handled == r.Generation && (r.Due.IsZero() || time.Until(r.Due) > 500*time.Millisecond)
	})
}

func wordOf(r *store.Receipt) string {
	switch r.Authority {
	case bySignedEvent:
		return "event"
	case "":
		return "-"
	}
	return r.Authority
}

// filesOf says of which results there are files, in the order of their revisions.
func (h *house) filesOf(r *store.Receipt, c *settlement) string {
	h.t.Helper()
	files := ""
	for i, f := range r.Files {
		name := c.job.ID + ".json"
		if i > 0 {
			name = fmt.Sprintf("%s-r%d.json", c.job.ID, i+1)
		}
		_, own := h.fetchers[0].Sum(c.job.ID)
		_, other := h.fetchers[0].Sum(c.other.ID)
		switch sum := sumOf(h.t, h.dir+"/"+f.Name); {
		case f.Name != name || f.Revision != i+1 || f.SHA256 != sum || f.Proof != string(fetcher.Verified):
			h.t.Errorf("%s: on record is %+v", c.name(), f)
		case sum == own:
			files += "A"
		case sum == other:
			files += "B"
		}
	}
	if files == "" {
		return "-"
	}
	return files
}

func countOf(c *settlement, n int) string {
	if strings.Contains(c.want, "?") {
		return "?"
	}
	return fmt.Sprint(n)
}

// A contradiction that comes while a result is being brought home is about the next attempt.
func TestAContradictionDuringAnAttemptIsNotLost(t *testing.T) {
	t.Parallel()
	for name, contradict := range map[string]func(*house, string) hub.Delivery{
		"another body": func(h *house, id string) hub.Delivery {
			return h.message(0, id, sandbox.Emission{Body: func(body []byte) []byte {
				return []byte(strings.Replace(string(body), `"source":"reporter"`, `"source":"x"`, 1))
			}})
		},
		"the other end": func(h *house, id string) hub.Delivery {
			return h.message(0, id, sandbox.Emission{Status: sandbox.JobFailed})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOracle(t)
			begun, goOn := make(chan struct{}, 9), make(chan struct{})
			fetched := &results{before: func(ctx context.Context, _ string) {
				begun <- struct{}{}
				select {
				case <-goOn:
				case <-ctx.Done():
				}
			}}
			h := newHouse(t, jobs(counted(fetched), func(p *plan) {
				p.jobs.section = func(c *fetcher.Config, _ []*sandbox.Fetcher) { c.URL = o.server.URL }
			}))
			other := h.ended(0, sandbox.Job{Size: 9000})
			h.work()
			job := h.completes(0, sandbox.Job{})
			o.knows("other", job.ID, h.fetchers[0], other.ID)
			o.says("other")
			<-begun
			h.announced(contradict(h, job.ID))
			if asked := o.of(job.ID); asked > 0 {
				t.Fatalf("asked %d times while an attempt ran", asked)
			}
			close(goOn)
			r := h.untilJob(job.ID, "both handled", func(r *store.Receipt) bool { return r.Generation == 2 && in(store.Delivered)(r) })
			if len(r.Files) != 2 || r.Authority != byFetcher || o.of(job.ID) != 1 || fetched.of(job.ID) != 2 {
				t.Errorf("%d files by the word of %s, asked %d times, fetched %d times\n%s",
					len(r.Files), r.Authority, o.of(job.ID), fetched.of(job.ID), describeReceipt(r))
			}
			h.holds(job.ID+".json", job.ID+"-r2.json")

			// What Fetcher decided is not taken back by the event when the job comes up again.
			h.retries(job.ID)
			r = h.untilJob(job.ID, "the retry", func(r *store.Receipt) bool { return r.Generation == 3 && in(store.Delivered)(r) })
			if len(r.Files) != 2 || r.Authority != byFetcher || o.of(job.ID) != 2 || fetched.of(job.ID) != 2 {
				t.Errorf("after a retry %d files by the word of %s, asked %d times, fetched %d times\n%s",
					len(r.Files), r.Authority, o.of(job.ID), fetched.of(job.ID), describeReceipt(r))
			}
		})
	}
}

// What Fetcher decided about a contradiction holds until it has come home: a failed attempt does not fall back on the event.
func TestAContradictionOutlivesAnAttemptThatFails(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	h := newHouse(t, jobs(func(p *plan) {
		p.jobs.section = func(c *fetcher.Config, _ []*sandbox.Fetcher) { c.URL = o.server.URL }
	}))
	f := h.fetchers[0]
	job, other := h.ended(0, sandbox.Job{Size: 3000}), h.ended(0, sandbox.Job{Size: 9000})
	o.knows("other", job.ID, f, other.ID)
	o.says("other")
	f.Objects.Cut(f.Key(other.ID), 2)
	h.work()
	h.announced(h.message(0, job.ID, sandbox.Emission{}), h.message(0, job.ID, sandbox.Emission{Body: func(body []byte) []byte {
		return []byte(strings.Replace(string(body), `"source":"reporter"`, `"source":"x"`, 1))
	}}))
	r := h.untilJob(job.ID, "delivery", in(store.Delivered))
	_, sum := f.Sum(other.ID)
	if len(r.Files) != 1 || r.Files[0].SHA256 != sum || r.Authority != byFetcher {
		t.Errorf("%d files, by the word of %s\n%s", len(r.Files), r.Authority, describeReceipt(r))
	}
	if asked := o.of(job.ID); asked != 3 || notes(r, "attempt ") != 2 {
		t.Errorf("asked %d times, want once for each attempt\n%s", asked, describeReceipt(r))
	}
}

// An event that comes while its job waits for its turn to be asked about is all that is needed.
func TestAnEventIsEnoughForAJobThatWaitsToBeAskedAbout(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs())
	h.fetchers[0].Down(true)
	h.work()
	const n = 20
	ids := make([]string, n)
	for i := range ids {
		ids[i] = h.ended(0, sandbox.Job{}).ID
	}
	h.watches(ids...)
	h.eventually("all wait for Fetcher", func() bool {
		closed, _ := h.closed()
		return closed && h.Active() == n
	}, func() string { return fmt.Sprint(h.Active(), " active") })
	for _, id := range ids {
		h.announced(h.message(0, id, sandbox.Emission{}))
	}
	for _, id := range ids {
		r := h.untilJob(id, "delivery", in(store.Delivered))
		if r.Authority != bySignedEvent || len(r.Files) != 1 {
			t.Errorf("by the word of %s, %d files", r.Authority, len(r.Files))
		}
	}
	if closed, _ := h.closed(); !closed {
		t.Error("Fetcher was to be away all the time")
	}
	h.fetchers[0].Down(false)
	h.eventually("nothing is left in work", func() bool { return h.Active() == 0 }, func() string { return "" })
	for _, id := range ids {
		h.soundJob(0, id)
		if asked := h.fetchers[0].Requests()[id]; asked > 0 {
			t.Errorf("asked %d times about what its event had told", asked)
		}
	}
}

// The same result once more costs no download, whatever brought it up and whoever forced it before.
func TestAResultOnRecordIsNotFetchedAgain(t *testing.T) {
	t.Parallel()
	fetched := &results{}
	h := newHouse(t, jobs(counted(fetched)))
	h.work()
	job := h.completes(0, sandbox.Job{})
	h.untilJob(job.ID, "delivery", in(store.Delivered))
	if _, err := h.Fetch(t.Context(), []store.Key{jobKey(job.ID)}, true); err != nil {
		t.Fatal(err)
	}
	h.untilJob(job.ID, "the forced one", func(r *store.Receipt) bool { return r.Generation == 2 && in(store.Delivered)(r) })
	h.asksFor(job.ID)
	r := h.untilJob(job.ID, "the unforced one", func(r *store.Receipt) bool { return r.Generation == 3 && in(store.Delivered)(r) })
	if fetched.of(job.ID) != 2 || len(r.Files) != 1 || r.Settled != "hmac "+hmacOf(h.fetchers[0], job.ID) {
		t.Errorf("fetched %d times, settled %q\n%s", fetched.of(job.ID), r.Settled, describeReceipt(r))
	}
	h.holds(job.ID + ".json")
}

// TestAReleaseDecidesAContradiction where there is nobody to ask: what a person releases overrides what was announced.
func TestAReleaseDecidesAContradiction(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs(counted(&results{asks: never})))
	h.work()
	job, other := h.completes(0, sandbox.Job{Size: 3000}), h.ended(0, sandbox.Job{Size: 9000})
	h.untilJob(job.ID, "the first word", in(store.Delivered))
	said, err := h.fetchers[0].Message(other.ID, sandbox.Emission{})
	if err != nil {
		t.Fatal(err)
	}
	second := h.message(0, job.ID, sandbox.Emission{Body: func([]byte) []byte {
		return []byte(strings.Replace(string(said.Body), `"jobId":"`+other.ID, `"jobId":"`+job.ID, 1))
	}})
	for range 3 {
		if got := h.announced(second); got[0] != hub.Quarantined {
			t.Errorf("outcome %v", got)
		}
	}
	r := h.untilJob(job.ID, "the contradiction looked at", func(r *store.Receipt) bool { return r.Generation == 2 && in(store.Delivered)(r) })
	if len(r.Files) != 1 || !r.Contested {
		t.Errorf("contested:\n%s", describeReceipt(r))
	}
	kept, err := h.Ledger.Quarantine(t.Context(), 0, 10)
	if err != nil || len(kept) != 1 || kept[0].Times != 3 {
		t.Fatalf("in quarantine: %+v, %v", kept, err)
	}
	k, outcome, err := h.Release(t.Context(), &kept[0], "")
	if k != jobKey(job.ID) || outcome != store.Admitted || err != nil {
		t.Fatalf("released: %v, %v, %v", k, outcome, err)
	}
	r = h.untilJob(job.ID, "what was released", func(r *store.Receipt) bool { return r.Generation == 3 && in(store.Delivered)(r) })
	_, sum := h.fetchers[0].Sum(other.ID)
	if len(r.Files) != 2 || r.Newest().SHA256 != sum || r.Authority != bySignedEvent || r.Contested {
		t.Errorf("released: %+v\n%s", r.Files, describeReceipt(r))
	}
	h.holds(job.ID+".json", job.ID+"-r2.json")
}

// TestAnEventThatCanNoLongerBeReadIsAskedAbout: it was verified when it came, so it is damage, and Fetcher knows.
func TestAnEventThatCanNoLongerBeReadIsAskedAbout(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs())
	job := h.ended(0, sandbox.Job{})
	h.announced(h.message(0, job.ID, sandbox.Emission{}))
	h.records(job.ID, func(r *store.Receipt) {
		r.Announced = map[string]json.RawMessage{fetcher.JobCompleted: []byte(`{"jobId":"` + job.ID + `","status":"completed"}`)}
	})
	h.work()
	r := h.untilJob(job.ID, "delivery", in(store.Delivered))
	if r.Authority != byFetcher || h.fetchers[0].Requests()[job.ID] != 1 {
		t.Errorf("by the word of %s, asked %d times", r.Authority, h.fetchers[0].Requests()[job.ID])
	}
	h.soundJob(0, job.ID)
}

// TestManyJobsCanWaitForOneFetcher: more than are weighed at a time wait for their turn to be asked about, and none is put off
// for a while that a service which works would spend idle.
func TestManyJobsCanWaitForOneFetcher(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	h := newHouse(t, jobs(counted(&results{job: func(id string) (*fetcher.Job, error) {
		<-goOn
		return &fetcher.Job{ID: id, Status: fetcher.Failed, Error: "no such table"}, nil
	}})))
	const many = describeBacklog + scanPage
	h.watches(unknownJobs(many)...)
	h.work()
	h.eventually("all wait for their turn", func() bool { return h.Active() == many }, func() string { return fmt.Sprint(h.Active(), " active") })
	close(goOn)
	h.stop()
}

// TestAnAgentThatStopsWhileItsJobsWait leaves them due, whatever they wait for.
func TestAnAgentThatStopsWhileItsJobsWait(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs())
	h.fetchers[0].Objects.Down(true)
	h.fetchers[0].Down(true)
	batch := h.events(0, 20)
	watched := h.ended(0, sandbox.Job{}).ID
	h.announced(batch...)
	h.watches(watched)
	h.work()
	h.eventually("all are in work", func() bool { return h.Active() == len(batch)+1 }, func() string { return fmt.Sprint(h.Active(), " active") })
	h.stop()
	if h.Active() != 0 || h.waiting() != 0 {
		t.Errorf("%d active, %d waiting after the stop", h.Active(), h.waiting())
	}
	for _, id := range append(idsOf(batch), watched) {
		if r := h.receiptOf(jobKey(id)); r.Due.IsZero() || r.Attempts != 0 {
			t.Errorf("after the stop:\n%s", describeReceipt(r))
		}
	}
	h.fetchers[0].Objects.Down(false)
	h.fetchers[0].Down(false)
	h.restarts(nil)
	h.home(append(idsOf(batch), watched))
}
