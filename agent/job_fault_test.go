package agent

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"recibo/fetcher"
	"recibo/hub"
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

// trouble is what a fault is taken for.
type troubleOf int

const (
	ofStore  troubleOf = iota // its gate closes, and no job pays for it
	ofResult                  // an attempt is counted, and others follow
	ofPeople                  // parked at once
)

// objectFaults are the faults of an object store and of what is in it. spoil comes before the event of the job.
var objectFaults = map[string]struct {
	spoil    func(*spoiled)
	class    troubleOf
	reason   string
	requests int // of the object in one attempt; not looked at where the store is in trouble
}{
	"down":            {spoil: func(s *spoiled) { s.f.Objects.Down(true) }, class: ofStore, reason: "unreachable"},
	"no access":       {spoil: func(s *spoiled) { s.f.Objects.DenyAll(true) }, class: ofStore, reason: "403 AccessDenied"},
	"server error":    {spoil: func(s *spoiled) { s.f.Objects.Fail(-1, http.StatusInternalServerError) }, class: ofStore, reason: "500"},
	"unavailable":     {spoil: func(s *spoiled) { s.f.Objects.Fail(-1, http.StatusServiceUnavailable) }, class: ofStore, reason: "503"},
	"no such bucket":  {spoil: func(s *spoiled) { s.front.meets(noSuchBucket) }, class: ofStore, reason: "NoSuchBucket"},
	"a silent store":  {spoil: func(s *spoiled) { s.front.meets(silence) }, class: ofStore, reason: "timeout"},
	"slow bytes":      {spoil: func(s *spoiled) { s.front.meets(slowly(s.good)) }, class: ofResult, reason: "no byte for", requests: 1},
	"cut":             {spoil: func(s *spoiled) { s.f.Objects.Cut(s.key, -1) }, class: ofResult, reason: "broken off", requests: 2},
	"another size":    {spoil: func(s *spoiled) { s.front.meets(s.growing) }, class: ofResult, reason: "bytes and has", requests: 2},
	"missing":         {spoil: func(s *spoiled) { s.f.Objects.Delete(s.key) }, class: ofResult, reason: "missing", requests: 2},
	"no base64":       {spoil: func(s *spoiled) { s.put("{\"rows\":[]}") }, class: ofResult, reason: "bad encoding", requests: 2},
	"empty":           {spoil: func(s *spoiled) { s.put("") }, class: ofResult, reason: "can't be opened", requests: 2},
	"a line break":    {spoil: func(s *spoiled) { s.put(string(s.good[:76]) + "\n" + string(s.good[76:])) }, class: ofResult, reason: "bad encoding", requests: 2},
	"plaintext":       {spoil: func(s *spoiled) { s.put(string(s.f.Plaintext(s.job.ID))) }, class: ofResult, reason: "bad encoding", requests: 2},
	"a shorter one":   {spoil: func(s *spoiled) { s.f.Objects.Truncate(s.key, -8) }, class: ofResult, reason: "can't be opened", requests: 2},
	"another key":     {spoil: func(s *spoiled) { s.f.Objects.PutWrongKey(s.job.ID) }, class: ofResult, reason: "can't be opened", requests: 2},
	"a flipped bit":   {spoil: func(s *spoiled) { s.f.Objects.Flip(s.key, 300) }, class: ofResult, reason: "can't be opened", requests: 2},
	"a flipped nonce": {spoil: func(s *spoiled) { s.f.Objects.Flip(s.key, 3) }, class: ofResult, reason: "can't be opened", requests: 2},
	"a flipped tag":   {spoil: func(s *spoiled) { s.f.Objects.Flip(s.key, -1) }, class: ofResult, reason: "can't be opened", requests: 2},
	"another length":  {spoil: anotherLength, class: ofResult, reason: "wrong length", requests: 2},
	"another content": {spoil: func(s *spoiled) { s.f.Objects.PutOtherContent(s.job.ID) }, class: ofResult, reason: "wrong HMAC", requests: 2},
	"too large":       {spoil: func(s *spoiled) { s.put(strings.Repeat("A", 3<<20)) }, class: ofPeople, reason: "too large", requests: 1},
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
	for name, test := range objectFaults {
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
			}
			s.holds()
			if n := s.f.Objects.Requests(s.key) - before; test.requests > 0 && n != test.requests*max(1, s.receiptOf(jobKey(s.job.ID)).Attempts) {
				t.Errorf("%d requests for the object, want %d an attempt", n, test.requests)
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
			if failed := notes(r, "attempt ") + notes(r, "parked: "); test.class == ofStore && failed > 0 {
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
		"announced as too large": {job: sandbox.Job{Size: 2 << 20}, section: func(c *fetcher.Config) { c.MaxResult = 1 << 20 }, reason: "too large"},
		"a path that leads out":  {answer: &fetcher.Job{ResultPath: "../keys/master"}, reason: "bad path"},
		"an absolute path":       {answer: &fetcher.Job{ResultPath: "/etc/passwd"}, reason: "bad path"},
		"no path":                {answer: &fetcher.Job{}, reason: "bad path"},
		"no storage key":         {section: func(c *fetcher.Config) { c.StorageKey = nil }, reason: "no key"},
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
			if r.Attempts != 1 || fetched.of(job.ID) != 1 || h.fetchers[0].Objects.Requests(h.fetchers[0].Key(job.ID)) != 0 {
				t.Errorf("%d attempts, %d requests\n%s", r.Attempts, h.fetchers[0].Objects.Requests(h.fetchers[0].Key(job.ID)), describeReceipt(r))
			}
			h.holds()
		})
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
