package rest

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"recibo/setting"
)

// Bounds of a connection and of what a hostile service can make us hold.
const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	pingAfter        = 30 * time.Second // without a frame on an HTTP/2 connection
	pingTimeout      = 15 * time.Second
	idleConnections  = 16
	idlePerHost      = 8
	idleConnection   = 90 * time.Second
	maxHeaderBytes   = 1 << 20
)

// Transport sends requests with the TLS files as they are now. Client certificates are read for each handshake; when
// the roots change it goes over to a new pool of connections, so that proxied connections see them too. A Client has
// one; another is for a service that is called through a library of its own.
type Transport struct {
	material *setting.Material
	dialer   *net.Dialer
	options  TransportOptions

	mu      sync.Mutex
	roots   *x509.CertPool
	current *http.Transport
}

// TransportOptions are what the transports of several services differ in.
type TransportOptions struct {
	Proxy         func(*http.Request) (*url.URL, error) // as Proxy returns it; nil: direct
	HeaderTimeout time.Duration                         // how long an answer's first byte may take; default: that of DefaultConfig
	ReadBuffer    int                                   // of a connection, in bytes; default: that of net/http
	HTTP1         bool                                  // HTTP/2 is not offered
}

// NewTransport returns a transport without connections. Time limits other than that of the headers are fixed: 10 s to
// connect, 10 s for a handshake.
func NewTransport(m *setting.Material, o TransportOptions) *Transport {
	o.HeaderTimeout = or(o.HeaderTimeout, DefaultConfig().HeaderTimeout)
	return &Transport{material: m, options: o, dialer: &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}}
}

// pool returns a new pool of connections.
func (t *Transport) pool(roots *x509.CertPool) (*http.Transport, error) {
	config, err := t.material.Client("")
	if err != nil {
		return nil, err
	}
	config.RootCAs = roots
	return &http.Transport{
		Proxy:                  t.options.Proxy,
		DialContext:            t.dialer.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    handshakeTimeout,
		ResponseHeaderTimeout:  t.options.HeaderTimeout,
		ForceAttemptHTTP2:      !t.options.HTTP1, // a TLS configuration of one's own turns it off otherwise
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DisableCompression:     true, // identity is asked for, so that lengths are those of the file
		MaxIdleConns:           idleConnections,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleConnection,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ReadBufferSize:         t.options.ReadBuffer,
	}, nil
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	current, err := t.fresh()
	if err != nil {
		return nil, err
	}
	return current.RoundTrip(r)
}

// fresh returns the pool of connections that trusts the roots in force.
func (t *Transport) fresh() (*http.Transport, error) {
	roots, err := t.material.Roots()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil && t.roots == roots {
		return t.current, nil
	}
	next, err := t.pool(roots)
	if err != nil {
		return nil, err
	}
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
	t.current, t.roots = next, roots
	return next, nil
}

// CloseIdleConnections is found by http.Client.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
}

// Proxy chooses the proxy of a service: its own, then the one common to all, then the environment's; none is direct. An
// error names the key at fault, own by the name ownKey, and quotes nothing: the value may hold a password.
func Proxy(ownKey, own, common string) (func(*http.Request) (*url.URL, error), error) {
	key, value := ownKey, own
	if value == "" {
		key, value = "rest.proxy", common
	}
	switch value {
	case "":
		return http.ProxyFromEnvironment, nil
	case "none":
		return nil, nil
	}
	u, err := url.Parse(value)
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("%s: neither none nor the URL of a proxy", key)
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
		return http.ProxyURL(u), nil
	}
	return nil, fmt.Errorf("%s: must begin with http://, https://, socks5:// or socks5h://", key)
}

// The second try that is made inside one Do: a worker is held meanwhile, so it is one, and soon.
const (
	secondTryMin = 50 * time.Millisecond
	secondTryMax = 500 * time.Millisecond
)

// newAsker returns the client for requests without a body.
func newAsker(t http.RoundTripper, jitter func() float64) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: &http.Client{Transport: t, CheckRedirect: follow(maxHops)},
		RetryMax:   1,
		CheckRetry: secondTry,
		Backoff: func(_, _ time.Duration, _ int, _ *http.Response) time.Duration {
			return secondTryMin + time.Duration(jitter()*float64(secondTryMax-secondTryMin))
		},
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// secondTry asks again when a connection failed before there was an answer: not after a time limit, which has cost
// enough, and not for what time alone won't mend. Any answer, 429 above all, is the gate's to wait for.
func secondTry(ctx context.Context, _ *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err != nil && KindOf(err) == Unreachable && !timedOut(err), nil
}
