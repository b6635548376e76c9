package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

const prefix = "/v1/"

// Client calls the owner of a ledger.
type Client struct{ http *http.Client }

// Dial returns a client of the socket at path. It fails at once when nobody serves the socket.
func Dial(ctx context.Context, path string) (*Client, error) {
	dial := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := conn.Close(); err != nil {
		return nil, err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	return &Client{&http.Client{Transport: transport}}, nil
}

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Handlers receive what a call sends before its result. Each may be nil.
type Handlers struct {
	Item     func(json.RawMessage) error
	Progress func(json.RawMessage) error
}

// Call makes one call and decodes its result into result, which may be nil. It returns an *Error that the owner sent,
// ErrCut when the owner went away, or what a handler returned.
func (c *Client) Call(ctx context.Context, name string, request any, h Handlers, result any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://recibo"+prefix+name, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return cut(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	for decoder := json.NewDecoder(resp.Body); ; {
		var l line
		if err := decoder.Decode(&l); err != nil {
			return cut(ctx, err)
		}
		switch {
		case l.Error != nil:
			return l.Error
		case l.Item != nil:
			err = handle(h.Item, l.Item)
		case l.Progress != nil:
			err = handle(h.Progress, l.Progress)
		default:
			if result == nil || l.Result == nil {
				return nil
			}
			return json.Unmarshal(l.Result, result)
		}
		if err != nil {
			return err
		}
	}
}

func handle(f func(json.RawMessage) error, m json.RawMessage) error {
	if f == nil {
		return nil
	}
	return f(m)
}

func cut(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, io.EOF) {
		return ErrCut
	}
	return fmt.Errorf("%w: %w", ErrCut, err)
}
