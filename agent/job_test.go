package agent

import (
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
