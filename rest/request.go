package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// Do sends a request, after an Acquire of the same class. It returns an answer with a status from 200 to 299, ctx.Err()
// once ctx has ended, or an *Error. A 401 has the token dropped and the request sent once more with another.
func (c *Client) Do(ctx context.Context, class Class, req Request) (*Response, error) {
	if req.Anonymous {
		return c.send(ctx, class, req, "")
	}
	permit, paused := c.gates.begin(class)
	if !paused.IsZero() {
		return nil, waiting(req.Op, paused, false)
	}
	resp, err := c.exchange(ctx, class, req)
	c.gates.settle(class, permit, judge(resp, err, req.Tolerate))
	return resp, err
}

// JSON is Do, and decodes the body, which it closes, into into. An answer above Options.MaxJSON, or that does not fit into, is a
// Malformed *Error. The Response serves its headers only.
func (c *Client) JSON(ctx context.Context, class Class, req Request, into any) (*Response, error) {
	req.Header = req.Header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.Do(ctx, class, req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, c.options.MaxJSON+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > c.options.MaxJSON {
		err = fmt.Errorf("more than %d bytes of JSON", c.options.MaxJSON)
	} else if err = json.Unmarshal(data, into); err == nil {
		return resp, nil
	}
	e := c.Malformed(req, resp, err)
	e.Excerpt = c.harmless(string(data[:min(len(data), maxProblem)]), excerptSize)
	return nil, e
}

// Malformed returns the error for an answer to req that came well but is not what the API promises.
func (c *Client) Malformed(req Request, resp *Response, err error) *Error {
	return &Error{
		Op: req.Op, URL: shown(c.base.JoinPath(req.Path)), Kind: Malformed, Status: resp.Status, RequestID: resp.RequestID, Err: err,
	}
}

// exchange sends a request with a token, and once more with another if the service no longer takes the first.
func (c *Client) exchange(ctx context.Context, class Class, req Request) (*Response, error) {
	if c.tokens == nil {
		return c.send(ctx, class, req, "")
	}
	for again := true; ; again = false {
		token, err := c.tokens.get(ctx)
		if err != nil {
			return nil, c.without(ctx, req, err)
		}
		resp, err := c.send(ctx, class, req, token)
		var e *Error
		if !errors.As(err, &e) || e.Status != http.StatusUnauthorized || e.foreign || !again || !c.tokens.reject(token) {
			return resp, err
		}
	}
}

// without is the error when there is no token: nothing is sent then.
func (c *Client) without(ctx context.Context, req Request, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Op: req.Op, Kind: Auth, Token: true, Err: err}
	}
	own := *e // the error may be shared by everyone who waited for the token
	own.Op = req.Op + ": " + e.Op
	return &own
}

// waiting is the error while the service has asked to be left alone.
func waiting(op string, until time.Time, token bool) *Error {
	return &Error{Op: op, Kind: Limited, RetryAt: until, Token: token, Message: "nothing sent before the time that the service named"}
}

// send sends one request with one token.
func (c *Client) send(ctx context.Context, class Class, req Request, token string) (*Response, error) {
	inner, cancel := context.WithCancelCause(ctx)
	hr, err := c.build(inner, req, token)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	answer, err := c.headers(inner, cancel, hr)
	if err != nil {
		cancel(nil)
		return nil, c.unanswered(ctx, class, req.Op, hr.URL, err)
	}
	return c.answer(ctx, cancel, answered{op: req.Op, sent: hr.URL, bearer: token, resp: answer})
}

// headers waits for an answer's headers. Each answer of a chain of redirects has a limit of its own; this one is for
// the whole, including what net/http waits for without any, such as a redirect's body.
func (c *Client) headers(ctx context.Context, cancel context.CancelCauseFunc, hr *retryablehttp.Request) (*http.Response, error) {
	late := &lateError{2 * c.config.HeaderTimeout}
	timer := time.AfterFunc(late.limit, func() { cancel(late) })
	answer, err := c.asker.Do(hr)
	timer.Stop()
	if context.Cause(ctx) != error(late) {
		return answer, err
	}
	if err == nil {
		_ = answer.Body.Close()
	}
	return nil, late
}

func (c *Client) build(ctx context.Context, req Request, token string) (*retryablehttp.Request, error) {
	hr, err := http.NewRequestWithContext(ctx, or(req.Method, http.MethodGet), c.url(req), nil)
	if err != nil {
		return nil, err
	}
	if !req.Anonymous {
		for name, values := range c.header {
			hr.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	for name, values := range req.Header {
		hr.Header[http.CanonicalHeaderKey(name)] = values
	}
	hr.Header.Set("User-Agent", c.options.UserAgent)
	hr.Header.Set("Accept-Encoding", "identity")
	if token != "" {
		hr.Header.Set("Authorization", "Bearer "+token)
	}
	return retryablehttp.FromRequest(hr)
}

func (c *Client) url(req Request) string {
	u := c.base.JoinPath(req.Path)
	u.RawQuery = req.Query.Encode()
	return u.String()
}

// shown is a URL without what may be a credential.
func shown(u *url.URL) string {
	plain := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return Harmless(plain.String(), excerptSize)
}
