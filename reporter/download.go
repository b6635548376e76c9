package reporter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"recibo/rest"
)

// Resume asks for the rest of a file that was begun. The zero Resume asks for all of it.
type Resume struct {
	Offset int64  // bytes already here
	ETag   string // the strong validator that came with them; without one the file is asked for from its start
}

// Download is a file on its way. Whoever gets it closes Body.
type Download struct {
	Body        io.ReadCloser // as rest.Response.Body
	Offset      int64         // where Body begins in the file: Resume.Offset, or 0 when the server started over
	Length      int64         // of the whole file, -1 unknown
	Framing     string        // what marks the end of Body: length, chunked, http2 or close
	ContentType string        // as sent
	FileName    string        // the name in Content-Disposition: metadata, never a path to write to
	Disposition string        // Content-Disposition as sent
	ETag        string        // strong validator, empty when there is none that a resumption could rely on
	RequestID   string
}

// ErrStartOver is in errors of a resumption that can't be continued, now or later: the part that is here must go.
var ErrStartOver = errors.New("the download can't be resumed, it must start over")

// StartOver reports whether the part that is here must go before the next attempt.
func StartOver(err error) bool { return errors.Is(err, ErrStartOver) }

// Download fetches a report's file; the caller has acquired rest.Download. It resumes only what is provably the same
// file: Range with If-Range and a strong validator (RFC 9110 §13.1.5), answered 206 with the same validator and a
// Content-Range from exactly the offset to the end. Reporter itself knows no ranges and answers 200: that starts over.
func (c *Client) Download(ctx context.Context, id string, r Resume) (*Download, error) {
	op := "download report " + rest.Harmless(id, 64)
	if err := c.check(rest.Download, op, id); err != nil {
		return nil, err
	}
	req := rest.Request{Path: "/v1/reports/" + url.PathEscape(id) + "/download", Op: op, Header: http.Header{"Accept": {"*/*"}}}
	resumed := r.Offset > 0 && strong(r.ETag)
	if resumed {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", r.Offset))
		req.Header.Set("If-Range", r.ETag)
	}
	resp, err := c.Do(ctx, rest.Download, req)
	if err != nil {
		return nil, startOver(err, resumed)
	}
	d := describe(resp)
	switch {
	case resp.Status == http.StatusOK:
		return d, nil
	case resp.Status == http.StatusPartialContent && resumed:
		if err = d.continues(r, resp); err == nil {
			return d, nil
		}
		err = fmt.Errorf("%w: %w", ErrStartOver, err)
	default:
		err = errors.New("not the status of a file that was asked for whole")
		if resumed {
			err = errors.New("not the status of a file or of its rest")
		}
	}
	_ = resp.Body.Close()
	return nil, c.Malformed(req, resp, err)
}

// startOver marks the answer that there is nothing after the offset: the file has become shorter.
func startOver(err error, resumed bool) error {
	var e *rest.Error
	if resumed && errors.As(err, &e) && !e.Token && e.Status == http.StatusRequestedRangeNotSatisfiable {
		e.Err = ErrStartOver
	}
	return err
}

// describe reads the headers of a whole file.
func describe(resp *rest.Response) *Download {
	d := &Download{
		Body: resp.Body, Length: resp.Length, Framing: resp.Framing, RequestID: resp.RequestID,
		ContentType: rest.Harmless(resp.Header.Get("Content-Type"), maxName),
		Disposition: rest.Harmless(resp.Header.Get("Content-Disposition"), 2*maxName),
	}
	if _, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition")); err == nil {
		d.FileName = rest.Harmless(params["filename"], maxName)
	}
	if tag := resp.Header.Get("ETag"); strong(tag) && !resp.Compressed { // decoded, the bytes are not those it validates
		d.ETag = tag
	}
	return d
}

var contentRange = regexp.MustCompile(`^bytes (\d{1,18})-(\d{1,18})/(\d{1,18})$`)

// continues checks that a 206 is the rest of the same file and sets where it begins and how long the whole is.
func (d *Download) continues(r Resume, resp *rest.Response) error {
	if resp.Compressed {
		return errors.New("the rest came in another encoding")
	}
	if d.ETag != r.ETag {
		return errors.New("the rest came with another validator")
	}
	said := resp.Header.Get("Content-Range")
	m := contentRange.FindStringSubmatch(strings.TrimSpace(said))
	if m == nil {
		return fmt.Errorf("no Content-Range that can be read: %q", rest.Harmless(said, 64))
	}
	var start, end, total int64
	for i, n := range []*int64{&start, &end, &total} {
		*n, _ = strconv.ParseInt(m[i+1], 10, 64) // 18 digits fit
	}
	if start != r.Offset || end < start || end+1 != total {
		return fmt.Errorf("Content-Range %s is not the rest from %d", said, r.Offset)
	}
	if resp.Length >= 0 && resp.Length != total-start {
		return fmt.Errorf("Content-Range %s with a Content-Length of %d", said, resp.Length)
	}
	d.Offset, d.Length = start, total
	return nil
}

// strong reports whether tag is a strong validator (RFC 9110 §8.8.3) that can be sent back.
func strong(tag string) bool {
	const longest = 512
	if len(tag) < 2 || len(tag) > longest || tag[0] != '"' || tag[len(tag)-1] != '"' {
		return false
	}
	for i := 1; i < len(tag)-1; i++ {
		if c := tag[i]; c == '"' || c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}
