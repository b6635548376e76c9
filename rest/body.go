package rest

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// body is a Response's Body: watched for idleness and a mean rate, decoded if it came compressed, with errors that say
// what they mean. There is no limit on the total: a healthy large file takes as long as it takes.
type body struct {
	ctx      context.Context // the caller's
	origin   *Error          // what errors have in common
	hide     func(error) error
	encoding string // gzip or none; others are refused before anything is read
	raw      *watched
	decoded  *gzip.Reader
	failed   error
}

func (c *Client) newBody(ctx context.Context, cancel context.CancelCauseFunc, h *http.Response, origin *Error) *body {
	encoding := strings.ToLower(strings.TrimSpace(h.Header.Get("Content-Encoding")))
	switch encoding {
	case "identity":
		encoding = ""
	case "x-gzip":
		encoding = "gzip"
	}
	if h.ContentLength == 0 {
		encoding = "" // nothing to decode
	}
	return &body{
		ctx: ctx, origin: origin, hide: c.cause, encoding: encoding,
		raw: watch(h.Body, cancel, c.config.IdleTimeout, c.options.MinRate, c.options.MinRateFor),
	}
}

// Read implements io.Reader. After an error it keeps returning it.
func (b *body) Read(p []byte) (int, error) {
	if b.failed != nil {
		return 0, b.failed
	}
	n, err := b.read(p)
	if err != nil {
		b.failed = b.typed(err)
	}
	return n, b.failed
}

func (b *body) read(p []byte) (int, error) {
	if b.encoding != "gzip" {
		return b.raw.Read(p)
	}
	if b.decoded == nil { // here and not earlier, since it reads
		decoded, err := gzip.NewReader(b.raw)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		b.decoded = decoded
	}
	return b.decoded.Read(p)
}

// typed gives an error its kind.
func (b *body) typed(err error) error {
	switch {
	case err == io.EOF:
		return err
	case b.ctx.Err() != nil:
		return b.ctx.Err()
	}
	e := *b.origin
	e.Kind, e.Err = Broken, b.hide(err)
	var slow *slowError
	if errors.As(err, &slow) {
		e.Kind = TooSlow
	}
	return &e
}

// Close ends the request. It never fails: what was read was read. It is not for breaking off a Read in another
// goroutine: that is the context's part.
func (b *body) Close() error {
	if b.failed == nil {
		b.failed = errors.New("read after close")
	}
	return b.raw.Close()
}

// slowError is why a watched body was given up.
type slowError struct{ text string }

func (e *slowError) Error() string { return e.text }

// watched reads a body and gives it up when a single read takes longer than idle, or when the time spent in reads, per
// period of over, brought fewer than rate bytes a second: one byte a minute never trips an idle limit. The time that
// the reader of the body takes for itself, writing to a disk, is not counted.
type watched struct {
	from   io.ReadCloser
	cancel context.CancelCauseFunc
	idle   *slowError
	limit  time.Duration
	timer  *time.Timer
	rate   int64
	over   time.Duration

	tripped atomic.Bool   // the idle limit has passed
	spent   time.Duration // waiting, in the current period
	bytes   int64         // received in it
}

// Watch returns a body that is given up like that of a Response: with an error after idle without a byte, or below 1 KiB
// a second for 5 min; cancel ends its request. Only time spent waiting for the service counts. Close ends the request
// and the body, and never fails.
func Watch(from io.ReadCloser, cancel context.CancelCauseFunc, idle time.Duration) io.ReadCloser {
	return watch(from, cancel, idle, defaultMinRate, defaultMinRateFor)
}

func watch(from io.ReadCloser, cancel context.CancelCauseFunc, idle time.Duration, rate int64, over time.Duration) *watched {
	w := &watched{from: from, cancel: cancel, limit: idle, rate: rate, over: over}
	w.idle = &slowError{fmt.Sprintf("no byte for %s", idle)}
	w.timer = time.AfterFunc(idle, func() {
		w.tripped.Store(true)
		cancel(w.idle)
	})
	w.timer.Stop()
	return w
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	w.timer.Reset(w.limit)
	began := time.Now()
	n, err := w.from.Read(p)
	w.timer.Stop()
	if err != nil {
		if err != io.EOF && w.tripped.Load() {
			err = w.idle
		}
		return n, err
	}
	w.spent += time.Since(began)
	w.bytes += int64(n)
	if w.spent < w.over {
		return n, nil
	}
	if float64(w.bytes) < float64(w.rate)*w.spent.Seconds() {
		slow := &slowError{fmt.Sprintf("%d bytes in %s, below %d bytes a second", w.bytes, w.spent.Round(time.Millisecond), w.rate)}
		w.cancel(slow)
		return n, slow
	}
	w.spent, w.bytes = 0, 0
	return n, nil
}

// Close implements io.Closer.
func (w *watched) Close() error {
	w.timer.Stop()
	w.cancel(nil)
	_ = w.from.Close()
	return nil
}
