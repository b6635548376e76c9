package sandbox

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// ErrUnknownJob is returned for an id that no job was run under.
var ErrUnknownJob = errors.New("sandbox: no such job")

// FetcherOptions shape a Fetcher.
type FetcherOptions struct {
	AMQPURL  string // of the broker and vhost that events go to; empty: events are made and signed and go nowhere
	Exchange string // default fetcher.job.events
	Declare  bool   // declare the exchange, durable and of type topic, on every connection
	Queue    string // with Declare: a durable queue bound for both endings, so that no event is lost before its consumer comes
	Source   string // ce-source; default //lerian.fetcher/worker
	Tenant   string // default: a deployment without tenants, which writes single-tenant

	MasterKey []byte // APP_ENC_KEY, decoded, at least 32 bytes; default: drawn from Seed
	Bucket    string // default fetcher-storage
	Prefix    string // put before result.path as it is, without a slash of its own; default: none

	// Requests of the REST API need a token when Token or ClientID is set: the fixed Token, or one that the token endpoint
	// POST /v1/login/oauth/access_token of the same address gave for ClientID and ClientSecret.
	Token        string
	ClientID     string
	ClientSecret string
	TokenTTL     time.Duration // default 1h

	Listen        string       // of the REST API; default 127.0.0.1:0
	ObjectsListen string       // of the object store; default 127.0.0.1:0
	Seed          uint64       // of keys and credentials that are drawn
	Log           *slog.Logger // default: silence
}

// Fetcher is an embedded Fetcher: a worker whose jobs end as they are told, its object store and its REST API. The
// result of a job follows from the job's seed. Its methods may be called from several goroutines.
type Fetcher struct {
	Objects *Objects

	options FetcherOptions
	keys    fetcherKeys
	sender  sender // nil without a broker
	access  *access
	rest    *endpoint

	mu      sync.Mutex // guards what follows
	jobs    map[string]*jobRecord
	order   []string           // ids in the order of their first run
	sent    map[string]Message // what was last emitted, forgeries apart, by ce-id
	asked   map[string]int
	refusal int // the status that every REST request gets; 0: in order
}

// StartFetcher brings worker, object store and REST API up; ctx bounds the start, Close ends them.
func StartFetcher(ctx context.Context, o FetcherOptions) (*Fetcher, error) {
	o = o.complete()
	keys, err := deriveKeys(o.MasterKey)
	if err != nil {
		return nil, fmt.Errorf("sandbox: start Fetcher: %w", err)
	}
	f := &Fetcher{
		options: o,
		keys:    keys,
		access:  newAccess(ReporterOptions{Token: o.Token, ClientID: o.ClientID, ClientSecret: o.ClientSecret, TokenTTL: o.TokenTTL}),
		jobs:    map[string]*jobRecord{},
		sent:    map[string]Message{},
		asked:   map[string]int{},
	}
	if err := f.start(ctx); err != nil {
		f.Close()
		return nil, fmt.Errorf("sandbox: start Fetcher: %w", err)
	}
	return f, nil
}

func (o FetcherOptions) complete() FetcherOptions {
	or := func(value *string, otherwise string) {
		if *value == "" {
			*value = otherwise
		}
	}
	or(&o.Exchange, "fetcher.job.events")
	or(&o.Source, "//lerian.fetcher/worker")
	or(&o.Bucket, "fetcher-storage")
	or(&o.Listen, "127.0.0.1:0")
	or(&o.ObjectsListen, "127.0.0.1:0")
	if o.MasterKey == nil {
		o.MasterKey = drawn(o.Seed, "master key")
	}
	if o.TokenTTL == 0 {
		o.TokenTTL = time.Hour
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (f *Fetcher) start(ctx context.Context) (err error) {
	if f.Objects, err = startObjects(ctx, f.options, f.sealed); err != nil {
		return fmt.Errorf("object store: %w", err)
	}
	if f.rest, err = startEndpoint(ctx, f.options.Listen, f, f.options.Log); err != nil {
		return fmt.Errorf("REST API: %w", err)
	}
	if f.options.AMQPURL == "" {
		return nil
	}
	publisher, err := startPublisher(ctx, f.options)
	if err != nil {
		return err
	}
	f.sender = publisher
	return nil
}

// Close stops everything and waits until it has ended; what is being published is given up. It may be called again.
func (f *Fetcher) Close() {
	if f.sender != nil {
		f.sender.close()
	}
	if f.rest != nil {
		f.rest.close()
	}
	if f.Objects != nil {
		f.Objects.endpoint.close()
	}
}

// Run takes a job to the end that its status tells and returns it with the defaults filled in. As in a Fetcher the
// encrypted result of a completed job is stored first, then the state is recorded, then the event published; Run
// returns nil once the broker has confirmed it. Run again under one id is the job's next end: another completion, or
// one after a failure.
func (f *Fetcher) Run(ctx context.Context, job Job) (Job, error) {
	record, err := f.settle(job)
	if err != nil {
		return record.Job, err
	}
	if !record.ended() || record.NoEvent {
		return copiedJob(record.Job), nil
	}
	return copiedJob(record.Job), f.Emit(ctx, record.ID, Emission{})
}

// settle stores and records a job without a word to anybody.
func (f *Fetcher) settle(job Job) (*jobRecord, error) {
	record := f.newJob(job)
	if record.Status == JobCompleted {
		if err := f.Objects.store(f.Key(record.ID), seal(f.keys.storage, record.content)); err != nil {
			return record, fmt.Errorf("sandbox: store the result of job %s: %w", record.ID, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.jobs[record.ID] == nil {
		f.order = append(f.order, record.ID)
	}
	f.jobs[record.ID] = record
	return record, nil
}

// Emit publishes an event about a job's end, with a ce-time, t, signature, request id and traceparent of its own, and
// returns nil once the broker has confirmed it. A broker that is away is waited for until ctx ends.
func (f *Fetcher) Emit(ctx context.Context, id string, e Emission) error {
	message, err := f.emission(id, e)
	if err != nil || f.sender == nil {
		return err
	}
	if err := f.sender.send(ctx, []Message{message}); err != nil {
		return fmt.Errorf("sandbox: publish the event of job %s: %w", id, err)
	}
	return nil
}

// emission makes the message and remembers it for a replay, unless it is forged.
func (f *Fetcher) emission(id string, e Emission) (Message, error) {
	message, err := f.Message(id, e)
	if err == nil && e.Forge == Genuine {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.sent[eventID(cmp.Or(e.Status, f.jobs[id].Status), id)] = message
	}
	return message, err
}

// Set changes a job in place, and reports whether it is known. Only the record that the REST API and later events tell
// is changed: nothing is published, and the object in storage stays as it is.
func (f *Fetcher) Set(id string, change func(*Job)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.jobs[id]
	if old == nil {
		return false
	}
	job := copiedJob(old.Job)
	change(&job)
	job.ID = id
	f.jobs[id] = f.newJob(job)
	return true
}

// Get returns a job as it is now.
func (f *Fetcher) Get(id string) (Job, bool) {
	if record := f.job(id); record != nil {
		return copiedJob(record.Job), true
	}
	return Job{}, false
}

// All returns every job, in the order of its first run.
func (f *Fetcher) All() []Job {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]Job, 0, len(f.order))
	for _, id := range f.order {
		all = append(all, copiedJob(f.jobs[id].Job))
	}
	return all
}

func (f *Fetcher) job(id string) *jobRecord {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.jobs[id]
}

// Plaintext is the decrypted result of a job, whatever its status; nil for an unknown one.
func (f *Fetcher) Plaintext(id string) []byte {
	if record := f.job(id); record != nil {
		return record.content.bytes()
	}
	return nil
}

// Sum is the size of a job's plaintext in bytes and its SHA-256 in lower-case hex; -1 and nothing for an unknown job.
func (f *Fetcher) Sum(id string) (size int64, sha256 string) {
	record := f.job(id)
	if record == nil {
		return -1, ""
	}
	return record.Size, record.sums().sha256
}

// Key is the key of a job's object in the bucket.
func (f *Fetcher) Key(id string) string { return f.options.Prefix + f.path(id) }

// path is result.path.
func (f *Fetcher) path(id string) string {
	path := "external-data/" + id + ".json"
	if f.options.Tenant != "" {
		path = f.options.Tenant + "/" + path
	}
	return path
}

// URL is the base address of the REST API and of the token endpoint.
func (f *Fetcher) URL() string { return f.rest.url }

// ObjectsURL is the endpoint of the object store. It knows buckets by path.
func (f *Fetcher) ObjectsURL() string { return f.Objects.endpoint.url }

// AccessKey is the one that the object store takes.
func (f *Fetcher) AccessKey() string { return f.Objects.accessKey }

// SecretKey belongs to AccessKey.
func (f *Fetcher) SecretKey() string { return f.Objects.secretKey }

// Bucket is where results are stored.
func (f *Fetcher) Bucket() string { return f.options.Bucket }

// Exchange is where events are published.
func (f *Fetcher) Exchange() string { return f.options.Exchange }

// ExternalKeyHex is the key that signs events and results.
func (f *Fetcher) ExternalKeyHex() string { return hex.EncodeToString(f.keys.external) }

// StorageKeyHex is the key that encrypts results.
func (f *Fetcher) StorageKeyHex() string { return hex.EncodeToString(f.keys.storage) }

// MasterKeyBase64 is APP_ENC_KEY.
func (f *Fetcher) MasterKeyBase64() string {
	return base64.StdEncoding.EncodeToString(f.options.MasterKey)
}
