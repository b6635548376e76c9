package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"recibo/setting"
)

// tokens is where bearer tokens come from. Whoever can't get one sends nothing.
type tokens interface {
	// get returns the token in force.
	get(ctx context.Context) (string, error)
	// reject drops a token that was answered 401, and reports whether another may be had.
	reject(token string) bool
	// secrets lists what must not be shown.
	secrets() []string
}

func (c *Client) newTokens(s Service) tokens {
	switch {
	case s.Token.IsSet():
		return fixed{s.Token}
	case s.ClientCredentials != nil:
		return &renewed{ask: c.askToken(*s.ClientCredentials), secret: s.ClientCredentials.ClientSecret, now: c.options.Now}
	}
	return nil
}

// hide replaces every credential of ours in s, also as JSON or a query would write it.
func (c *Client) hide(s string, bearer ...string) string {
	secrets := bearer
	if c.tokens != nil {
		secrets = append(secrets, c.tokens.secrets()...)
	}
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		quoted, _ := json.Marshal(secret)
		for _, form := range []string{secret, string(quoted[1 : len(quoted)-1]), url.QueryEscape(secret)} {
			s = strings.ReplaceAll(s, form, setting.Hidden)
		}
	}
	return s
}

// fixed is a token of the configuration, read anew each time since its file may have changed.
type fixed struct{ token setting.Secret }

func (f fixed) get(context.Context) (string, error) { return usable(f.token.Reveal()) }

func (f fixed) reject(token string) bool { return f.token.Reveal() != token }

func (f fixed) secrets() []string { return []string{f.token.Reveal()} }

// usable refuses what no header can carry; net/http would too, after the token had been counted as sent.
func usable(token string) (string, error) {
	if token == "" {
		return "", errors.New("the token is empty")
	}
	if !headerValue(token) {
		return "", errors.New("the token holds characters that no header may carry")
	}
	return token, nil
}

// renewed is a token that was asked for and runs out. However many want it, it is asked for once at a time.
type renewed struct {
	ask    func(context.Context) (grant, error)
	secret setting.Secret
	now    func() time.Time

	mu      sync.Mutex
	grant   grant
	renewAt time.Time // before grant.until
	flight  *flight
}

// grant is a token and its end.
type grant struct {
	token string
	until time.Time
}

// flight is one request for a token with those who wait for it.
type flight struct {
	done  chan struct{}
	token string
	err   error
}

// renewRetry is the pause after a renewal that failed while the old token still serves.
const renewRetry = 5 * time.Second

func (g *renewed) get(ctx context.Context) (string, error) {
	for {
		g.mu.Lock()
		if g.grant.token != "" && g.now().Before(g.renewAt) {
			defer g.mu.Unlock()
			return g.grant.token, nil
		}
		f := g.flight
		if f == nil {
			f = &flight{done: make(chan struct{})}
			g.flight = f
			g.mu.Unlock()
			g.fly(ctx, f)
			return f.token, f.err
		}
		g.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, context.DeadlineExceeded) {
			return f.token, f.err
		}
		// Whoever asked has been stopped for reasons that are not ours: ask again.
	}
}

// fly asks for a token and ends the flight.
func (g *renewed) fly(ctx context.Context, f *flight) {
	next, err := g.ask(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	switch {
	case err == nil:
		life := next.until.Sub(now)
		g.grant, g.renewAt = next, next.until.Add(-min(life/5, time.Minute))
		f.token = next.token
	case g.grant.token != "" && now.Before(g.grant.until):
		g.renewAt = now.Add(renewRetry) // the old one still serves
		f.token = g.grant.token
	default:
		f.err = err
	}
	g.flight = nil
	close(f.done)
}

func (g *renewed) reject(token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.grant.token == token {
		g.grant.token = ""
	}
	return true
}

func (g *renewed) secrets() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return []string{g.grant.token, g.secret.Reveal()}
}
