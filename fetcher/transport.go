package fetcher

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"recibo/rest"
	"recibo/setting"
)

// Bounds of a connection to an object store. A mean rate goes beside the idle limit, since one byte a minute never trips
// that (law 8: every wait has a bound).
const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleConnection   = 90 * time.Second
	connections      = 8
	maxHeaderBytes   = 1 << 20
	readBuffer       = 64 << 10 // what is read in larger pieces, as results are, goes around it
	leastRate        = 1024     // bytes per second
	leastRateOver    = 5 * time.Minute
)

// transport sends the requests of the S3 client with the TLS files as they are now, and follows no redirect. When the
// roots change it goes over to a new pool of connections.
type transport struct {
	material *setting.Material
	proxy    func(*http.Request) (*url.URL, error)
	timeout  time.Duration // until an answer's headers

	mu      sync.Mutex
	roots   *x509.CertPool
	current *http.Transport
}

func newTransport(c Config, rc rest.Config) (*transport, error) {
	material, err := setting.NewMaterial(c.Objects.TLS, rc.CAFile)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	proxy, err := proxy(c, rc)
	if err != nil {
		return nil, err
	}
	return &transport{material: material, proxy: proxy, timeout: rc.HeaderTimeout}, nil
}

// proxy chooses fetcher.proxy, then rest.proxy, then the environment's. Its error quotes nothing: the value may hold a
// password.
func proxy(c Config, rc rest.Config) (func(*http.Request) (*url.URL, error), error) {
	value := or(c.Proxy, rc.Proxy)
	switch value {
	case "":
		return http.ProxyFromEnvironment, nil
	case "none":
		return nil, nil
	}
	u, err := url.Parse(value)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("neither none nor the URL of a proxy")
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
		return http.ProxyURL(u), nil
	}
	return nil, errors.New("must begin with http://, https://, socks5:// or socks5h://")
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	current, err := t.fresh()
	if err != nil {
		return nil, err
	}
	return current.RoundTrip(r)
}

func (t *transport) fresh() (*http.Transport, error) {
	roots, err := t.material.Roots()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil && t.roots == roots {
		return t.current, nil
	}
	config, err := t.material.Client("")
	if err != nil {
		return nil, err
	}
	config.RootCAs = roots
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	t.roots, t.current = roots, &http.Transport{
		Proxy:                  t.proxy,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    handshakeTimeout,
		ResponseHeaderTimeout:  t.timeout,
		DisableCompression:     true, // lengths are those of the object
		MaxIdleConnsPerHost:    connections,
		IdleConnTimeout:        idleConnection,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ReadBufferSize:         readBuffer,
	}
	return t.current, nil
}

// CloseIdleConnections is found by http.Client.
func (t *transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
}

// watched reads a body and gives it up when a single read takes longer than the idle limit, or when the time spent in
// reads brings too few bytes. What its reader does between reads is not counted.
type watched struct {
	from   io.ReadCloser
	cancel context.CancelFunc
	idle   time.Duration
	timer  *time.Timer

	tripped atomic.Bool
	spent   time.Duration
	bytes   int64
}

func watch(from io.ReadCloser, cancel context.CancelFunc, idle time.Duration) *watched {
	w := &watched{from: from, cancel: cancel, idle: idle}
	w.timer = time.AfterFunc(idle, func() {
		w.tripped.Store(true)
		cancel()
	})
	w.timer.Stop()
	return w
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	w.timer.Reset(w.idle)
	began := time.Now()
	n, err := w.from.Read(p)
	w.timer.Stop()
	if err != nil {
		if err != io.EOF && w.tripped.Load() {
			err = fmt.Errorf("no byte for %s", w.idle)
		}
		return n, err
	}
	w.spent += time.Since(began)
	w.bytes += int64(n)
	if w.spent < leastRateOver {
		return n, nil
	}
	if float64(w.bytes) < leastRate*w.spent.Seconds() {
		return n, fmt.Errorf("%d bytes in %s", w.bytes, w.spent.Round(time.Second))
	}
	w.spent, w.bytes = 0, 0
	return n, nil
}

// Close ends the request.
func (w *watched) Close() error {
	w.timer.Stop()
	w.cancel()
	return w.from.Close()
}
