// Package reporter asks Reporter's REST API about reports and fetches their files. It guarantees that what it returns
// is what was asked for: a description carries the id it was asked by, and a resumed download continues exactly the
// file that was begun, or starts over and says so.
package reporter

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"recibo/rest"
	"recibo/setting"
)

// Config is the section reporter.
type Config struct {
	Enabled           bool                    `yaml:"enabled" doc:"ask Reporter and fetch its reports"`
	URL               string                  `yaml:"url" doc:"Reporter's address"`
	OrganizationID    string                  `yaml:"organization_id" doc:"sent as X-Organization-Id"`
	Token             setting.Secret          `yaml:"token" doc:"fixed bearer token"`
	ClientCredentials *rest.ClientCredentials `yaml:"client_credentials" doc:"Access Manager, in place of a fixed token"`
	TLS               setting.TLS             `yaml:"tls" doc:"roots and client certificate"`
	Proxy             string                  `yaml:"proxy" doc:"as rest.proxy, for Reporter alone"`
}

// DefaultConfig returns a Reporter on this machine, on the port of its documentation.
func DefaultConfig() Config { return Config{Enabled: true, URL: "http://127.0.0.1:4005"} }

// Validate says which value can't work.
func (c Config) Validate() error {
	if !c.Enabled {
		return nil
	}
	client, err := New(rest.DefaultConfig(), c, rest.Options{})
	if err != nil {
		return err
	}
	client.Close()
	return nil
}

// Client calls one Reporter. Report, Page and Download each use up one Acquire of their class, whatever they return.
type Client struct{ *rest.Client }

// New returns a client. Its errors name the key of the configuration that must change.
func New(rc rest.Config, c Config, o rest.Options) (*Client, error) {
	header := http.Header{}
	if c.OrganizationID != "" {
		for _, char := range c.OrganizationID {
			if char < ' ' || char > '~' {
				return nil, errors.New("reporter.organization_id: holds characters that no header may carry")
			}
		}
		header.Set("X-Organization-Id", c.OrganizationID)
	}
	if o.ObjectCode == nil {
		o.ObjectCode = objectCode
	}
	client, err := rest.New(rc, rest.Service{
		Section: "reporter", URL: c.URL, Token: c.Token, ClientCredentials: c.ClientCredentials,
		TLS: c.TLS, Proxy: c.Proxy, Header: header,
	}, o)
	if err != nil {
		return nil, err
	}
	return &Client{client}, nil
}

// Ready asks whether Reporter is ready: /readyz of the 2026 versions, /ready of v1.1, /health where neither is known or
// a gateway keeps it to itself. It needs no Acquire, sends no token, and moves no gate.
func (c *Client) Ready(ctx context.Context) error {
	var err error
	for _, path := range []string{"/readyz", "/ready", "/health"} {
		var resp *rest.Response
		resp, err = c.Do(ctx, rest.Get, rest.Request{Path: path, Op: "get " + path, Anonymous: true})
		if err == nil {
			return resp.Body.Close()
		}
		if !status(err, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented,
			http.StatusUnauthorized, http.StatusForbidden) {
			return err
		}
	}
	return err
}

// check refuses an id that is not plain before anything is sent: Reporter's are UUIDs, and one from an event must not
// lead to another path.
func (c *Client) check(class rest.Class, op, id string) error {
	if plain(id) {
		return nil
	}
	c.Cancel(class)
	return &rest.Error{Op: op, Kind: rest.Refused, Err: fmt.Errorf("%w: %q", ErrID, rest.Harmless(id, 64))}
}

// ErrID is an id with characters other than letters, digits, "-", "_" and ".", without one that is not a dot, or longer
// than 128 bytes.
var ErrID = errors.New("not the id of a report")

func plain(id string) bool {
	const longest = 128
	dots := 0
	for i := range len(id) {
		switch c := id[i]; {
		case c == '.':
			dots++
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return dots < len(id) && len(id) <= longest
}
