package rest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.String()
}

func TestABodyThatEndsWellIsWhole(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\n"
	zipped := gzipped("hello")
	withLength := func(header, body string) string {
		return fmt.Sprintf("%s%sContent-Length: %d\r\n\r\n%s", head, header, len(body), body)
	}
	tests := map[string]struct {
		answer     string
		body       string
		framing    string
		length     int64
		compressed bool
		kind       Kind
		cause      error
	}{
		"with a length":                {answer: withLength("", "hello"), body: "hello", framing: "length", length: 5},
		"empty":                        {answer: withLength("", ""), framing: "length"},
		"empty, said to be compressed": {answer: withLength("Content-Encoding: gzip\r\n", ""), framing: "length"},
		"chunked": {answer: head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
			body: "hello", framing: "chunked", length: -1},
		"ended by its connection": {answer: head + "\r\nhello", body: "hello", framing: "close", length: -1},
		"of HTTP/1.0":             {answer: "HTTP/1.0 200 OK\r\n\r\nhello", body: "hello", framing: "close", length: -1},
		"compressed": {answer: withLength("Content-Encoding: gzip\r\n", zipped),
			body: "hello", framing: "length", length: -1, compressed: true},
		"compressed, old name": {answer: withLength("Content-Encoding: X-GZip\r\n", zipped),
			body: "hello", framing: "length", length: -1, compressed: true},
		"identity said aloud": {answer: withLength("Content-Encoding: identity\r\n", "hello"), body: "hello", framing: "length", length: 5},

		"shorter than its length": {answer: head + "Content-Length: 9\r\n\r\nhello", kind: Broken, cause: io.ErrUnexpectedEOF},
		"without its last chunk": {answer: head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
			kind: Broken, cause: io.ErrUnexpectedEOF},
		"with a chunk cut":          {answer: head + "Transfer-Encoding: chunked\r\n\r\n9\r\nhello", kind: Broken, cause: io.ErrUnexpectedEOF},
		"with a chunk that is none": {answer: head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\nhello", kind: Broken},
		"compressed and cut": {answer: head + "Content-Encoding: gzip\r\n\r\n" + zipped[:len(zipped)-3],
			kind: Broken, cause: io.ErrUnexpectedEOF},
		"compressed and altered": {answer: withLength("Content-Encoding: gzip\r\n", zipped[:len(zipped)-8]+"\x00\x00\x00\x00\x05\x00\x00\x00"),
			kind: Broken, cause: gzip.ErrChecksum},
		"compressed by name only": {answer: withLength("Content-Encoding: gzip\r\n", "hello, plain text"),
			kind: Broken, cause: gzip.ErrHeader},
		"in another encoding": {answer: withLength("Content-Encoding: br\r\n", "hello"), kind: Malformed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := quick(raw(t, test.answer)).client(t)
			body, resp, err := fetch(t, c, Download)
			if !gateOf(c, Download).Open {
				t.Error("an answer closed the gate")
			}
			if test.kind != 0 {
				e := failure(t, err, test.kind)
				if test.cause != nil && !errors.Is(err, test.cause) || e.Op != ask.Op {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || body != test.body {
				t.Fatalf("got %q, %v", body, err)
			}
			if resp.Framing != test.framing || resp.Length != test.length || resp.Compressed != test.compressed {
				t.Errorf("got framing %s, length %d, compressed %v", resp.Framing, resp.Length, resp.Compressed)
			}
		})
	}
}

func TestHTTP2BodiesSayWhenTheyAreCutOff(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello")
		w.(http.Flusher).Flush()
		if r.URL.Path == "/cut" {
			panic(http.ErrAbortHandler)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	s := quick(server.URL)
	s.TLS.CAFile = pemFile(t, "CERTIFICATE", server.Certificate().Raw)
	c := s.client(t)
	body, resp, err := fetch(t, c, Get)
	if err != nil || body != "hello" || resp.Framing != "http2" || resp.Length != -1 {
		t.Errorf("got %q, %+v, %v", body, resp, err)
	}
	cut, err := c.Do(t.Context(), Get, Request{Path: "/cut", Op: "get"})
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Body.Close()
	_, err = io.ReadAll(cut.Body)
	failure(t, err, Broken)
}

// stalling sends the beginning of a body, and the rest never.
func stalling(t *testing.T) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "hello")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}).URL
}

func TestABodyThatStallsIsGivenUp(t *testing.T) {
	t.Parallel()
	s := quick(stalling(t))
	s.IdleTimeout = 20 * time.Millisecond
	_, _, err := fetch(t, s.client(t), Download)
	if e := failure(t, err, TooSlow); e.Service() || !strings.Contains(e.Error(), "no byte for 20ms") {
		t.Errorf("got %v", err)
	}
}

func TestABodyThatTricklesIsGivenUp(t *testing.T) {
	t.Parallel()
	address := rawFunc(t, func(conn net.Conn) {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		for ; err == nil; time.Sleep(2 * time.Millisecond) {
			_, err = io.WriteString(conn, "x")
		}
	})
	s := quick(address)
	s.MinRate, s.MinRateFor = 1<<20, 20*time.Millisecond
	_, _, err := fetch(t, s.client(t), Download)
	if e := failure(t, err, TooSlow); !strings.Contains(e.Error(), "below 1048576 bytes a second") {
		t.Errorf("got %v", err)
	}
}

func TestABodyAboveTheRateIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("x", 1<<20)) })
	s := quick(server.URL)
	s.MinRate, s.MinRateFor = 1, time.Nanosecond // many periods
	body, _, err := fetch(t, s.client(t), Download)
	if err != nil || len(body) != 1<<20 {
		t.Errorf("got %d bytes, %v", len(body), err)
	}
}

func TestTheContextEndsEveryPhaseWithItsOwnError(t *testing.T) {
	t.Parallel()
	silent := func(t *testing.T) string {
		return serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // a server notices the end of its client only after that
			<-r.Context().Done()
		}).URL
	}
	service := func(t *testing.T) string { return (&guarded{}).start(t) }
	tests := map[string]func(t *testing.T) setup{
		"waiting for headers": func(t *testing.T) setup { return quick(silent(t)) },
		"reading the body":    func(t *testing.T) setup { return quick(stalling(t)) },
		"asking for a token":  func(t *testing.T) setup { return managed(service(t), silent(t)) },
		"reading a token":     func(t *testing.T) setup { return managed(service(t), stalling(t)) },
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := make(t).client(t)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			resp, err := c.Do(ctx, Get, ask)
			if err == nil {
				defer resp.Body.Close()
				_, err = io.ReadAll(resp.Body)
			}
			if err != context.DeadlineExceeded {
				t.Errorf("got %v", err)
			}
			for _, g := range c.Gates() {
				if !g.Open {
					t.Errorf("the end of a context closed the gate of %s: %s", g.Class, g.Reason)
				}
			}
		})
	}
}

func TestClosingABodyEndsTheRequest(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(ended)
	})
	resp, err := quick(server.URL).client(t).Do(t.Context(), Get, ask)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	<-ended
	if _, err := resp.Body.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("reading on gave %v", err)
	}
}
