package reporter

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"recibo/rest"
)

func TestAWholeFileIsDescribed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		header []string
		want   Download
	}{
		"as Reporter sends it": {
			[]string{"Content-Type", "application/pdf", "Content-Disposition", `attachment; filename="` + id + `.pdf"`, "X-Request-Id", "r1"},
			Download{ContentType: "application/pdf", FileName: id + ".pdf", Disposition: `attachment; filename="` + id + `.pdf"`, RequestID: "r1"},
		},
		"with a strong validator": {[]string{"ETag", `"v1"`}, Download{ETag: `"v1"`}},
		"with a weak one":         {[]string{"ETag", `W/"v1"`}, Download{}},
		"with half a one":         {[]string{"ETag", `"v1`}, Download{}},
		"with a long one":         {[]string{"ETag", `"` + strings.Repeat("v", 600) + `"`}, Download{}},
		"with a hostile name":     {[]string{"Content-Disposition", `attachment; filename="../../etc/x"`}, Download{FileName: "../../etc/x", Disposition: `attachment; filename="../../etc/x"`}},
		"with no name to be read": {[]string{"Content-Disposition", `;;;`}, Download{Disposition: ";;;"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v1/reports/"+id+"/download" || r.Header.Get("Range") != "" {
					t.Errorf("got %s with %v", r.URL, r.Header)
				}
				w.Header()["Content-Type"] = nil
				answer(200, "hello", test.header...)(w, r)
			})
			got, err := c.Download(t.Context(), id, Resume{})
			if err != nil {
				t.Fatal(err)
			}
			defer got.Body.Close()
			if data, err := io.ReadAll(got.Body); string(data) != "hello" || err != nil {
				t.Errorf("got %q, %v", data, err)
			}
			test.want.Length, test.want.Framing = 5, "length"
			found := *got
			found.Body = nil
			if !cmp.Equal(found, test.want) {
				t.Error(cmp.Diff(test.want, found))
			}
		})
	}
}

func TestOnlyTheRestOfTheSameFileResumes(t *testing.T) {
	t.Parallel()
	etag := []string{"ETag", `"v1"`}
	part := func(contentRange string, more ...string) []string {
		return append([]string{"Content-Range", contentRange}, more...)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, "world")
	_ = z.Close()
	tests := map[string]struct {
		resume    Resume
		status    int
		header    []string
		body      string
		ranged    bool // Range and If-Range must have been sent
		offset    int64
		length    int64
		fails     bool
		startOver bool
	}{
		"exactly the rest":        {resume: Resume{5, `"v1"`}, status: 206, header: part("bytes 5-9/10", etag...), ranged: true, offset: 5, length: 10},
		"ranges are not known":    {resume: Resume{5, `"v1"`}, status: 200, header: etag, ranged: true, length: 5},
		"a weak validator":        {resume: Resume{5, `W/"v1"`}, status: 200, length: 5},
		"no validator":            {resume: Resume{5, ""}, status: 200, length: 5},
		"nothing here yet":        {resume: Resume{0, `"v1"`}, status: 200, length: 5},
		"a hostile validator":     {resume: Resume{5, "\"v\r\nX: y\""}, status: 200, length: 5},
		"another start":           {resume: Resume{5, `"v1"`}, status: 206, header: part("bytes 4-8/9", etag...), ranged: true, fails: true, startOver: true},
		"not up to the end":       {resume: Resume{5, `"v1"`}, status: 206, header: part("bytes 5-9/20", etag...), ranged: true, fails: true, startOver: true},
		"beyond the end":          {resume: Resume{5, `"v1"`}, status: 206, header: part("bytes 5-9/8", etag...), ranged: true, fails: true, startOver: true},
		"backwards":               {resume: Resume{5, `"v1"`}, status: 206, header: part("bytes 5-4/5", etag...), ranged: true, fails: true, startOver: true},
		"another length":          {resume: Resume{5, `"v1"`}, status: 206, header: part("bytes 5-10/11", etag...), ranged: true, fails: true, startOver: true},
		"no total":                {resume: Resume{5, `"v1"`}, status: 206, header: part("bytes 5-9/*", etag...), ranged: true, fails: true, startOver: true},
		"no range":                {resume: Resume{5, `"v1"`}, status: 206, header: etag, ranged: true, fails: true, startOver: true},
		"a number of 30 digits":   {resume: Resume{5, `"v1"`}, status: 206, header: part("bytes 5-9/"+strings.Repeat("1", 30), etag...), ranged: true, fails: true, startOver: true},
		"another validator":       {resume: Resume{5, `"v1"`}, status: 206, header: part("bytes 5-9/10", "ETag", `"v2"`), ranged: true, fails: true, startOver: true},
		"no validator with it":    {resume: Resume{5, `"v1"`}, status: 206, header: part("bytes 5-9/10"), ranged: true, fails: true, startOver: true},
		"another encoding":        {resume: Resume{5, `"v1"`}, status: 206, header: part("bytes 5-9/10", "ETag", `"v1"`, "Content-Encoding", "gzip"), body: zipped.String(), ranged: true, fails: true, startOver: true},
		"nothing after it":        {resume: Resume{5, `"v1"`}, status: 416, header: part("bytes */3"), ranged: true, fails: true, startOver: true},
		"416 that nobody asked":   {resume: Resume{}, status: 416, fails: true},
		"a part nobody asked for": {resume: Resume{}, status: 206, header: part("bytes 0-4/5", etag...), fails: true},
		"accepted, for later":     {resume: Resume{}, status: 202, fails: true},
		"accepted, while resumed": {resume: Resume{5, `"v1"`}, status: 202, ranged: true, fails: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got http.Header
			c := start(t, func(w http.ResponseWriter, r *http.Request) {
				got = r.Header
				body := test.body
				if body == "" {
					body = "world"
				}
				answer(test.status, body, test.header...)(w, r)
			})
			acquire(t, c, rest.Download)
			d, err := c.Download(t.Context(), id, test.resume)
			if sent := got.Get("Range") == "bytes=5-" && got.Get("If-Range") == `"v1"`; sent != test.ranged || !test.ranged && got.Get("Range") != "" {
				t.Errorf("sent %v", got)
			}
			if !open(c, rest.Download) {
				t.Error("an answer closed the gate")
			}
			if test.fails {
				if kind(t, err) != rest.Malformed || StartOver(err) != test.startOver {
					t.Errorf("got %v, start over %v", err, StartOver(err))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer d.Body.Close()
			if d.Offset != test.offset || d.Length != test.length {
				t.Errorf("got offset %d, length %d", d.Offset, d.Length)
			}
		})
	}
}

func TestACompressedFileHasNoLengthAndNoValidator(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, "hello")
	_ = z.Close()
	c := start(t, answer(200, zipped.String(), "Content-Encoding", "gzip", "ETag", `"v1"`))
	d, err := c.Download(t.Context(), id, Resume{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Body.Close()
	if data, err := io.ReadAll(d.Body); string(data) != "hello" || err != nil || d.Length != -1 || d.ETag != "" {
		t.Errorf("got %q, %v, length %d, validator %q", data, err, d.Length, d.ETag)
	}
}
