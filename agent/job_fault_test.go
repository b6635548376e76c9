package agent

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"recibo/fetcher"
	"recibo/sandbox"
	"recibo/store"
)

// front stands before an object store and may answer in its place.
type front struct {
	server *httptest.Server

	mu    sync.Mutex
	fault func(w http.ResponseWriter, r *http.Request) (answered bool)
}

func newFront(t *testing.T, f *sandbox.Fetcher) *front {
	address, err := url.Parse(f.ObjectsURL())
	if err != nil {
		t.Fatal(err)
	}
	connections := &http.Transport{}
	store := httputil.NewSingleHostReverseProxy(address)
	store.Transport, store.ErrorLog = connections, slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	store.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	fr := &front{}
	fr.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fr.mu.Lock()
		fault := fr.fault
		fr.mu.Unlock()
		if fault == nil || !fault(w, r) {
			store.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		fr.server.CloseClientConnections()
		fr.server.Close()
		connections.CloseIdleConnections()
	})
	return fr
}

func (fr *front) meets(fault func(http.ResponseWriter, *http.Request) bool) {
	fr.mu.Lock()
	defer fr.mu.Unlock()
	fr.fault = fault
}

// spoiled is one result in its store, and what can be done to it.
type spoiled struct {
	*house
	front *front
	f     *sandbox.Fetcher
	job   sandbox.Job
	key   string
	good  []byte // the object as it was
}

func (s *spoiled) put(object string) { _ = s.f.Objects.Put(s.key, []byte(object)) }

// troubleOf says what a fault is taken for.
type troubleOf int

const (
	ofStore  troubleOf = iota // its gate closes, and no job pays for it
	ofResult                  // an attempt is counted, and others follow
	ofPeople                  // parked at once
	ofNobody                  // not known yet: no gate closes, and no job pays for it
)

// objectFault is a fault of an object store, or of what is in it.
type objectFault struct {
	spoil    func(*spoiled) // before the event of the job
	class    troubleOf
	reason   string
	requests int // of the object in one attempt; not looked at where the store is in trouble
}

func objectFaults() map[string]objectFault {
	return map[string]objectFault{
		"down":            {func(s *spoiled) { s.f.Objects.Down(true) }, ofStore, "unreachable", 0},
		"no access":       {func(s *spoiled) { s.f.Objects.DenyAll(true) }, ofNobody, "403 AccessDenied", 0},
		"no such user":    {func(s *spoiled) { s.f.Objects.Fail(-1, http.StatusUnauthorized) }, ofStore, "not authorised", 0},
		"server error":    {func(s *spoiled) { s.f.Objects.Fail(-1, http.StatusInternalServerError) }, ofStore, "500", 0},
		"unavailable":     {func(s *spoiled) { s.f.Objects.Fail(-1, http.StatusServiceUnavailable) }, ofStore, "503", 0},
		"no such bucket":  {func(s *spoiled) { s.front.meets(noSuchBucket) }, ofStore, "NoSuchBucket", 0},
		"a silent store":  {func(s *spoiled) { s.front.meets(silence) }, ofStore, "timeout", 0},
		"slow bytes":      {func(s *spoiled) { s.front.meets(slowly(s.good)) }, ofResult, "no byte for", 1},
		"cut":             {func(s *spoiled) { s.f.Objects.Cut(s.key, -1) }, ofResult, "broken off", 2},
		"another size":    {func(s *spoiled) { s.front.meets(s.growing) }, ofResult, "bytes and has", 2},
		"missing":         {func(s *spoiled) { s.f.Objects.Delete(s.key) }, ofResult, "missing", 2},
		"no base64":       {func(s *spoiled) { s.put("{\"rows\":[]}") }, ofResult, "bad encoding", 2},
		"empty":           {func(s *spoiled) { s.put("") }, ofResult, "can't be opened", 2},
		"a line break":    {func(s *spoiled) { s.put(string(s.good[:76]) + "\n" + string(s.good[76:])) }, ofResult, "bad encoding", 2},
		"plaintext":       {func(s *spoiled) { s.put(string(s.f.Plaintext(s.job.ID))) }, ofResult, "bad encoding", 2},
		"a shorter one":   {func(s *spoiled) { s.f.Objects.Truncate(s.key, -8) }, ofResult, "can't be opened", 2},
		"another key":     {func(s *spoiled) { s.f.Objects.PutWrongKey(s.job.ID) }, ofResult, "can't be opened", 2},
		"a flipped bit":   {func(s *spoiled) { s.f.Objects.Flip(s.key, 300) }, ofResult, "can't be opened", 2},
		"a flipped nonce": {func(s *spoiled) { s.f.Objects.Flip(s.key, 3) }, ofResult, "can't be opened", 2},
		"a flipped tag":   {func(s *spoiled) { s.f.Objects.Flip(s.key, -1) }, ofResult, "can't be opened", 2},
		"another length":  {anotherLength, ofResult, "wrong length", 2},
		"another content": {func(s *spoiled) { s.f.Objects.PutOtherContent(s.job.ID) }, ofResult, "wrong HMAC", 2},
		"too large":       {func(s *spoiled) { s.put(strings.Repeat("A", 3<<20)) }, ofPeople, "too large", 1},
	}
}

func noSuchBucket(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusNotFound)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte("<Error><Code>NoSuchBucket</Code><Message>The bucket does not exist.</Message></Error>"))
	}
	return true
}

func silence(_ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}

// slowly sends the half of an object and then nothing more.
func slowly(object []byte) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(object)))
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = w.Write(object[:len(object)/2])
		_ = http.NewResponseController(w).Flush()
		return silence(w, r)
	}
}

// growing lets the object be another one each time that its size has been asked for.
func (s *spoiled) growing(_ http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet {
		s.put(string(s.good) + "AAAA")
	} else {
		s.put(string(s.good))
	}
	return false
}

func anotherLength(s *spoiled) {
	other := s.ended(0, sandbox.Job{Size: s.job.Size + 40})
	object, _ := s.f.Objects.Get(s.f.Key(other.ID))
	s.put(string(object))
}

// repair puts everything back in order.
func (s *spoiled) repair() {
	s.front.meets(nil)
	s.f.Objects.Down(false)
	s.f.Objects.DenyAll(false)
	s.f.Objects.Fail(0, 0)
	s.f.Objects.Cut(s.key, 0)
	s.put(string(s.good))
}

// TestFaultsOfAnObjectStore has every fault that a result can meet: whose trouble it is, what of the job's budget it
// costs, and what a person reads. Nothing gets a final name before it is in order again.
func TestFaultsOfAnObjectStore(t *testing.T) {
	t.Parallel()
	for name, test := range objectFaults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpoiled(t)
			test.spoil(s)
			before := s.f.Objects.Requests(s.key)
			s.announced(s.message(0, s.job.ID, sandbox.Emission{}))
			switch test.class {
			case ofStore:
				s.held(test.reason)
			case ofResult:
				s.spent(3, test.reason)
			case ofPeople:
				s.spent(1, test.reason)
			case ofNobody:
				s.unclear(test.reason)
			}
			s.holds()
			attempts := s.receiptOf(jobKey(s.job.ID)).Attempts
			if n := s.f.Objects.Requests(s.key) - before; test.requests > 0 && n != test.requests*attempts {
				t.Errorf("%d requests for the object in %d attempts, want %d in each", n, attempts, test.requests)
			}
			s.repair()
			if test.class != ofStore {
				s.retries(s.job.ID)
			}
			r := s.untilJob(s.job.ID, "delivery once it is in order", in(store.Delivered))
			if r.Attempts != 0 || r.Reason != "" || !r.Due.IsZero() || len(r.Files) != 1 {
				t.Errorf("delivered with:\n%s", describeReceipt(r))
			}
			s.soundJob(0, s.job.ID)
			s.holds(s.job.ID + ".json")
			if failed := notes(r, "attempt ") + notes(r, "parked: "); (test.class == ofStore || test.class == ofNobody) && failed > 0 {
				t.Errorf("the store's trouble was held against the job:\n%s", describeReceipt(r))
			}
		})
	}
}

func newSpoiled(t *testing.T) *spoiled {
	t.Helper()
	s := &spoiled{}
	s.house = newHouse(t, jobs(func(p *plan) {
		p.agent.Attempts, p.agent.Shutdown = 3, 10*time.Millisecond
		p.rest.IdleTimeout, p.rest.HeaderTimeout = 300*time.Millisecond, 300*time.Millisecond
		p.jobs.section = func(c *fetcher.Config, fs []*sandbox.Fetcher) {
			s.front = newFront(t, fs[0])
			c.Objects.Endpoint, c.MaxResult, c.URL = s.front.server.URL, 1<<20, ""
		}
	}))
	s.f = s.fetchers[0]
	s.job = s.ended(0, sandbox.Job{Size: 20_000})
	s.key = s.f.Key(s.job.ID)
	s.good, _ = s.f.Objects.Get(s.key)
	s.work()
	return s
}

// unclear waits until the job waits with the reason, and checks that neither it nor the store has paid for it.
func (s *spoiled) unclear(reason string) {
	s.t.Helper()
	r := s.untilJob(s.job.ID, "the reason", func(r *store.Receipt) bool { return strings.Contains(r.Reason, reason) })
	if r.State != store.Pending || r.Attempts != 0 || r.Due.IsZero() {
		s.t.Errorf("waits with:\n%s", describeReceipt(r))
	}
	for _, g := range s.Agent.Fetcher.Gates() {
		if !g.Open {
			s.t.Errorf("the gate of %s is closed: %s", g.Service, g.Reason)
		}
	}
}

// TestObjectsThatAreDeniedHoldUpNoOthers: a store says of an object that is not there that it is denied, to whoever may not
// list the bucket. A dozen of them come before anything could be read.
func TestObjectsThatAreDeniedHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	s := newSpoiled(t)
	var denied, good []string
	for range 12 {
		denied = append(denied, s.ended(0, sandbox.Job{}).ID)
	}
	for range 10 {
		good = append(good, s.ended(0, sandbox.Job{}).ID)
	}
	s.front.meets(func(w http.ResponseWriter, r *http.Request) bool {
		if !slices.ContainsFunc(denied, func(id string) bool { return strings.Contains(r.URL.Path, id) }) {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		if r.Method != http.MethodHead {
			_, _ = w.Write([]byte("<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"))
		}
		return true
	})
	for _, id := range append(denied, good...) {
		s.announced(s.message(0, id, sandbox.Emission{}))
	}
	for _, id := range good {
		s.untilJob(id, "delivery beside those that are denied", in(store.Delivered))
	}
	for _, id := range denied {
		r := s.untilJob(id, "the reason", func(r *store.Receipt) bool { return r.Reason != "" })
		if r.State == store.Delivered || !strings.Contains(r.Reason, "403 AccessDenied") {
			t.Errorf("waits with:\n%s", describeReceipt(r))
		}
	}
}

// held waits until the store's gate is closed and was probed in vain, and checks that the job has paid nothing.
func (s *spoiled) held(reason string) {
	s.t.Helper()
	var why string
	var probes []time.Time
	s.eventually("the gate is closed and probed", func() bool {
		for _, g := range s.Agent.Fetcher.Gates() {
			if !g.Open && (len(probes) == 0 || !g.ProbeAt.Equal(probes[len(probes)-1])) {
				probes, why = append(probes, g.ProbeAt), g.Reason
			}
		}
		return len(probes) >= 3
	}, func() string { return why })
	readable(s.t, why, reason)
	r := s.receiptOf(jobKey(s.job.ID))
	if r.State != store.Pending || r.Attempts != 0 || r.Due.IsZero() || len(r.Timeline) != 1 || r.Handled != 0 {
		s.t.Errorf("the store was in trouble, and the job paid for it:\n%s", describeReceipt(r))
	}
}

// spent waits until the job is parked after so many attempts, and checks what it says.
func (s *spoiled) spent(attempts int, reason string) {
	s.t.Helper()
	r := s.untilJob(s.job.ID, "parked", in(store.Parked))
	readable(s.t, r.Reason, reason)
	if r.Attempts != attempts || notes(r, "attempt ") != attempts-1 || !r.Due.IsZero() || r.Intent != nil || len(r.Files) > 0 {
		s.t.Errorf("want %d attempts:\n%s", attempts, describeReceipt(r))
	}
	if attempts > 1 && notes(r, "attempt 1 failed: result of job "+s.job.ID) != 1 {
		s.t.Errorf("the first attempt is not told:\n%s", describeReceipt(r))
	}
	if closed, why := s.closed(); closed {
		s.t.Errorf("a bad object has closed the gate of the store: %s", why)
	}
}

// TestResultsThatNobodyHasToAskFor are parked before the store is asked.
func TestResultsThatNobodyHasToAskFor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		job     sandbox.Job
		answer  *fetcher.Job
		section func(*fetcher.Config)
		reason  string
	}{
		"announced as too large": {
			job: sandbox.Job{Size: 2 << 20}, section: func(c *fetcher.Config) { c.MaxResult = 1 << 20 }, reason: "too large"},
		"a path that leads out": {answer: &fetcher.Job{ResultPath: "../keys/master"}, reason: "bad path"},
		"an absolute path":      {answer: &fetcher.Job{ResultPath: "/etc/passwd"}, reason: "bad path"},
		"no path":               {answer: &fetcher.Job{}, reason: "bad path"},
		"no storage key":        {section: func(c *fetcher.Config) { c.StorageKey = nil }, reason: "no key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fetched := &results{}
			h := newHouse(t, jobs(counted(fetched), func(p *plan) {
				p.jobs.section = func(c *fetcher.Config, _ []*sandbox.Fetcher) {
					if test.section != nil {
						test.section(c)
					}
				}
			}))
			if test.answer != nil {
				fetched.job = func(id string) (*fetcher.Job, error) {
					job := *test.answer
					job.ID, job.Status, job.ResultHMAC = id, fetcher.Completed, strings.Repeat("a", 64)
					return &job, nil
				}
			}
			job := h.ended(0, test.job)
			h.work()
			if test.answer == nil {
				h.announced(h.message(0, job.ID, sandbox.Emission{}))
			} else {
				h.asksFor(job.ID)
			}
			r := h.untilJob(job.ID, "parked", in(store.Parked))
			readable(t, r.Reason, test.reason)
			n := h.fetchers[0].Objects.Requests(h.fetchers[0].Key(job.ID))
			if r.Attempts != 1 || fetched.of(job.ID) != 1 || n != 0 {
				t.Errorf("%d attempts, %d requests\n%s", r.Attempts, n, describeReceipt(r))
			}
			h.holds()
		})
	}
}
