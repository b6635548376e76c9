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
		"with a hostile name": {[]string{"Content-Disposition", `attachment; filename="../../etc/x"`},
			Download{FileName: "../../etc/x", Disposition: `attachment; filename="../../etc/x"`}},
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
	const tag = `"v1"`
	part := func(contentRange, etag string) []string { return []string{"Content-Range", contentRange, "ETag", etag} }
	five := Resume{5, tag}
	const resumed, whole, startOver, malformed = "resumed", "whole", "start over", "malformed"
	tests := map[string]struct {
		resume Resume
		status int
		header []string
		want   string
	}{
		"exactly the rest":        {five, 206, part("bytes 5-9/10", tag), resumed},
		"ranges are not known":    {five, 200, []string{"ETag", tag}, whole},
		"a weak validator":        {Resume{5, `W/"v1"`}, 200, nil, whole},
		"no validator":            {Resume{5, ""}, 200, nil, whole},
		"a hostile validator":     {Resume{5, "\"v\r\nX: y\""}, 200, nil, whole},
		"nothing here yet":        {Resume{0, tag}, 200, nil, whole},
		"another start":           {five, 206, part("bytes 4-8/9", tag), startOver},
		"not up to the end":       {five, 206, part("bytes 5-9/20", tag), startOver},
		"beyond the end":          {five, 206, part("bytes 5-9/8", tag), startOver},
		"backwards":               {five, 206, part("bytes 5-4/5", tag), startOver},
		"another length":          {five, 206, part("bytes 5-10/11", tag), startOver},
		"no total":                {five, 206, part("bytes 5-9/*", tag), startOver},
		"no range":                {five, 206, []string{"ETag", tag}, startOver},
		"a number of 30 digits":   {five, 206, part("bytes 5-9/"+strings.Repeat("1", 30), tag), startOver},
		"another validator":       {five, 206, part("bytes 5-9/10", `"v2"`), startOver},
		"no validator with it":    {five, 206, part("bytes 5-9/10", ""), startOver},
		"another encoding":        {five, 206, append(part("bytes 5-9/10", tag), "Content-Encoding", "gzip"), startOver},
		"nothing after it":        {five, 416, part("bytes */3", ""), startOver},
		"416 that nobody asked":   {Resume{}, 416, nil, malformed},
		"a part nobody asked for": {Resume{}, 206, part("bytes 0-4/5", tag), malformed},
		"accepted, for later":     {Resume{}, 202, nil, malformed},
		"accepted, while resumed": {five, 202, nil, malformed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent http.Header
			c := start(t, func(w http.ResponseWriter, r *http.Request) {
				sent = r.Header
				answer(test.status, "world", test.header...)(w, r)
			})
			acquire(t, c, rest.Download)
			d, err := c.Download(t.Context(), id, test.resume)
			if !open(c, rest.Download) {
				t.Error("an answer closed the gate")
			}
			wantRange, wantTag := "", ""
			if test.resume == five {
				wantRange, wantTag = "bytes=5-", tag
			}
			if sent.Get("Range") != wantRange || sent.Get("If-Range") != wantTag {
				t.Errorf("sent %v", sent)
			}
			if test.want == startOver || test.want == malformed {
				if kind(t, err) != rest.Malformed || StartOver(err) != (test.want == startOver) {
					t.Errorf("got %v, start over %v", err, StartOver(err))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer d.Body.Close()
			if test.want == resumed && (d.Offset != 5 || d.Length != 10) || test.want == whole && (d.Offset != 0 || d.Length != 5) {
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
