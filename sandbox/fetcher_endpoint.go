package sandbox

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// endpoint is an HTTP server of its own whose end waits for its requests.
type endpoint struct {
	url     string
	handler http.Handler
	server  *http.Server
	gate    *gateListener
	refused atomic.Int64 // connections
	served  sync.WaitGroup

	mu     sync.Mutex // guards what follows
	closed bool
}

func startEndpoint(ctx context.Context, listen string, handler http.Handler, log *slog.Logger) (*endpoint, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, err
	}
	e := &endpoint{url: "http://" + listener.Addr().String(), handler: handler}
	e.gate = newGateListener(listener, &e.refused)
	e.server = &http.Server{Handler: e, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), ReadHeaderTimeout: time.Minute}
	e.served.Go(func() { _ = e.server.Serve(e.gate) }) // ends with close
	return e, nil
}

// ServeHTTP passes a request on, unless the endpoint is closed.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !e.enter() {
		panic(http.ErrAbortHandler)
	}
	defer e.served.Done()
	e.handler.ServeHTTP(w, req)
}

// enter makes close wait for this request.
func (e *endpoint) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.served.Add(1)
	return true
}

// close breaks requests in progress off and waits for their end.
func (e *endpoint) close() {
	e.mu.Lock()
	already := e.closed
	e.closed = true
	e.mu.Unlock()
	if !already {
		_ = e.server.Close() // what it can't close is closed already
	}
	e.served.Wait()
}
