package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Bounds of the request for a token.
const (
	maxToken    = 1 << 20
	defaultLife = 5 * time.Minute // of a token that comes without expiresIn
	longestLife = 24 * time.Hour
)

// askToken returns how to ask Access Manager for a token: POST with JSON, not a form, answered by accessToken and
// expiresIn in seconds. Its gate and pace are those of the class Token. Whatever keeps a token from being had is the
// service's trouble: a report can't help it.
func (c *Client) askToken(cc ClientCredentials) func(context.Context) (grant, error) {
	endpoint := tokenURL(cc.URL, c.options.TokenPath)
	return func(ctx context.Context) (grant, error) {
		permit, paused := c.gates.begin(Token)
		if !paused.IsZero() {
			return grant{}, waiting("get a token", paused, true)
		}
		g, resp, err := c.postToken(ctx, endpoint, cc)
		var e *Error
		if errors.As(err, &e) {
			e.Token = true
			if !e.Service() {
				e.Kind = Auth
			}
		}
		c.gates.settle(Token, permit, judge(resp, err, nil))
		return g, err
	}
}

// tokenURL adds the endpoint's path unless it is there already.
func tokenURL(base, path string) string {
	u, err := url.Parse(base)
	if err != nil || strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), path) {
		return base
	}
	return u.JoinPath(path).String()
}

func (c *Client) postToken(parent context.Context, endpoint string, cc ClientCredentials) (grant, *Response, error) {
	bounded, stop := context.WithTimeout(parent, c.options.TokenTimeout)
	defer stop()
	ctx, cancel := context.WithCancelCause(bounded)
	defer cancel(nil)
	r, err := tokenRequest(ctx, endpoint, cc)
	if err != nil {
		return grant{}, nil, &Error{Op: "get a token", Kind: Auth, Err: err}
	}
	r.Header.Set("User-Agent", c.options.UserAgent)
	asked := c.options.Now()
	answer, err := c.poster.Do(r)
	if err != nil {
		err = c.unanswered(bounded, Token, "get a token", r.URL, err)
		return grant{}, nil, c.overdue(parent, r.URL, err)
	}
	resp, err := c.answer(bounded, cancel, answered{op: "get a token", sent: r.URL, token: true, resp: answer})
	if err != nil {
		return grant{}, nil, c.overdue(parent, r.URL, err)
	}
	defer resp.Body.Close()
	g, err := readGrant(resp.Body, asked)
	if err != nil {
		// The body is not shown: it may well hold a token under another name.
		err = &Error{Op: "get a token", URL: shown(r.URL), Kind: Auth, Status: resp.Status, RequestID: resp.RequestID, Err: err}
		return grant{}, nil, c.overdue(parent, r.URL, err)
	}
	return g, resp, nil
}

func tokenRequest(ctx context.Context, endpoint string, cc ClientCredentials) (*http.Request, error) {
	data, err := json.Marshal(map[string]string{
		"grantType": "client_credentials", "clientId": cc.ClientID, "clientSecret": cc.ClientSecret.Reveal(),
	})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Accept-Encoding", "identity")
	return r, nil
}

// overdue tells the end of Options.TokenTimeout from the end of the caller's context.
func (c *Client) overdue(parent context.Context, u *url.URL, err error) error {
	if parent.Err() != nil {
		return parent.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Op: "get a token", URL: shown(u), Kind: Unreachable, Err: fmt.Errorf("no token within %s", c.options.TokenTimeout)}
	}
	return err
}

// readGrant reads the answer. The token's life counts from when it was asked for.
func readGrant(body io.Reader, asked time.Time) (grant, error) {
	data, err := io.ReadAll(io.LimitReader(body, maxToken))
	if err != nil {
		return grant{}, err
	}
	var answer struct {
		AccessToken string          `json:"accessToken"`
		ExpiresIn   json.RawMessage `json:"expiresIn"`
	}
	if json.Unmarshal(data, &answer) != nil {
		return grant{}, errors.New("the answer is not the JSON of a token")
	}
	token, err := usable(answer.AccessToken)
	if err != nil {
		return grant{}, errors.New("the answer holds no accessToken that can be used")
	}
	life := defaultLife
	if n, err := strconv.ParseFloat(text(answer.ExpiresIn), 64); err == nil && n > 0 {
		life = time.Duration(min(n, longestLife.Seconds()) * float64(time.Second))
	}
	return grant{token, asked.Add(life)}, nil
}
