package sandbox

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// size of the files that meet faults: more than one buffer of net/http.
const faultySize = 20_000

func TestFaultsAsAPlainClientSeesThem(t *testing.T) {
	t.Parallel()
	cut := func(t *testing.T, got reply, file string, at int) {
		if !errors.Is(got.err, io.ErrUnexpectedEOF) || got.body != file[:at] {
			t.Errorf("got %d bytes, error %v; want %d and a broken connection", len(got.body), got.err, at)
		}
	}
	whole := func(t *testing.T, got reply, file string) {
		if got.err != nil || got.status != http.StatusOK || got.body != file {
			t.Errorf("got %d, %d bytes, error %v; want the whole file", got.status, len(got.body), got.err)
		}
	}
	tests := map[string]struct {
		fault Fault
		era   Era
		check func(t *testing.T, got reply, file string)
	}{
		"no fault": {fault: Fault{}, check: func(t *testing.T, got reply, file string) {
			whole(t, got, file)
			if got.length != faultySize || got.close {
				t.Errorf("length %d, close %v", got.length, got.close)
			}
		}},
		"cut body": {fault: Fault{Kind: CutBody, Bytes: 7000}, check: func(t *testing.T, got reply, file string) {
			cut(t, got, file, 7000)
			if got.length != faultySize {
				t.Errorf("length %d", got.length)
			}
		}},
		"cut right after the header": {fault: Fault{Kind: CutBody}, check: func(t *testing.T, got reply, file string) {
			cut(t, got, file, 0)
		}},
		"cut before the last byte": {fault: Fault{Kind: CutBody, Bytes: -1}, check: func(t *testing.T, got reply, file string) {
			cut(t, got, file, faultySize-1)
		}},
		"no length": {fault: Fault{Kind: NoLength}, check: func(t *testing.T, got reply, file string) {
			whole(t, got, file)
			if got.length != -1 || got.close {
				t.Errorf("length %d, close %v; want chunks on a connection that stays", got.length, got.close)
			}
		}},
		"chunked and cut": {fault: both(Fault{Kind: NoLength}, Fault{Kind: CutBody, Bytes: 9000}), check: func(t *testing.T, got reply, file string) {
			cut(t, got, file, 9000)
			if got.length != -1 {
				t.Errorf("length %d", got.length)
			}
		}},
		"close delimited": {fault: Fault{Kind: CloseDelimited}, check: func(t *testing.T, got reply, file string) {
			whole(t, got, file)
			if got.length != -1 || !got.close || got.header.Get("Transfer-Encoding") != "" {
				t.Errorf("length %d, close %v, header %v", got.length, got.close, got.header)
			}
		}},
		"close delimited and cut": {fault: Fault{Kind: CloseDelimited, Bytes: 8000}, check: func(t *testing.T, got reply, file string) {
			if got.err != nil || got.body != file[:8000] || got.length != -1 || !got.close {
				t.Errorf("%d bytes, error %v; want a short body that looks whole", len(got.body), got.err)
			}
		}},
		"length too large": {fault: Fault{Kind: WrongLength}, check: func(t *testing.T, got reply, file string) {
			cut(t, got, file, faultySize)
			if got.length != faultySize+1 {
				t.Errorf("length %d", got.length)
			}
		}},
		"length too small": {fault: Fault{Kind: WrongLength, Bytes: -50}, check: func(t *testing.T, got reply, file string) {
			if got.err != nil || got.length != faultySize-50 || got.body != file[:faultySize-50] {
				t.Errorf("length %d, %d bytes, error %v", got.length, len(got.body), got.err)
			}
		}},
		"slow bytes":      {fault: Fault{Kind: SlowBytes, Bytes: 5000, Interval: time.Millisecond}, check: whole},
		"late first byte": {fault: Fault{Kind: LateFirstByte, Interval: 5 * time.Millisecond}, check: whole},
		"too many": {fault: Fault{Kind: TooMany, RetryAfter: "Fri, 31 Dec 2100 23:59:59 GMT"}, check: func(t *testing.T, got reply, _ string) {
			got.want(t, http.StatusTooManyRequests, `"code"`)
			if got.header.Get("Retry-After") != "Fri, 31 Dec 2100 23:59:59 GMT" {
				t.Errorf("header %v", got.header)
			}
		}},
		"too many without a time": {fault: Fault{Kind: TooMany}, check: func(t *testing.T, got reply, _ string) {
			got.want(t, http.StatusTooManyRequests, "")
			if got.header.Values("Retry-After") != nil {
				t.Errorf("header %v", got.header)
			}
		}},
		"status": {fault: Fault{Kind: Status, Code: 502, Body: "bad gateway"}, check: func(t *testing.T, got reply, _ string) {
			got.want(t, 502, "bad gateway")
			if !strings.HasPrefix(got.header.Get("Content-Type"), "text/plain") {
				t.Errorf("header %v", got.header)
			}
		}},
		"status with json": {fault: Fault{Kind: Status, Code: 500, Body: "{}", RetryAfter: "3"}, check: func(t *testing.T, got reply, _ string) {
			got.want(t, 500, "{}")
			if got.header.Get("Content-Type") != "application/json" || got.header.Get("Retry-After") != "3" {
				t.Errorf("header %v", got.header)
			}
		}},
		"html instead": {fault: Fault{Kind: HTMLInstead}, check: func(t *testing.T, got reply, _ string) {
			got.want(t, 200, "<form")
			if !strings.HasPrefix(got.header.Get("Content-Type"), "text/html") || got.header.Get("Content-Disposition") != "" {
				t.Errorf("header %v", got.header)
			}
		}},
		"json error instead": {fault: Fault{Kind: JSONErrorInstead}, check: func(t *testing.T, got reply, _ string) {
			got.want(t, 200, "TPL-0034")
			if got.header.Get("Content-Type") != "application/json" {
				t.Errorf("header %v", got.header)
			}
		}},
		"not ready in v1":        {fault: Fault{Kind: NotReady}, check: refused(400, "TPL-0029")},
		"not ready in 2026":      {fault: Fault{Kind: NotReady}, era: V2026, check: refused(422, `"0260"`)},
		"missing file in v1":     {fault: Fault{Kind: MissingFile}, check: refused(400, "TPL-0034")},
		"missing file in 2026":   {fault: Fault{Kind: MissingFile}, era: V2026, check: refused(503, `"0265"`)},
		"template deleted in v1": {fault: Fault{Kind: TemplateDeleted}, check: refused(404, "TPL-0011")},
		"gzip": {fault: Fault{Kind: Gzip}, check: func(t *testing.T, got reply, file string) {
			fits := got.err == nil && got.header.Get("Content-Encoding") == "gzip" && got.length == int64(len(got.body))
			if !fits || unpacked(t, got.body) != file {
				t.Errorf("length %d, %d bytes, header %v, error %v", got.length, len(got.body), got.header, got.err)
			}
		}},
		"gzip and cut": {fault: both(Fault{Kind: Gzip}, Fault{Kind: CutBody, Bytes: 100}), check: func(t *testing.T, got reply, _ string) {
			if !errors.Is(got.err, io.ErrUnexpectedEOF) || len(got.body) != 100 {
				t.Errorf("%d bytes, error %v", len(got.body), got.err)
			}
		}},
		"etag": {fault: Fault{Kind: ETag}, check: func(t *testing.T, got reply, file string) {
			whole(t, got, file)
			if tag := got.header.Get("ETag"); !strings.HasPrefix(tag, `"`) || got.header.Get("Accept-Ranges") != "bytes" {
				t.Errorf("header %v", got.header)
			}
		}},
		"weak etag": {fault: Fault{Kind: WeakETag}, check: func(t *testing.T, got reply, file string) {
			whole(t, got, file)
			if !strings.HasPrefix(got.header.Get("ETag"), `W/"`) {
				t.Errorf("header %v", got.header)
			}
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := openReporter(t, ReporterOptions{Era: test.era})
			id := r.Add(Report{Size: faultySize, Format: "csv", Faults: []Fault{test.fault}}).ID
			test.check(t, fetch(t, r.download(id)), file(t, r, id))

			// The fault is used up: the next download is in order.
			whole(t, fetch(t, r.download(id)), file(t, r, id))
		})
	}
}

// both are two faults of one answer.
func both(first, second Fault) Fault {
	first.With = &second
	return first
}

func refused(status int, text string) func(*testing.T, reply, string) {
	return func(t *testing.T, got reply, _ string) {
		t.Helper()
		got.want(t, status, text)
		var body struct{ Code, Title, Message string }
		if err := json.Unmarshal([]byte(got.body), &body); err != nil || body.Title == "" || body.Message == "" {
			t.Errorf("body %q, error %v", got.body, err)
		}
	}
}

func unpacked(t *testing.T, body string) string {
	t.Helper()
	reader, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestALargeFileIsCompressedWithoutALength(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	id := r.Add(Report{Size: 2 << 20, Format: "txt", Faults: []Fault{{Kind: Gzip}, both(Fault{Kind: Gzip}, Fault{Kind: CutBody, Bytes: 999})}}).ID
	if got := fetch(t, r.download(id)); got.err != nil || got.length != -1 || unpacked(t, got.body) != file(t, r, id) {
		t.Errorf("length %d, error %v", got.length, got.err)
	}
	if got := fetch(t, r.download(id)); !errors.Is(got.err, io.ErrUnexpectedEOF) || len(got.body) != 999 {
		t.Errorf("%d bytes, error %v", len(got.body), got.err)
	}
}

func TestAHeaderThatIsLateOrNeverComesEndsWithTheClient(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]Fault{"hang": {Kind: Hang}, "late": {Kind: LateFirstByte, Interval: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := openReporter(t, ReporterOptions{})
			id := r.Add(Report{Faults: []Fault{fault}}).ID
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			request, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.download(id), nil)
			done := make(chan reply)
			go func() { done <- send(t, request) }()
			eventually(t, "the request arrives", func() bool { return r.Requests().Downloads == 1 })
			cancel()
			if got := <-done; !errors.Is(got.err, context.Canceled) {
				t.Errorf("got %d, error %v", got.status, got.err)
			}
		})
	}
}

func TestSlowBytesComeOneByOne(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	id := r.Add(Report{Size: 150, Format: "txt", Faults: []Fault{{Kind: SlowBytes, Interval: time.Hour}}}).ID
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.download(id), nil)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	buffer := make([]byte, 150)
	if n, err := response.Body.Read(buffer); n != 1 || err != nil || response.ContentLength != 150 {
		t.Errorf("%d bytes at first, length %d, error %v", n, response.ContentLength, err)
	}
}

func TestFaultsAreUsedUpInOrderAndAStickyOneStays(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	id := r.Add(Report{Sticky: true, Faults: []Fault{
		{Kind: Status, Code: 501}, {Kind: Status, Code: 502, Class: ClassGet}, {}, {Kind: Status, Code: 503},
	}}).ID
	for _, want := range []int{501, 200, 503, 503} {
		fetch(t, r.download(id)).want(t, want, "")
	}
	for range 2 { // the last of its class
		fetch(t, r.URL()+"/v1/reports/"+id).want(t, 502, "")
	}
	if report, _ := r.Get(id); len(report.Faults) != 2 {
		t.Errorf("left: %+v", report.Faults)
	}
}

func TestAReportsFaultWaitsForARequestThatWouldSucceed(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	id := r.Add(Report{Status: Processing, Faults: []Fault{{Kind: Status, Code: 599}}}).ID
	fetch(t, r.download(id)).want(t, 400, "TPL-0029")
	r.Set(id, func(report *Report) { report.Status = Finished })
	fetch(t, r.download(id)).want(t, 599, "")
	fetch(t, r.download(id)).want(t, 200, "%PDF")
}

func TestAClassMeetsItsFaultsWhateverTheReport(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{ClientID: "a", ClientSecret: "b", Token: "fixed"})
	id := r.Add(Report{}).ID
	asked := map[string]func() reply{
		ClassGet:      func() reply { return fetch(t, r.URL()+"/v1/reports/"+id, "Authorization", "Bearer fixed") },
		ClassList:     func() reply { return fetch(t, r.URL()+"/v1/reports", "Authorization", "Bearer fixed") },
		ClassDownload: func() reply { return fetch(t, r.download(id), "Authorization", "Bearer fixed") },
		ClassToken:    func() reply { return askToken(t, r, "a", "b") },
	}
	for class, ask := range asked {
		r.Fault(class, 2, Fault{Kind: Status, Code: 509, Body: class})
		r.Fault(class, 1, Fault{Kind: TooMany, RetryAfter: "9"})
		for _, want := range []int{509, 509, 429, 200} {
			if got := ask(); got.status != want {
				t.Errorf("%s: %d instead of %d", class, got.status, want)
			}
		}
		r.Fault(class, -1, Fault{Kind: HTMLInstead})
		for range 3 {
			ask().want(t, 200, "<form")
		}
		r.Fault(class, 0, Fault{})
		if got := ask(); strings.Contains(got.body, "<form") {
			t.Errorf("%s: the fault was not taken back", class)
		}
	}
}

func TestRangesAreIgnoredUnlessOrdered(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	id := r.Add(Report{Size: faultySize}).ID
	got := fetch(t, r.download(id), "Range", "bytes=100-")
	if got.status != 200 || got.body != file(t, r, id) || got.header.Get("ETag")+got.header.Get("Accept-Ranges") != "" {
		t.Errorf("got %d, %d bytes, header %v", got.status, len(got.body), got.header)
	}
}

func TestRangesWithAValidator(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	id := r.Add(Report{Size: faultySize, Ranges: true}).ID
	all := file(t, r, id)
	tag := fetch(t, r.download(id)).header.Get("ETag")
	tests := map[string]struct {
		rng, condition string
		status         int
		off, end       int
	}{
		"open end":          {"bytes=100-", tag, 206, 100, faultySize},
		"both ends":         {"bytes=100-199", tag, 206, 100, 200},
		"beyond the end":    {"bytes=100-99999", tag, 206, 100, faultySize},
		"last bytes":        {"bytes=-7", tag, 206, faultySize - 7, faultySize},
		"without condition": {"bytes=100-", "", 206, 100, faultySize},
		"another file":      {"bytes=100-", `"other"`, 200, 0, faultySize},
		"unreadable":        {"bytes=x-", tag, 200, 0, faultySize},
		"several":           {"bytes=0-1,3-4", tag, 200, 0, faultySize},
		"backwards":         {"bytes=9-3", tag, 200, 0, faultySize},
		"nothing left":      {"bytes=20000-", tag, 416, 0, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pairs := []string{"Range", test.rng}
			if test.condition != "" {
				pairs = append(pairs, "If-Range", test.condition)
			}
			got := fetch(t, r.download(id), pairs...)
			if got.status != test.status || got.body != all[test.off:test.end] || got.length != int64(test.end-test.off) {
				t.Errorf("got %d, %d bytes of %d", got.status, len(got.body), got.length)
			}
			want := ""
			switch test.status {
			case 206:
				want = fmt.Sprintf("bytes %d-%d/%d", test.off, test.end-1, faultySize)
			case 416:
				want = "bytes */" + strconv.Itoa(faultySize)
			}
			if got.header.Get("Content-Range") != want {
				t.Errorf("Content-Range %q instead of %q", got.header.Get("Content-Range"), want)
			}
		})
	}
}

func TestAnotherFileHasAnotherETag(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	id := r.Add(Report{Ranges: true}).ID
	before := fetch(t, r.download(id)).header.Get("ETag")
	r.Set(id, func(report *Report) { report.Seed++ })
	if after := fetch(t, r.download(id), "Range", "bytes=5-", "If-Range", before); after.status != 200 || after.header.Get("ETag") == before {
		t.Errorf("got %d, ETag %s after %s", after.status, after.header.Get("ETag"), before)
	}
}

func TestMisleadingValidatorsAndRanges(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	id := r.Add(Report{Size: faultySize, Faults: []Fault{
		{Kind: WeakETag}, {Kind: WeakETag}, {Kind: WrongRange}, {Kind: ETag, With: &Fault{Kind: CutBody, Bytes: 500}},
	}}).ID
	all := file(t, r, id)
	weak := fetch(t, r.download(id)).header.Get("ETag")
	if got := fetch(t, r.download(id), "Range", "bytes=100-", "If-Range", weak); got.status != 200 || got.body != all {
		t.Errorf("a weak validator gave %d", got.status)
	}
	got := fetch(t, r.download(id), "Range", "bytes=100-")
	if got.status != 206 || got.header.Get("Content-Range") != "bytes 99-19999/20000" || got.body != all[99:] {
		t.Errorf("got %d %q, %d bytes", got.status, got.header.Get("Content-Range"), len(got.body))
	}
	if got := fetch(t, r.download(id)); got.err == nil || got.body != all[:500] || got.header.Get("ETag") == "" {
		t.Errorf("a cut with a validator: %d bytes, header %v, error %v", len(got.body), got.header, got.err)
	}
}
