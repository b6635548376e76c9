package rest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"recibo/setting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup is what a test may change before its client is made.
type setup struct {
	Config
	Service
	Options
}

// quick has waits that a test can sit out, and no jitter.
func quick(address string) setup {
	return setup{
		Config:  Config{Proxy: "none"},
		Service: Service{Section: "reporter", URL: address},
		Options: Options{ProbeBase: time.Millisecond, ProbeCap: 5 * time.Millisecond, Jitter: func() float64 { return 0 }},
	}
}

func (s setup) client(t *testing.T) *Client {
	t.Helper()
	c, err := New(s.Config, s.Service, s.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// serve starts a service that is up for the length of the test.
func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

// raw starts a service that answers each connection's first request with exactly these bytes, and hangs up.
func raw(t *testing.T, answer string) string {
	t.Helper()
	return rawFunc(t, func(conn net.Conn) { _, _ = io.WriteString(conn, answer) })
}

func rawFunc(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					answer(conn)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	return "http://" + listener.Addr().String()
}

var ask = Request{Path: "/v1/reports/7", Op: "get report 7", Query: url.Values{"q": {"query-part"}}}

// fetch reads a whole answer.
func fetch(t *testing.T, c *Client, class Class) (string, *Response, error) {
	t.Helper()
	resp, err := c.Do(t.Context(), class, ask)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return string(data), resp, err
}

// failure asserts that err is an *Error of this kind.
func failure(t *testing.T, err error, kind Kind) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an error of kind %q", err, kind)
	}
	if e.Kind != kind {
		t.Fatalf("got kind %q, want %q: %v", e.Kind, kind, err)
	}
	return e
}

func gateOf(c *Client, class Class) GateStatus {
	for _, g := range c.Gates() {
		if g.Class == class {
			return g
		}
	}
	return GateStatus{}
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func secret(s string) setting.Secret { return setting.NewSecret(s) }
