package sandbox

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// DownMode is a way in which the whole Reporter is out of order.
type DownMode int

// The modes.
const (
	Up           DownMode = iota // in order
	Refuse                       // every connection is reset, open ones at once
	Unavailable                  // 503 for everything, the token endpoint included
	Unauthorised                 // 401 for the API; the token endpoint goes on, as after a revocation
	Silent                       // requests are taken and never answered; a change of mode ends their connections
)

// Down puts the Reporter out of order, or with Up back in order. Requests.WhileDown counts what comes meanwhile.
func (r *Reporter) Down(mode DownMode) {
	r.down.Store(int32(mode))
	r.listener.refuse(mode == Refuse)
	changed := make(chan struct{})
	close(*r.changed.Swap(&changed))
}

// outOfOrder answers a request that meets a Reporter that is not Up, and reports whether it did.
func (r *Reporter) outOfOrder(w http.ResponseWriter, req *http.Request) bool {
	changed := *r.changed.Load() // before the mode is read: a change in between is seen by the wait
	mode := DownMode(r.down.Load())
	if mode == Up {
		return false
	}
	class, _ := route(req.URL.Path)
	if mode == Unauthorised && (class == ClassToken || class == classOpen) {
		return false
	}
	r.counted.whileDown.Add(1)
	switch mode {
	case Unavailable:
		plain(w, http.StatusServiceUnavailable, "Service Unavailable")
	case Unauthorised:
		r.counted.unauthorised.Add(1)
		plain(w, http.StatusUnauthorized, "Unauthorized")
	default: // Silent, or Refuse with a request that slipped in
		select {
		case <-changed:
		case <-r.ended:
		case <-req.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
	return true
}

// gateListener resets connections while it refuses.
type gateListener struct {
	net.Listener
	refused *atomic.Int64

	mu       sync.Mutex
	refusing bool
	conns    map[*gateConn]struct{}
}

func newGateListener(l net.Listener, refused *atomic.Int64) *gateListener {
	return &gateListener{Listener: l, refused: refused, conns: map[*gateConn]struct{}{}}
}

// Accept returns the next connection that is not refused.
func (l *gateListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if gated := l.admit(conn); gated != nil {
			return gated, nil
		}
	}
}

func (l *gateListener) admit(conn net.Conn) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusing {
		l.refused.Add(1)
		reset(conn)
		return nil
	}
	gated := &gateConn{Conn: conn, gate: l}
	l.conns[gated] = struct{}{}
	return gated
}

func (l *gateListener) refuse(refusing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusing = refusing
	if refusing {
		for conn := range l.conns {
			reset(conn.Conn)
		}
		clear(l.conns)
	}
}

// reset closes with a TCP reset instead of an orderly end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// gateConn is forgotten by its listener when it is closed.
type gateConn struct {
	net.Conn
	gate *gateListener
}

// Close closes the connection.
func (c *gateConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// pause waits for d, and ends the connection when the client goes away or the Reporter is closed meanwhile.
func (r *Reporter) pause(req *http.Request, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return
	case <-r.ended:
	case <-req.Context().Done():
	}
	panic(http.ErrAbortHandler)
}
