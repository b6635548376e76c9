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
	Verified Proof = "aes-gcm+hmac" // the seal was opened, length and HMAC are those announced: see Results.Fetch
	Sealed   Proof = "sealed"       // as it is stored: nothing of it could be verified without a storage key
)

// Results brings the results of jobs home from the object stores. It may be used by several goroutines. Its methods take
// the number of a source in fetcher.sources, 0 without them.
type Results struct {
	sources sources
	stores  []*objects // by source; sources that differ in their prefix alone share one
	largest int64      // fetcher.max_result
	memory  int64      // fetcher.memory
	shares  *semaphore.Weighted
	small   int64 // smallResult
	log     *slog.Logger
	now     func() time.Time
}

// NewResults returns the object stores of the configuration; it asks none of them. Its errors name the key that must
// change.
func NewResults(rc rest.Config, c Config, o Options) (*Results, error) {
	all, err := newSources(c)
	if err != nil {
		return nil, err
	}
	proxy, err := rest.Proxy("fetcher.proxy", c.Proxy, rc.Proxy)
	if err != nil {
		return nil, err
	}
	defaults := DefaultConfig()
	r := &Results{
		sources: all, log: o.Log, now: o.Now,
		largest: int64(or(c.MaxResult, defaults.MaxResult)), memory: int64(or(c.Memory, defaults.Memory)),
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.now == nil {
		r.now = time.Now
	}
	r.shares, r.small = semaphore.NewWeighted(r.memory), smallResult
	shared := map[ObjectsConfig]*objects{}
	for _, s := range all {
		which := s.config.Objects
		which.Prefix = ""
		if shared[which] == nil {
			o.Log = r.log.With("store", which.Endpoint)
			if shared[which], err = newObjects(s.config.Objects, rc, proxy, rest.NewGate("objects", o)); err != nil {
				return nil, fmt.Errorf("%s.objects.%w", s.key, err)
			}
		}
		r.stores = append(r.stores, shared[which])
	}
	return r, nil
}

// Close drops idle connections.
func (r *Results) Close() {
	for _, store := range r.stores {
		store.transport.CloseIdleConnections()
	}
}

// Check asks the object store of a source for an object that is not there, and returns nil where the store says so. A user
// who may not list the bucket is refused instead, and then only a stored result shows what may be read: see Fetch. Errors
// are *ResultError, or ctx.Err().
func (r *Results) Check(ctx context.Context, i int) error {
	j, err := r.job(i, Wanted{JobID: "check", Result: Result{Path: "recibo-check-of-an-object-that-is-not-there"}})
	if err != nil {
		return err
	}
	_, err = j.store.size(ctx, j.key)
	var answer *ResultError
	if err != nil {
		err = j.failed(ctx, err)
	}
	if errors.As(err, &answer) && answer.Kind == Missing {
		return nil
	}
	return err
}

// Acquire waits until the object store of a source may be asked; see rest.Gate. The caller then owes exactly one Fetch,
// FetchEncrypted or Cancel. It returns ctx.Err(), and no other error.
func (r *Results) Acquire(ctx context.Context, i int) error { return r.stores[i].gate.Acquire(ctx) }

// Cancel gives an Acquire back that no Fetch will follow.
func (r *Results) Cancel(i int) { r.stores[i].gate.Cancel() }

// CanOpen reports whether there is a storage key for the results of a source.
func (r *Results) CanOpen(i int) bool { return !r.sources[i].storage.empty() }

// Wanted is the result of one job.
type Wanted struct {
	JobID  string
	Result Result
}

// Fetch gives a result to deliver, once its seal is opened and its length compared; what deliver returns is returned. Its
// HMAC is verified while deliver runs: until Fetch has returned nil, whatever deliver made of the plaintext is nothing that
// anybody may see, and after an error it must be thrown away. Fetch uses up one Acquire, whatever it returns. A result of
// more than 1 MiB waits for its share of fetcher.memory: that of one which is larger than all of it is all of it, so that it
// is the only one. The plaintext must not be changed, and must not be kept: it is wiped in the end. Other errors are *ResultError, or ctx.Err().
func (r *Results) Fetch(ctx context.Context, i int, w Wanted, deliver func(plaintext []byte, proof Proof) error) error {
	j, err := r.job(i, w)
	if err == nil && j.source.storage.empty() {
		err = j.fails(NoKey, errors.New("no storage key is configured"))
	}
	if err != nil {
		r.Cancel(i)
		return err
	}
	return j.ask(func() error {
		size, err := r.size(ctx, j)
		if err != nil {
			return err
		}
		began := r.now()
		release, err := r.share(ctx, size)
		if err != nil {
			return err
		}
		defer release()
		started := r.now()
		err = j.fetch(ctx, size, deliver)
		if size >= largeObject {
			// The next one in line may be as large. Left to itself, the collector would keep both in memory for a while;
			// now the next one gets this one's pages, which is also faster than fresh ones of the system.
			runtime.GC()
		}
		r.log.Debug("result read", "job", w.JobID, "bytes", size, "waited", started.Sub(began).String(),
			"took", r.now().Sub(started).String(), "ok", err == nil)
		return err
	})
}

// smallResult is up to which size, in bytes, a result waits for no share: one that is large and slow, or waits itself, must
// not delay all the others. There are never more of these at a time than workers, whose buffers are as large.
const smallResult = chunkSize

// share waits for the memory that an object of size bytes needs.
func (r *Results) share(ctx context.Context, size int64) (release func(), err error) {
	need := decodedSize(size)
	if need <= r.small {
		return func() {}, nil
	}
	share := min(need+chunkSize, r.memory)
	return func() { r.shares.Release(share) }, r.shares.Acquire(ctx, share)
}

// largeObject is from which size on memory is collected at once; below it, collecting costs more than waiting.
const largeObject = 32 << 20

// FetchEncrypted gives deliver the object as it is stored, and its size. Nothing of it can be verified but its length:
// its proof is Sealed. It uses up one Acquire. Errors are those of Fetch; a deliver that returns nil must have read all
// of it.
func (r *Results) FetchEncrypted(ctx context.Context, i int, w Wanted, deliver func(object io.Reader, size int64) error) error {
	j, err := r.job(i, w)
	if err != nil {
		r.Cancel(i)
		return err
	}
	return j.ask(func() error {
		size, err := r.size(ctx, j)
		if err != nil {
			return err
		}
		object, err := j.get(ctx, size)
		if err != nil {
			return err
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
	})
}

// job finds where a result is. What is announced is checked before anything is asked.
func (r *Results) job(i int, w Wanted) (*job, error) {
	j := &job{Wanted: w, source: r.sources[i], store: r.stores[i]}
	if err := cleanPath(w.Result.Path); err != nil {
		return nil, j.fails(BadPath, err)
	}
	if w.Result.SizeBytes > r.largest {
		return nil, j.tooLarge(w.Result.SizeBytes, r.largest)
	}
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
