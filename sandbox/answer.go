package sandbox

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// answer is what a request will get: the right one at first, then as the faults leave it.
type answer struct {
	status int
	header http.Header
	body   body
	file   *record // whose file the body is; nil for every other body

	length lengthKind
	wrong  int64 // added to the Content-Length
	cut    cutKind
	bytes  int64         // where a cut is made; below 0 from the end
	step   int64         // bytes at a time, 0: all at once
	every  time.Duration // between two steps
	late   time.Duration // before the header
	hang   bool
	gzip   bool

	ranges, weak, shifted bool // a validator is sent; it is a weak one; ranges are not those that were asked for
}

type lengthKind int

const (
	lengthDeclared lengthKind = iota
	lengthChunked
	lengthByClose
)

type cutKind int

const (
	whole    cutKind = iota
	cutAbort         // the client can see that the body is not whole
	cutQuiet         // it can't
)

// body is bytes that can be sent from anywhere.
type body interface {
	length() int64                                                 // below 0: not known before it is sent
	copyTo(w io.Writer, off, end int64) (written int64, err error) // with an unknown length everything, whatever end says
}

// send answers. It panics with http.ErrAbortHandler where the connection has to break.
func (r *Reporter) send(w http.ResponseWriter, req *http.Request, a *answer) {
	if a.hang {
		r.pause(req, time.Duration(1<<62))
	}
	r.pause(req, a.late)
	if a.gzip {
		a.compress()
	}
	off, end := a.span(req.Header)
	total := end - off
	send := a.frame(total)

	header := w.Header()
	for key, values := range a.header {
		header[key] = values
	}
	w.WriteHeader(a.status)
	flush := http.NewResponseController(w).Flush
	if a.length == lengthChunked || a.cut != whole || a.step > 0 {
		_ = flush() // the header goes out on its own; a write error shows up in the body
	}
	if a.file != nil {
		r.counted.begin(a.file.ID)
	}
	out := a.through(w, flush, send, func() { r.pause(req, a.every) })
	n, err := a.body.copyTo(out, off, off+send)
	if a.file != nil {
		r.counted.bytes.Add(n)
	}
	switch {
	case a.cut == cutAbort:
		_ = flush()
		panic(http.ErrAbortHandler)
	case a.file != nil && err == nil && a.cut == whole && a.wrong >= 0:
		r.counted.completed.Add(1)
	}
}

// through puts what the faults make of a body between it and the connection.
func (a *answer) through(w io.Writer, flush func() error, send int64, wait func()) io.Writer {
	if a.step > 0 {
		w = &slowWriter{w, flush, a.step, wait}
	}
	if a.body.length() < 0 {
		w = &cutWriter{w, send}
	}
	return w
}

// span answers a range, where the answer honours ranges, and returns which bytes go out.
func (a *answer) span(asked http.Header) (off, end int64) {
	size := a.body.length()
	if !a.ranges || a.gzip || a.file == nil {
		return 0, size
	}
	tag := fmt.Sprintf("%q", fmt.Sprintf("%016x-%x", a.file.Seed, a.file.Size))
	if a.weak {
		tag = "W/" + tag
	}
	a.header.Set("ETag", tag)
	a.header.Set("Accept-Ranges", "bytes")
	// RFC 9110 §13.1.5: a weak validator never makes If-Range true.
	if condition := asked.Get("If-Range"); condition != "" && (a.weak || condition != tag) {
		return 0, size
	}
	off, end, ok := parseRange(asked.Get("Range"), size)
	if !ok {
		return 0, size
	}
	if off >= size {
		a.status, a.body, a.file = http.StatusRequestedRangeNotSatisfiable, byteBody(nil), nil
		a.header.Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return 0, 0
	}
	if a.shifted {
		off = max(off-1, 0)
	}
	a.status = http.StatusPartialContent
	a.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", off, end-1, size))
	return off, end
}

// parseRange reads a range of bytes; what it can't read is no range, as RFC 9110 §14.2 allows.
func parseRange(text string, size int64) (off, end int64, ok bool) {
	text, ok = strings.CutPrefix(text, "bytes=")
	first, last, dash := strings.Cut(text, "-")
	if !ok || !dash || strings.Contains(text, ",") {
		return 0, 0, false
	}
	if first == "" {
		n, err := strconv.ParseInt(last, 10, 64)
		return max(size-n, 0), size, err == nil && n > 0
	}
	off, err := strconv.ParseInt(first, 10, 64)
	if err != nil || last == "" {
		return off, size, err == nil
	}
	to, err := strconv.ParseInt(last, 10, 64)
	return off, min(to+1, size), err == nil && to >= off
}

// frame sets the headers about the body's length and returns how many bytes go out; below 0 all, however many.
func (a *answer) frame(total int64) (send int64) {
	send = total
	switch {
	case a.length == lengthByClose:
		a.header.Set("Transfer-Encoding", "identity") // net/http's sign for a body that ends with the connection
		a.header.Set("Connection", "close")
	case a.length == lengthDeclared && total >= 0:
		a.header.Set("Content-Length", strconv.FormatInt(total+a.wrong, 10))
		send = min(total, total+a.wrong)
	}
	if a.cut != whole {
		send = a.bytes
		if total >= 0 && send < 0 {
			send = max(total+send, 0)
		}
		if total >= 0 {
			send = min(send, total)
		}
	}
	return send
}

// compress replaces the body by its gzip form. One that fits into memory gets its compressed length.
func (a *answer) compress() {
	a.header.Set("Content-Encoding", "gzip")
	packed := gzipBody{a.body}
	if a.body.length() > 1<<20 {
		a.body = packed
		return
	}
	var buffer bytes.Buffer
	_, _ = packed.copyTo(&buffer, 0, 0) // a buffer takes everything
	a.body = byteBody(buffer.Bytes())
}

// byteBody is a body in memory.
type byteBody []byte

func (b byteBody) length() int64 { return int64(len(b)) }

func (b byteBody) copyTo(w io.Writer, off, end int64) (int64, error) {
	n, err := w.Write(b[off:end])
	return int64(n), err
}

// gzipBody compresses while it is sent.
type gzipBody struct{ plain body }

func (b gzipBody) length() int64 { return -1 }

func (b gzipBody) copyTo(w io.Writer, _, _ int64) (int64, error) {
	packer := gzip.NewWriter(w)
	n, err := b.plain.copyTo(packer, 0, b.plain.length())
	return n, errors.Join(err, packer.Close())
}

// slowWriter writes a few bytes at a time.
type slowWriter struct {
	w     io.Writer
	flush func() error
	step  int64
	wait  func()
}

// Write implements io.Writer.
func (s *slowWriter) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		n, err := s.w.Write(p[written:min(int64(len(p)), int64(written)+s.step)])
		written += n
		if err == nil {
			err = s.flush()
		}
		if err != nil {
			return written, err
		}
		s.wait()
	}
	return written, nil
}

// errCut ends a body whose length was not known at the place of its cut.
var errCut = errors.New("cut")

// cutWriter lets left bytes through; below 0 all.
type cutWriter struct {
	w    io.Writer
	left int64
}

// Write implements io.Writer.
func (c *cutWriter) Write(p []byte) (int, error) {
	if c.left < 0 || int64(len(p)) <= c.left {
		n, err := c.w.Write(p)
		if c.left >= 0 {
			c.left -= int64(n)
		}
		return n, err
	}
	n, err := c.w.Write(p[:c.left])
	c.left -= int64(n)
	return n, errors.Join(errCut, err)
}

func textAnswer(status int, media, text string) *answer {
	return &answer{status: status, header: http.Header{"Content-Type": {media}}, body: byteBody(text)}
}

func jsonAnswer(status int, value any) *answer {
	data, err := json.Marshal(value)
	if err != nil { // a Report's Metadata that encoding/json can't write: the test's mistake, shown where it is seen
		return textAnswer(http.StatusInternalServerError, "text/plain; charset=utf-8", err.Error())
	}
	return &answer{status: status, header: http.Header{"Content-Type": {"application/json"}}, body: byteBody(data)}
}

// plain answers in plain text.
func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}
