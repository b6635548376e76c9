package rest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/textproto"
	"net/url"
	"strings"
	"time"
)

// unanswered makes an error of a request that got no answer.
func (c *Client) unanswered(ctx context.Context, class Class, op string, u *url.URL, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e := &Error{Op: op, URL: shown(u), Kind: KindOf(err), Err: c.cause(err)}
	if class == Download && awaitingHeaders(err) {
		// The service may be busy with this one file, so it is not taken for an outage (law 9: what is slow for one
		// report never delays another). In an outage the description that comes before each download fails too.
		e.Kind = TooSlow
	}
	return e
}

// cause drops the URL that net/http puts around an error, with its query, and hides credentials. The chain is kept
// unless the text held one.
func (c *Client) cause(err error) error {
	var u *url.Error
	for errors.As(err, &u) {
		err = u.Err
	}
	if hidden := c.hide(err.Error()); hidden != err.Error() {
		return errors.New(hidden)
	}
	return err
}

// KindOf classifies an error of net/http as Unreachable, BadTLS or Malformed. It has types for some of these only; for the
// others the text decides.
func KindOf(err error) Kind {
	var redirect *redirectError
	var protocol textproto.ProtocolError
	switch text := err.Error(); {
	case errors.As(err, &redirect):
		return Malformed
	case isTLS(err) || strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return BadTLS
	case errors.As(err, &protocol), strings.Contains(text, "malformed HTTP"), strings.Contains(text, "response headers exceeded"),
		strings.Contains(text, "Location header"), strings.Contains(text, "response header list larger"):
		return Malformed
	}
	return Unreachable
}

func isTLS(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		record       tls.RecordHeaderError
		unknown      x509.UnknownAuthorityError
		host         x509.HostnameError
		invalid      x509.CertificateInvalidError
		op           *net.OpError
	)
	if errors.As(err, &verification) || errors.As(err, &record) || errors.As(err, &unknown) || errors.As(err, &host) ||
		errors.As(err, &invalid) {
		return true
	}
	// An alert, such as the refusal of our certificate, comes as an operation of this name.
	return errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error")
}

func timedOut(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// lateError is the end of the time for all headers of one request; as a net.Error it is a time limit like net/http's.
type lateError struct{ limit time.Duration }

func (e *lateError) Error() string {
	return "still awaiting response headers after " + e.limit.String()
}
func (e *lateError) Timeout() bool   { return true }
func (e *lateError) Temporary() bool { return true }

func awaitingHeaders(err error) bool {
	return timedOut(err) && strings.Contains(err.Error(), "awaiting response headers")
}
