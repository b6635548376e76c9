package fetcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"recibo/rest"
)

// The statuses that Fetcher documents. Others may come and are to be taken for not ended.
const (
	Pending    = "pending"
	Processing = "processing"
	Completed  = "completed"
	Failed     = "failed"
)

// Client calls one Fetcher. Job uses up one Acquire of rest.Get, whatever it returns.
type Client struct{ *rest.Client }

// NewClient returns a client, or nil when no address is configured. Its errors name the key of the configuration that
// must change. For one of several sources, c is Config.With of it.
func NewClient(rc rest.Config, c Config, o rest.Options) (*Client, error) {
	if c.URL == "" {
		return nil, nil
	}
	if o.ObjectCode == nil {
		o.ObjectCode = objectCode
	}
	client, err := rest.New(rc, rest.Service{
		Section: "fetcher", URL: c.URL, Token: c.Token, ClientCredentials: c.ClientCredentials, TLS: c.TLS, Proxy: c.Proxy,
	}, o)
	if err != nil {
		return nil, err
	}
	return &Client{client}, nil
}

// Job is a description. Texts are as Fetcher wrote them; what was null or absent is empty.
type Job struct {
	ID          string
	Status      string          // in lower case
	Metadata    json.RawMessage // the requester's own, verbatim; nil for null
	Error       string          // metadata.error: sensitive, for operators and no third party
	ResultPath  string
	ResultHMAC  string
	CreatedAt   string
	CompletedAt string
}

// Result is what a description says about the result of a completed job. It knows no size.
func (j *Job) Result() Result {
	return Result{Path: j.ResultPath, SizeBytes: SizeUnknown, Format: "json", HMAC: j.ResultHMAC}
}

// UnmarshalJSON implements json.Unmarshaler. A job needs an id and a status; anything else may be missing.
func (j *Job) UnmarshalJSON(data []byte) error {
	var wire struct {
		ID, Status, ResultPath, ResultHmac, CreatedAt, CompletedAt string
		Metadata                                                   json.RawMessage
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	if !PlainID(wire.ID) {
		return fmt.Errorf("%w: %q", ErrID, rest.Harmless(wire.ID, 64))
	}
	if wire.Status == "" {
		return errors.New("a job without a status")
	}
	if bytes.Equal(wire.Metadata, []byte("null")) {
		wire.Metadata = nil
	}
	*j = Job{
		ID: wire.ID, Status: strings.ToLower(wire.Status), Metadata: wire.Metadata, Error: errorText(wire.Metadata),
		ResultPath: wire.ResultPath, ResultHMAC: wire.ResultHmac, CreatedAt: wire.CreatedAt, CompletedAt: wire.CompletedAt,
	}
	return nil
}

// Job describes one job; the caller has acquired rest.Get. There is no list of jobs: only ids that are known can be asked
// about.
func (c *Client) Job(ctx context.Context, id string) (*Job, error) {
	op := "get job " + rest.Harmless(id, 64)
	if !PlainID(id) {
		c.Cancel(rest.Get)
		return nil, &rest.Error{Op: op, Kind: rest.Refused, Err: fmt.Errorf("%w: %q", ErrID, rest.Harmless(id, 64))}
	}
	req := rest.Request{Path: "/v1/fetcher/" + url.PathEscape(id), Op: op}
	var job Job
	resp, err := c.JSON(ctx, rest.Get, req, &job)
	if err != nil {
		return nil, err
	}
	if !strings.EqualFold(job.ID, id) {
		return nil, c.Malformed(req, resp, fmt.Errorf("the answer describes %q", job.ID))
	}
	return &job, nil
}

// Unknown reports whether an error of Job says that Fetcher knows no such job.
func Unknown(err error) bool {
	var e *rest.Error
	return errors.As(err, &e) && !e.Token && e.Status == http.StatusNotFound && e.Code == "FET-1001"
}

// objectCode reports whether an answer is about the job asked for: one with a code of Fetcher's own that is no trouble of
// the service.
func objectCode(status int, code string) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return false
	}
	return status < 500 && strings.HasPrefix(code, "FET-")
}

// ErrID is an id that is no UUID in its usual form of 36 characters.
var ErrID = errors.New("not the id of a job")

// PlainID reports whether id is a UUID, as every job's is. Ids become paths, file names and lines of a signed text.
func PlainID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F':
		default:
			return false
		}
	}
	return true
}
