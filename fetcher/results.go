package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"

	"recibo/rest"
)

// Proof says what showed that a result is whole.
type Proof string

// The proofs.
const (
	Verified Proof = "aes-gcm+hmac" // the seal was opened, length and HMAC are those announced
	Sealed   Proof = "sealed"       // as it is stored: nothing of it could be verified without a storage key
)

// Results brings the results of jobs home from the object stores. It may be used by several goroutines.
type Results struct {
	sources sources
	stores  map[*source]*objects
	largest int64 // fetcher.max_result
	memory  int64 // fetcher.memory
	shares  *semaphore.Weighted
	log     *slog.Logger
	now     func() time.Time
}

// ResultsOptions are what a caller or a test may set; every zero value has a default.
type ResultsOptions struct {
	Log  *slog.Logger     // default: nothing is logged
	Now  func() time.Time // default time.Now
	REST rest.Config      // roots, proxy and time limits common to all HTTP clients; zero limits are the defaults
}

// NewResults returns the object stores of the configuration; it asks none of them. Its errors name the key that must
// change.
func NewResults(c Config, o ResultsOptions) (*Results, error) {
	all, err := newSources(c)
	if err != nil {
		return nil, err
	}
	limits := rest.DefaultConfig()
	o.REST.HeaderTimeout = or(o.REST.HeaderTimeout, limits.HeaderTimeout)
	o.REST.IdleTimeout = or(o.REST.IdleTimeout, limits.IdleTimeout)
	defaults := DefaultConfig()
	r := &Results{
		sources: all, stores: map[*source]*objects{}, log: o.Log, now: o.Now,
		largest: int64(or(c.MaxResult, defaults.MaxResult)), memory: int64(or(c.Memory, defaults.Memory)),
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.now == nil {
		r.now = time.Now
	}
	if _, err := proxy(c, o.REST); err != nil {
		return nil, fmt.Errorf("fetcher.proxy: %w", err)
	}
	r.shares = semaphore.NewWeighted(r.memory)
	for _, s := range all {
		if r.stores[s], err = newObjects(s.config, o.REST); err != nil {
			return nil, fmt.Errorf("%s.objects.%w", s.key, err)
		}
	}
	return r, nil
}

// Close drops idle connections.
func (r *Results) Close() {
	for _, store := range r.stores {
		store.transport.CloseIdleConnections()
	}
}

// Wanted is the result of one job.
type Wanted struct {
	JobID  string
	Source string // ce-source of its event, where several are configured
	Tenant string
	Result Result
}

// CanOpen reports whether there is a storage key for the results of a source and tenant.
func (r *Results) CanOpen(name, tenant string) bool {
	s := r.sources.find(name, tenant)
	return s != nil && !s.storage.empty()
}

// Fetch gives a result to deliver, once it is opened and verified; what deliver returns is returned. It waits for its
// share of fetcher.memory first: the share of a result that is larger than all of it is all of it, so that it runs
// alone. The plaintext is wiped when deliver returns and must not be kept. Other errors are *ResultError, or ctx.Err().
func (r *Results) Fetch(ctx context.Context, w Wanted, deliver func(plaintext []byte, proof Proof) error) error {
	j, err := r.job(w)
	if err == nil && j.source.storage.empty() {
		err = j.fails(NoKey, errors.New("no storage key is configured"))
	}
	if err != nil {
		return err
	}
	size, err := r.size(ctx, j)
	if err != nil {
		return err
	}
	began := r.now()
	share := min(decodedSize(size)+chunkSize, r.memory)
	if err := r.shares.Acquire(ctx, share); err != nil {
		return err
	}
	defer r.shares.Release(share)
	started := r.now()
	err = j.fetch(ctx, size, deliver)
	if size >= largeObject {
		// The next one in line may be as large. Left to itself, the collector would keep both in memory for a while; now
		// the next one gets this one's pages, which is also faster than fresh ones of the system.
		runtime.GC()
	}
	r.log.Debug("result read", "job", w.JobID, "bytes", size, "waited", started.Sub(began).String(),
		"took", r.now().Sub(started).String(), "ok", err == nil)
	return err
}

// largeObject is from which size on memory is collected at once; below it, collecting costs more than waiting.
const largeObject = 32 << 20

// FetchEncrypted gives deliver the object as it is stored, and its size. Nothing of it can be verified but its length:
// its proof is Sealed. Errors are those of Fetch; a deliver that returns nil must have read all of it.
func (r *Results) FetchEncrypted(ctx context.Context, w Wanted, deliver func(object io.Reader, size int64) error) error {
	j, err := r.job(w)
	if err != nil {
		return err
	}
	size, err := r.size(ctx, j)
	if err != nil {
		return err
	}
	object, err := j.store.get(ctx, j.key, size)
	if err != nil {
		return j.failed(ctx, err)
	}
	defer func() { _ = object.Close() }()
	counted := &counted{from: object, typed: func(err error) error { return j.broken(ctx, err) }}
	if err := deliver(counted, size); err != nil {
		return err
	}
	switch {
	case counted.failed != nil:
		return counted.failed
	case counted.bytes != size:
		return j.fails(Broken, fmt.Errorf("%d bytes of %d", counted.bytes, size))
	}
	return nil
}

// job is one result on its way.
type job struct {
	Wanted
	source *source
	store  *objects
	key    string // of the object
}

// job finds where a result is. What is announced is checked before anything is asked.
func (r *Results) job(w Wanted) (*job, error) {
	j := &job{Wanted: w, source: r.sources.find(w.Source, w.Tenant)}
	if err := cleanPath(w.Result.Path); err != nil {
		return nil, j.fails(BadPath, err)
	}
	if j.source == nil {
		return nil, j.fails(NoKey, fmt.Errorf("source %s of tenant %s is not among fetcher.sources", shown(w.Source), shown(w.Tenant)))
	}
	if w.Result.SizeBytes > r.largest {
		return nil, j.tooLarge(w.Result.SizeBytes, r.largest)
	}
	j.store = r.stores[j.source]
	j.key = j.source.config.Objects.Prefix + w.Result.Path
	return j, nil
}

// size asks the store. Nothing is ever sized by the event: it is the object that has to fit.
func (r *Results) size(ctx context.Context, j *job) (int64, error) {
	size, err := j.store.size(ctx, j.key)
	if err != nil {
		return 0, j.failed(ctx, err)
	}
	if size > encodedSize(r.largest) {
		return 0, j.tooLarge(size, encodedSize(r.largest))
	}
	return size, nil
}

// fetch reads, opens, verifies and delivers.
func (j *job) fetch(ctx context.Context, size int64, deliver func([]byte, Proof) error) error {
	buf := make([]byte, decodedSize(size))
	defer clear(buf)
	plaintext, err := j.open(ctx, size, buf)
	if err != nil {
		return err
	}
	if announced := j.Result.SizeBytes; announced >= 0 && int64(len(plaintext)) != announced {
		return j.fails(BadLength, fmt.Errorf("%d bytes where %d were announced", len(plaintext), announced))
	}
	if !sameHMAC(j.source.external.now(), plaintext, j.Result.HMAC) {
		return j.fails(BadHMAC, errors.New("the content is not the one that was announced, or the external key is another"))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return deliver(plaintext, Verified)
}

// open reads the object and opens it in place. A key that does not open it costs reading it again.
func (j *job) open(ctx context.Context, size int64, buf []byte) ([]byte, error) {
	keys := j.source.storage.now()
	for i := 0; i < len(keys); i++ {
		sealed, err := j.read(ctx, size, buf)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			keys = likeliestFirst(keys, sealed)
		}
		if plaintext, err := open(keys[i], sealed); err == nil {
			return plaintext, nil
		}
	}
	return nil, j.fails(BadSeal, errors.New("no storage key fits, or the object was changed"))
}

func (j *job) read(ctx context.Context, size int64, buf []byte) ([]byte, error) {
	object, err := j.store.get(ctx, j.key, size)
	if err != nil {
		return nil, j.failed(ctx, err)
	}
	defer func() { _ = object.Close() }()
	sealed, err := decode(object, buf)
	switch {
	case errors.Is(err, errEncoding):
		return nil, j.fails(BadEncoding, err)
	case err != nil:
		return nil, j.broken(ctx, err)
	}
	return sealed, nil
}

func (j *job) fails(kind Kind, err error) *ResultError {
	return &ResultError{Kind: kind, JobID: j.JobID, Err: err}
}

func (j *job) tooLarge(size, limit int64) *ResultError {
	return j.fails(TooLarge, fmt.Errorf("%d bytes, with fetcher.max_result %d are taken", size, limit))
}

// failed is the error of a request, ctx.Err() once that has ended.
func (j *job) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e := *j.store.classify(ctx, err)
	e.JobID, e.Err = j.JobID, fmt.Errorf("object %s: %w", j.key, e.Err)
	return &e
}

// broken is the error of a body.
func (j *job) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return j.fails(Broken, j.store.harmless(err))
}

// counted gives the errors of a body their type, and knows whether all of it was read.
type counted struct {
	from   io.Reader
	typed  func(error) error
	bytes  int64
	failed error
}

// Read implements io.Reader. After an error it keeps returning it.
func (c *counted) Read(p []byte) (int, error) {
	if c.failed != nil {
		return 0, c.failed
	}
	n, err := c.from.Read(p)
	c.bytes += int64(n)
	if err != nil && err != io.EOF {
		c.failed = c.typed(err)
		err = c.failed
	}
	return n, err
}
