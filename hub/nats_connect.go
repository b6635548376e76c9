package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// handshakeWait bounds one attempt to connect.
	handshakeWait = 5 * time.Second
	// pingEvery finds a connection that died without a word, within three of them.
	pingEvery = 15 * time.Second
	// flushWait bounds how long acknowledgements are waited for; what gets lost is delivered again and found a repetition.
	flushWait = 2 * time.Second
)

// natsLink is a connection that never gives up: nats.go keeps reconnecting below it. Each reconnect asks for the
// credentials and certificates anew, so that a rotation needs no restart.
type natsLink struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	kill   context.CancelFunc // ends every socket at once, also one that is being opened
	closed chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever the connection comes or goes
	lost    func(error)   // ends the context of while
	err     error         // the newest error, until the next connection
}

var errDisconnected = errors.New("connection lost")

// connect tries every server once; the connection may come up later. The end of ctx ends the attempt, and nothing after
// it: what is in hand when a stop comes is still acknowledged.
func (n *NATS) connect(ctx context.Context) (*natsLink, error) {
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, kill)()
	l := &natsLink{kill: kill, closed: make(chan struct{}), changed: make(chan struct{}), lost: func(error) {}}
	servers, err := n.config.servers()
	if err != nil {
		kill()
		return nil, fmt.Errorf("hub.nats.url: %w", err)
	}
	options := nats.GetDefaultOptions()
	options.Servers = servers
	for _, set := range append(l.handlers(), append(n.credentials(), n.steady(life)...)...) {
		if err := set(&options); err != nil {
			kill()
			return nil, fmt.Errorf("hub.nats: %w", err)
		}
	}
	if l.nc, err = options.Connect(); err != nil {
		kill()
		return nil, fmt.Errorf("hub.nats: %w", err)
	}
	if l.js, err = jetstream.New(l.nc); err != nil {
		l.close()
		return nil, fmt.Errorf("hub.nats: %w", err)
	}
	return l, nil
}

// steady are the options that make a connection outlast every fault: unlimited attempts, also the first and also after
// refused credentials, at most a few seconds apart and jittered.
func (n *NATS) steady(life context.Context) []nats.Option {
	return []nats.Option{
		nats.Name(n.options.Name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(func(rounds int) time.Duration {
			wait := 100 * time.Millisecond << min(rounds, 5)
			return wait + rand.N(wait/4)
		}),
		nats.Timeout(handshakeWait),
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(2),
		nats.SkipHostLookup(), // the dialer resolves, and stops when told to
		nats.SetCustomDialer(lifeDialer{life}),
	}
}

func (n *NATS) credentials() []nats.Option {
	c := n.config
	var options []nats.Option
	switch {
	case c.CredentialsFile != "":
		options = append(options, nats.UserCredentials(c.CredentialsFile))
	case c.User != "":
		options = append(options, nats.UserInfoHandler(func() (string, string) { return c.User, c.Password.Reveal() }))
	case c.Token.IsSet():
		options = append(options, nats.TokenHandler(c.Token.Reveal))
	}
	if n.material == nil {
		return options
	}
	var pair nats.TLSCertHandler
	if c.TLS.CertFile != "" {
		pair = func() (tls.Certificate, error) {
			certificate, err := n.material.Certificate()
			if err != nil {
				return tls.Certificate{}, err
			}
			return *certificate, nil
		}
	}
	return append(options, nats.ClientTLSConfig(pair, n.material.Roots))
}

func (l *natsLink) handlers() []nats.Option {
	came := func(*nats.Conn) { l.change(nil) }
	return []nats.Option{
		nats.ConnectHandler(came),
		nats.ReconnectHandler(came),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { l.note(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.note(err) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err == nil {
				err = errDisconnected
			}
			l.mu.Lock()
			lost := l.lost
			l.mu.Unlock()
			l.change(err)
			lost(err)
		}),
		nats.ClosedHandler(func(*nats.Conn) { close(l.closed) }),
	}
}

func (l *natsLink) change(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *natsLink) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// why returns what is known about the connection's trouble. It may be empty.
func (l *natsLink) why() string {
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	if last := l.nc.LastError(); last != nil && !l.nc.IsConnected() {
		err = last // refused credentials of a first connection are told nowhere else
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// wait returns once there is a connection, telling from time to time why there is none.
func (l *natsLink) wait(ctx context.Context, tell func(string)) error {
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if l.nc.IsConnected() {
			return nil
		}
		tell(strings.TrimSuffix("not connected: "+l.why(), ": "))
		timer := time.NewTimer(time.Second)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// while returns a context that also ends when the present connection is lost.
func (l *natsLink) while(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	l.lost = func(err error) { cancel(fmt.Errorf("not connected: %w", err)) }
	l.mu.Unlock()
	if !l.nc.IsConnected() {
		cancel(errDisconnected)
	}
	return ctx, func() { cancel(nil) }
}

// explain replaces an error that only says that connected has ended by the reason for that, and adds the connection's
// newest error to a request that was simply not answered, as it happens when the account may not send it.
func (l *natsLink) explain(connected context.Context, err error) error {
	if err == nil || needsPerson(err) {
		return err
	}
	if connected.Err() != nil {
		return context.Cause(connected)
	}
	silent := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
	if why := l.why(); silent && why != "" {
		return fmt.Errorf("%w (%s)", err, why)
	}
	return err
}

// flush waits until the server has read what was sent.
func (l *natsLink) flush() error { return l.nc.FlushTimeout(flushWait) }

// close ends the connection and waits for its goroutines. Sockets go first: nats.go holds its lock while it connects.
func (l *natsLink) close() {
	l.kill()
	l.nc.Close()
	timer := time.NewTimer(flushWait)
	defer timer.Stop()
	select {
	case <-l.closed:
	case <-timer.C:
	}
}

// lifeDialer opens sockets that end with a context.
type lifeDialer struct{ life context.Context }

func (d lifeDialer) Dial(network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: handshakeWait}
	conn, err := dialer.DialContext(d.life, network, address)
	if err != nil {
		return nil, err
	}
	return &lifeConn{conn, context.AfterFunc(d.life, func() { _ = conn.Close() })}, nil
}

// lifeConn is used by its pointer: nats.go compares connections.
type lifeConn struct {
	net.Conn
	forget func() bool
}

func (c *lifeConn) Close() error {
	c.forget()
	return c.Conn.Close()
}
