// Package console is how the owner of the ledger is spoken to while it runs: a few calls over a Unix socket, whose file
// mode decides who may make them. A call never holds a ledger transaction while it writes to its caller, so a slow reader
// stops nobody.
package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Stream is what a call sends before its result. Both fail once the caller is gone.
type Stream struct {
	Item     func(any) error
	Progress func(any) error
}

// Call is one thing that the owner does on request.
type Call func(ctx context.Context, request json.RawMessage, out Stream) (result any, err error)

// Server answers calls on a Unix socket.
type Server struct {
	path  string
	http  *http.Server
	calls atomic.Pointer[map[string]Call]
	done  chan error
}

// Listen replaces the socket and serves it. Whoever calls it holds the ledger's lock, so a socket that is there already
// is a dead one. Until Offer every call is answered with Busy.
func Listen(c Config, path string) (*Server, error) {
	mode, err := c.mode()
	if err != nil {
		return nil, err
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("console.socket %s: %d bytes are too long for a socket, which takes %d", path, len(path), maxSocketPath)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := listenUnix(path, mode, c.SocketGroup)
	if err != nil {
		return nil, err
	}
	s := &Server{path: path, done: make(chan error, 1)}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { s.done <- s.http.Serve(listener) }()
	return s, nil
}

// listenUnix makes the socket under another name and renames it, so that nobody meets it with wider rights than it is
// to have.
func listenUnix(path string, mode os.FileMode, group string) (net.Listener, error) {
	hidden := fmt.Sprintf("%s.%d", path, os.Getpid())
	if len(hidden) > maxSocketPath {
		hidden = path
	}
	if err := os.Remove(hidden); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	err = os.Chmod(hidden, mode)
	if err == nil && group != "" {
		err = chgrp(hidden, group)
	}
	if err == nil && hidden != path {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close(), os.Remove(hidden))
	}
	return listener, nil
}

func chgrp(path, group string) error {
	gid, err := strconv.Atoi(group)
	if err != nil {
		g, err := user.LookupGroup(group)
		if err != nil {
			return fmt.Errorf("console.socket_group: %w", err)
		}
		if gid, err = strconv.Atoi(g.Gid); err != nil {
			return err
		}
	}
	return os.Chown(path, -1, gid)
}

// Offer makes the calls available.
func (s *Server) Offer(calls map[string]Call) { s.calls.Store(&calls) }

// Close waits for calls in progress until ctx ends, cuts off the rest, and removes the socket.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if removed := os.Remove(s.path); removed != nil && !errors.Is(removed, os.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}

// maxRequest bounds a request, in bytes: 100,000 ids fit.
const maxRequest = 8 << 20

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	out := &writer{encoder: json.NewEncoder(w), flusher: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "application/x-ndjson")
	calls := s.calls.Load()
	if calls == nil {
		out.fail(Errorf(Busy, "the agent is starting"))
		return
	}
	call, ok := (*calls)[strings.TrimPrefix(r.URL.Path, prefix)]
	if !ok || r.Method != http.MethodPost {
		out.fail(Errorf(Usage, "the running agent has no call %s %s", r.Method, r.URL.Path))
		return
	}
	request, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		out.fail(Errorf(Usage, "the request can't be read: %v", err))
		return
	}
	result, err := call(r.Context(), request, Stream{
		Item:     func(v any) error { return out.send("item", v) },
		Progress: func(v any) error { return out.send("progress", v) },
	})
	if err != nil {
		out.fail(asError(err))
		return
	}
	_ = out.send("result", result) // a caller that is gone needs no result
}

// writer sends lines; calls may use it from several goroutines.
type writer struct {
	mu      sync.Mutex
	encoder *json.Encoder
	flusher *http.ResponseController
}

func (w *writer) send(field string, v any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.encoder.Encode(map[string]any{field: v}); err != nil {
		return err
	}
	return w.flusher.Flush()
}

func (w *writer) fail(e *Error) { _ = w.send("error", e) }
