package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"recibo/downloads"
	"recibo/fetcher"
	"recibo/hub"
	"recibo/sandbox"
	"recibo/setting"
	"recibo/store"
)

// jobPlan is the part of a house that is about jobs.
type jobPlan struct {
	fetchers []sandbox.FetcherOptions // several are told apart by their Source and Seed
	section  func(*fetcher.Config, []*sandbox.Fetcher)
	wrap     func(Fetcher) Fetcher
	own      []string // folders of the Fetchers, beside the download folder; "" is the download folder
	manifest bool
}

// jobs plans one Fetcher, with its section as the configuration has it.
func jobs(change ...func(*plan)) func(*plan) {
	return func(p *plan) {
		p.jobs.fetchers = []sandbox.FetcherOptions{{}}
		for _, c := range change {
			c(p)
		}
	}
}

// several plans n Fetchers, each with a source name, keys and an object store of its own.
func several(n int, change ...func(*plan)) func(*plan) {
	return func(p *plan) {
		for i := range n {
			p.jobs.fetchers = append(p.jobs.fetchers, sandbox.FetcherOptions{Source: sourceName(i), Seed: uint64(i + 1)})
		}
		for _, c := range change {
			c(p)
		}
	}
}

func sourceName(i int) string { return fmt.Sprintf("//lerian.fetcher/worker-%d", i) }

// addFetchers starts the planned Fetchers and makes the agent's options of them.
func (h *house) addFetchers(p *plan, o *Options) {
	h.t.Helper()
	o.Manifest = p.jobs.manifest
	if len(p.jobs.fetchers) == 0 {
		return
	}
	for _, options := range p.jobs.fetchers {
		f, err := sandbox.StartFetcher(h.t.Context(), options)
		if err != nil {
			h.t.Fatal(err)
		}
		h.t.Cleanup(f.Close)
		h.fetchers = append(h.fetchers, f)
	}
	o.Fetcher = h.fetcherOf(p)
	for _, dir := range p.jobs.own {
		o.JobFolders = append(o.JobFolders, h.ownFolder(p.downloads, dir, o.Ledger))
	}
}

// fetcherOf makes the Fetchers' client of a plan.
func (h *house) fetcherOf(p *plan) Fetcher {
	h.t.Helper()
	c := sectionOf(h.fetchers)
	if p.jobs.section != nil {
		p.jobs.section(&c, h.fetchers)
	}
	f, err := fetcher.New(p.rest, c, p.options)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(f.Close)
	h.judge = f
	if p.jobs.wrap != nil {
		return p.jobs.wrap(f)
	}
	return f
}

// sectionOf is the section fetcher of an ordinary configuration.
func sectionOf(fetchers []*sandbox.Fetcher) fetcher.Config {
	c := fetcher.DefaultConfig()
	for _, f := range fetchers {
		c.Sources = append(c.Sources, fetcher.SourceConfig{
			URL: f.URL(), ExternalHMACKey: secretsOf(f.ExternalKeyHex()), StorageKey: secretsOf(f.StorageKeyHex()),
			Objects: fetcher.ObjectsConfig{
				Endpoint: f.ObjectsURL(), Region: "us-east-1", Bucket: f.Bucket(),
				AccessKey: setting.NewSecret(f.AccessKey()), SecretKey: setting.NewSecret(f.SecretKey()),
			},
		})
	}
	if len(fetchers) == 1 {
		s := c.Sources[0]
		c.URL, c.ExternalHMACKey, c.StorageKey, c.Objects, c.Sources = s.URL, s.ExternalHMACKey, s.StorageKey, s.Objects, nil
		return c
	}
	for i := range c.Sources {
		c.Sources[i].Source = sourceName(i)
	}
	return c
}

func secretsOf(value string) []setting.Secret { return []setting.Secret{setting.NewSecret(value)} }

func (h *house) ownFolder(c downloads.Config, dir string, ledger *store.Store) *downloads.Folder {
	h.t.Helper()
	if dir == "" {
		return nil
	}
	c.Dir = filepath.Join(filepath.Dir(h.dir), dir)
	folder, err := downloads.Open(c, downloads.Options{Owner: ledger.InstanceID(), Create: true})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = folder.Close() })
	return folder
}

func jobKey(id string) store.Key { return store.Key{Kind: store.Job, ID: id} }

// ended runs a job at Fetcher i to its end, without a word to the agent.
func (h *house) ended(i int, job sandbox.Job) sandbox.Job {
	h.t.Helper()
	job, err := h.fetchers[i].Run(h.t.Context(), job)
	if err != nil {
		h.t.Fatal(err)
	}
	return job
}

// message is a job's event as RabbitMQ delivers it, judged.
func (h *house) message(i int, id string, e sandbox.Emission) hub.Delivery {
	h.t.Helper()
	m, err := h.fetchers[i].Message(id, e)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.judge.Delivery(asReceived(m))
}

func asReceived(m sandbox.Message) hub.AMQPMessage {
	headers := map[string][]string{}
	for name, value := range m.Headers {
		if text, ok := value.([]byte); ok {
			value = string(text)
		}
		headers[name] = []string{fmt.Sprint(value)}
	}
	return hub.AMQPMessage{
		Message:  hub.Message{Headers: headers, ContentType: m.ContentType, Body: m.Body, Transport: "amqp", Origin: "recibo.jobs"},
		Exchange: m.Exchange, RoutingKey: m.RoutingKey,
	}
}

// announced admits events in one batch, so that no attempt begins between them.
func (h *house) announced(deliveries ...hub.Delivery) []hub.Outcome {
	h.t.Helper()
	outcomes, err := h.Admit(h.t.Context(), deliveries)
	if err != nil {
		h.t.Fatal(err)
	}
	return outcomes
}

// completes runs a job at Fetcher i and admits its event.
func (h *house) completes(i int, job sandbox.Job) sandbox.Job {
	h.t.Helper()
	job = h.ended(i, job)
	h.announced(h.message(i, job.ID, sandbox.Emission{}))
	return job
}

func (h *house) untilJob(id, what string, ok func(*store.Receipt) bool) *store.Receipt {
	h.t.Helper()
	return h.untilOf(jobKey(id), what, ok)
}

// handled wants a receipt in a state, with so many generations and nothing left to do about them.
func handled(generation uint64, state store.State) func(*store.Receipt) bool {
	return func(r *store.Receipt) bool { return r.Generation == generation && in(state)(r) }
}

// asksFor has a person ask for jobs.
func (h *house) asksFor(ids ...string) map[store.Key]uint64 {
	h.t.Helper()
	asked, err := h.Fetch(h.t.Context(), jobKeys(ids), false)
	if err != nil {
		h.t.Fatal(err)
	}
	return asked
}

func (h *house) retries(ids ...string) {
	h.t.Helper()
	if _, err := h.Retry(h.t.Context(), jobKeys(ids)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) watches(ids ...string) {
	h.t.Helper()
	if _, err := h.Watch(h.t.Context(), jobKeys(ids)); err != nil {
		h.t.Fatal(err)
	}
}

func jobKeys(ids []string) []store.Key {
	keys := make([]store.Key, len(ids))
	for i, id := range ids {
		keys[i] = jobKey(id)
	}
	return keys
}

// soundJob checks that a job's newest file is the result as Fetcher i has it, on disk and on record.
func (h *house) soundJob(i int, id string) {
	h.t.Helper()
	r := h.receiptOf(jobKey(id))
	f := r.Newest()
	if f == nil {
		h.t.Fatalf("%s: nothing on record\n%s", id, describeReceipt(r))
	}
	size, sum := h.fetchers[i].Sum(id)
	if f.Size != size || f.SHA256 != sum || f.Proof != string(fetcher.Verified) {
		h.t.Errorf("on record are %d bytes %s by %q, Fetcher has %d bytes %s", f.Size, f.SHA256, f.Proof, size, sum)
	}
	if got := sumOf(h.t, filepath.Join(h.outletOf(r).folder.Dir(), f.Name)); got != sum {
		h.t.Errorf("%s holds other bytes: %s, Fetcher has %s", f.Name, got, sum)
	}
}

// results counts what is asked of the object stores, and may hold it.
type results struct {
	Fetcher

	mu      sync.Mutex
	fetched map[string]int                             // attempts, by job
	turn    chan struct{}                              // nobody is asked about a job before it is closed; nil: at once
	before  func(ctx context.Context, id string)       // each attempt
	job     func(id string) (*fetcher.Job, error)      // answers in place of the REST API
	deliver func(size int, deliver func() error) error // around each delivery
	asks    func() bool                                // in place of what the configuration says
}

// counted has the results of a house counted.
func counted(r *results) func(*plan) {
	return func(p *plan) {
		r.fetched = map[string]int{}
		p.jobs.wrap = func(f Fetcher) Fetcher {
			r.Fetcher = f
			return r
		}
	}
}

func (r *results) count(ctx context.Context, id string) {
	r.mu.Lock()
	r.fetched[id]++
	before := r.before
	r.mu.Unlock()
	if before != nil {
		before(ctx, id)
	}
}

// of is how often the result of a job was tried to be had.
func (r *results) of(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fetched[id]
}

func (r *results) total() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, times := range r.fetched {
		n += times
	}
	return n
}

func (r *results) Fetch(ctx context.Context, i int, w fetcher.Wanted, deliver func([]byte, fetcher.Proof) error) error {
	r.count(ctx, w.JobID)
	if r.deliver == nil {
		return r.Fetcher.Fetch(ctx, i, w, deliver)
	}
	return r.Fetcher.Fetch(ctx, i, w, func(plaintext []byte, proof fetcher.Proof) error {
		return r.deliver(len(plaintext), func() error { return deliver(plaintext, proof) })
	})
}

func (r *results) FetchEncrypted(ctx context.Context, i int, w fetcher.Wanted, deliver func(io.Reader, int64) error) error {
	r.count(ctx, w.JobID)
	return r.Fetcher.FetchEncrypted(ctx, i, w, deliver)
}

func (r *results) Asks(i int) bool {
	if r.asks != nil {
		return r.asks()
	}
	return r.Fetcher.Asks(i)
}

func (r *results) AcquireJob(ctx context.Context, i int) error {
	if r.turn == nil {
		return r.Fetcher.AcquireJob(ctx, i)
	}
	select {
	case <-r.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *results) Job(ctx context.Context, i int, id string) (*fetcher.Job, error) {
	if r.job == nil {
		return r.Fetcher.Job(ctx, i, id)
	}
	r.CancelJob(i)
	return r.job(id)
}

// closed reports whether a gate of the Fetchers is closed, and why.
func (h *house) closed() (bool, string) {
	for _, g := range h.Agent.Fetcher.Gates() {
		if !g.Open {
			return true, g.Reason
		}
	}
	return false, ""
}

// isThere reports whether a file is in a folder.
func isThere(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}
