package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// answered is one request with what came back.
type answered struct {
	op     string
	sent   *url.URL // where it went at first
	bearer string   // the credential it carried
	token  bool     // it was for a token
	resp   *http.Response
}

// maxProblem is how much of an error's body is read.
const maxProblem = 64 << 10

// answer makes a Response or an *Error of what came. It takes over cancel, which ends the request.
func (c *Client) answer(ctx context.Context, cancel context.CancelCauseFunc, x answered) (*Response, error) {
	h := x.resp
	e := &Error{
		Op: x.op, URL: shown(h.Request.URL), Status: h.StatusCode, Token: x.token,
		RequestID: c.harmless(h.Header.Get("X-Request-Id"), 128, x.bearer),
		foreign:   !sameOrigin(h.Request.URL, x.sent),
	}
	if !e.foreign {
		e.pace = readPacing(h.Header, c.options.Now())
	}
	body := c.newBody(ctx, cancel, h, e)
	if h.StatusCode < 200 || h.StatusCode > 299 {
		defer body.Close()
		return nil, c.refusal(ctx, x, e, body)
	}
	if body.encoding != "" && body.encoding != "gzip" {
		body.Close()
		e.Kind, e.Err = Malformed, fmt.Errorf("the body is encoded as %q, which was not asked for", Harmless(body.encoding, 32))
		return nil, e
	}
	r := &Response{
		Status: h.StatusCode, Header: h.Header, Body: body, Length: h.ContentLength, Framing: framing(h),
		RequestID: e.RequestID, Compressed: body.encoding == "gzip", pace: e.pace,
	}
	if r.Compressed {
		r.Length = -1 // Content-Length is that of other bytes
	}
	return r, nil
}

// framing tells what marks the end of a body (RFC 9112 §6.3). Only a body that ends with its connection can be cut off
// without anybody noticing.
func framing(h *http.Response) string {
	switch {
	case h.ContentLength >= 0:
		return "length"
	case len(h.TransferEncoding) > 0 && h.TransferEncoding[0] == "chunked":
		return "chunked"
	case h.ProtoMajor >= 2:
		return "http2"
	}
	return "close"
}

// refusal completes the error for a status that is no success.
func (c *Client) refusal(ctx context.Context, x answered, e *Error, body io.Reader) error {
	data, _ := io.ReadAll(io.LimitReader(body, maxProblem))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now := c.options.Now()
	e.RetryAt = retryAt(x.resp.Header, now)
	e.Excerpt = c.harmless(string(data), excerptSize, x.bearer)
	var problem struct{ Code, Title, Message json.RawMessage }
	if json.Unmarshal(data, &problem) == nil {
		e.Code = c.harmless(text(problem.Code), 64, x.bearer)
		e.Title = c.harmless(text(problem.Title), excerptSize, x.bearer)
		e.Message = c.harmless(text(problem.Message), excerptSize, x.bearer)
	}
	e.Kind = c.kindOfStatus(e)
	if e.foreign && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden) {
		e.Err = errors.New("answered after a redirect to another origin, where no credentials are sent")
		if x.resp.Request.URL.Hostname() != x.sent.Hostname() {
			e.Kind = Refused // about what was asked for there; for another port or scheme the address of the service is wrong
		}
	}
	if e.Kind == Limited && e.RetryAt.IsZero() && e.pace.known {
		e.RetryAt = now.Add(e.pace.reset)
	}
	return e
}

// kindOfStatus classifies an answer that is no success.
func (c *Client) kindOfStatus(e *Error) Kind {
	switch status := e.Status; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return Auth
	case status == http.StatusProxyAuthRequired:
		return Unreachable
	case status == http.StatusTooManyRequests:
		return Limited
	case status < 400:
		return Malformed
	case c.options.ObjectCode(status, e.Code):
		return Refused
	case status >= 500 || status == http.StatusRequestTimeout:
		return Server
	}
	return Malformed
}

// text is a JSON string's value or a JSON number as it is written; codes come as either.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	if n := strings.TrimSpace(string(raw)); n != "" && (n[0] == '-' || digits(n[:1])) {
		return n
	}
	return ""
}

// harmless makes a text of the service fit to be shown: a service may echo what it was sent, so credentials go first.
func (c *Client) harmless(s string, size int, bearer ...string) string {
	return Harmless(c.hide(s, bearer...), size)
}
