package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io"

	"recibo/rest"
)

// job is one result on its way.
type job struct {
	Wanted
	source   *source
	store    *objects
	key      string // of the object
	answered func() // of the store's gate
}

// ask makes all requests for a result as one call of the store. The gate opens with the first answer to a GET: a store
// that can only be asked for sizes is still in trouble.
func (j *job) ask(call func() error) error {
	return j.store.gate.Do(func(answered func()) error {
		j.answered = answered
		return call()
	}, ofStore)
}

// ofStore says what an error tells of the store. The end of the context tells nothing; neither do the errors of whoever
// the result is delivered to, but by then the store has answered.
func ofStore(err error) *rest.Error {
	var e *ResultError
	if !errors.As(err, &e) {
		return nil
	}
	kind := rest.Refused // an answer about the object
	switch {
	case e.badTLS:
		kind = rest.BadTLS
	case e.Kind == Unreachable:
		kind = rest.Unreachable
	case e.Kind == Auth:
		kind = rest.Auth
	case e.Kind == Server:
		kind = rest.Server
	}
	return &rest.Error{Kind: kind, Err: e.Err}
}

// fetch reads, opens, and delivers what it verifies meanwhile: both take long, and one is work for the disk.
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
	if err := ctx.Err(); err != nil {
		return err
	}
	verified := make(chan bool, 1)
	go func() { verified <- sameHMAC(j.source.external.now(), plaintext, j.Result.HMAC) }()
	err = deliver(plaintext, Verified)
	if !<-verified {
		return j.fails(BadHMAC, errors.New("the content is not the one that was announced, or the external key is another"+j.source.external.note()))
	}
	return err
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
	return nil, j.fails(BadSeal, errors.New("no storage key fits, or the object was changed"+j.source.storage.note()))
}

func (j *job) read(ctx context.Context, size int64, buf []byte) ([]byte, error) {
	object, err := j.get(ctx, size)
	if err != nil {
		return nil, err
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

// get opens the object.
func (j *job) get(ctx context.Context, size int64) (io.ReadCloser, error) {
	object, err := j.store.get(ctx, j.key, size)
	if err != nil {
		return nil, j.failed(ctx, err)
	}
	j.answered()
	return object, nil
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
	e := *j.store.ofOne(ctx, j.key, j.store.classify(ctx, err))
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
