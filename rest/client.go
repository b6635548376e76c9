// Package rest is how recibo calls an HTTP service. It guarantees that a service in trouble meets one probe at a time
// and that its trouble spends nobody's budget; that credentials reach the configured origin only, and that a request
// which needs them is never sent without; that every wait has a bound and ends with its context; and that a body which
// came to its end without an error is as long as its framing promised.
package rest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"recibo/setting"
)

// Class is a kind of request that the service limits by itself, and that has its own gate and pace.
type Class string

// The classes.
const (
	Get      Class = "get"
	Download Class = "download"
	Token    Class = "token"
)

// Request is one request. It has no body: the one request that needs one, for a token, is made by the client itself.
type Request struct {
	Method    string // default GET
	Path      string // below the service's URL, escaped
	Query     url.Values
	Header    http.Header
	Op        string // what is being done, for errors, such as get report 0197
	Tolerate  []int  // statuses that count as contact although they are errors: they close no gate
	Anonymous bool   // sent without credentials and outside of gates and pacing: a question about health
}

// Response is an answer with a status from 200 to 299. Whoever gets it closes Body.
type Response struct {
	Status int
	Header http.Header

	// Body is watched. It ends with io.EOF only when it is as long as its framing said; otherwise with the context's
	// error or an *Error: Broken (io.ErrUnexpectedEOF for one that is short), or TooSlow after Config.IdleTimeout
	// without a byte or below Options.MinRate. Only time spent waiting for the service counts.
	Body io.ReadCloser

	Length     int64  // bytes that Body will give, -1 unknown
	Framing    string // what tells where the body ends: length, chunked, http2 or close
	RequestID  string // X-Request-Id
	Compressed bool   // Body was decoded from gzip, which had not been asked for

	pace pacing
}

// Client calls one service. All methods may be used concurrently.
type Client struct {
	base    *url.URL
	header  http.Header
	options Options
	config  Config

	gates     *gates
	tokens    tokens // nil: the service takes requests without
	transport *Transport
	asker     *retryablehttp.Client // requests without a body
	poster    *http.Client          // the request for a token: no second try, no redirect
}

// New returns a client for one service. Its errors name the key of the configuration that must change.
func New(c Config, s Service, o Options) (*Client, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	base, err := s.check()
	if err != nil {
		return nil, err
	}
	material, err := material(c, s)
	if err != nil {
		return nil, err
	}
	proxy, err := Proxy(s.key("proxy"), s.Proxy, c.Proxy)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	client := &Client{base: base, header: s.Header.Clone(), options: o, config: c}
	client.gates = newGates(o, Get, Download, Token)
	client.transport = NewTransport(material, TransportOptions{Proxy: proxy, HeaderTimeout: c.HeaderTimeout})
	client.asker = newAsker(client.transport, o.Jitter)
	client.poster = &http.Client{Transport: client.transport, CheckRedirect: follow(0)}
	client.tokens = client.newTokens(s)
	return client, nil
}

// material reads the TLS files of the service and those common to all.
func material(c Config, s Service) (*setting.Material, error) {
	if _, err := setting.NewMaterial(setting.TLS{}, c.CAFile); err != nil {
		return nil, fmt.Errorf("rest.ca_file: %w", err)
	}
	m, err := setting.NewMaterial(s.TLS, c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.key("tls"), err)
	}
	return m, nil
}

// Close drops idle connections. Bodies that are still being read are not touched.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Acquire waits until the class's gate is open, or the caller is the one probe of a closed gate, and until the pacer
// has a slot. The caller then owes exactly one Do or one Cancel. It returns ctx.Err() as soon as ctx ends, and no other
// error. Callers wait here before they take a worker (law 8: a wait holds no worker).
func (c *Client) Acquire(ctx context.Context, class Class) error { return c.gates.acquire(ctx, class) }

// Cancel gives an Acquire back that no Do will follow.
func (c *Client) Cancel(class Class) { c.gates.cancel(class) }

// Gates returns the state of each class's gate.
func (c *Client) Gates() []GateStatus { return c.gates.status() }

// Changed receives a value after gates opened or closed; several changes may share one. It serves one receiver.
func (c *Client) Changed() <-chan struct{} { return c.gates.changed }

// GateStatus tells whether requests of a class are let through.
type GateStatus struct {
	Class   Class
	Open    bool
	Since   time.Time // of the last opening or closing
	Reason  string    // of a closed gate: the error that closed it or failed its last probe
	Kind    Kind
	ProbeAt time.Time // of a closed gate: when the next probe may pass
}
