package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 123456789, time.UTC)

func TestAReportIsDescribedWithItsNulls(t *testing.T) {
	t.Parallel()
	for era, want := range map[Era]string{
		V1: `{"id":"r","templateId":"t","filters":null,"status":"Processing","metadata":null,"completedAt":null,
			"createdAt":"2026-03-14T12:00:00.123Z","updatedAt":"2026-03-14T12:00:00.123Z","deletedAt":null}`,
		V2026: `{"id":"r","templateId":"t","filters":null,"status":"Processing","metadata":null,"completedAt":null,
			"createdAt":"2026-03-14T12:00:00.123Z","updatedAt":"2026-03-14T12:00:00.123Z","deletedAt":null,
			"templateOutputFormat":"csv","templateDescription":"Sandbox template"}`,
	} {
		r := openReporter(t, ReporterOptions{Era: era})
		r.Add(Report{ID: "r", TemplateID: "t", Format: "csv", Status: Processing, CreatedAt: noon})
		got := fetch(t, r.URL()+"/v1/reports/r")
		got.want(t, http.StatusOK, "")
		if diff := cmp.Diff(decoded(t, want), decoded(t, got.body)); diff != "" {
			t.Errorf("era %s (-want +got):\n%s", era, diff)
		}
	}
}

func TestListAndGetTellTimesInDifferentPrecision(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	r.Add(Report{ID: "r", CreatedAt: noon, CompletedAt: noon.Add(time.Second), Metadata: json.RawMessage(`{"error":"old"}`)})
	fetch(t, r.URL()+"/v1/reports/r").want(t, 200, `"metadata":{"error":"old"},"completedAt":"2026-03-14T12:00:01.123Z"`)
	fetch(t, r.URL()+"/v1/reports").want(t, 200, `"completedAt":"2026-03-14T12:00:01.123456Z"`)
}

func TestTheListIsNewestFirstAndTotalIsThePage(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	for _, i := range []int{3, 0, 24, 1, 2} { // out of order at first
		r.Add(Report{ID: fmt.Sprint(i), CreatedAt: noon.Add(time.Duration(i) * time.Second)})
	}
	for i := 4; i < 24; i++ {
		r.Add(Report{ID: fmt.Sprint(i), CreatedAt: noon.Add(time.Duration(i) * time.Second)})
	}
	for _, test := range []struct {
		query              string
		page, limit, total int
		first              string
	}{
		{"", 1, 10, 10, "24"},
		{"?page=2", 2, 10, 10, "14"},
		{"?page=3", 3, 10, 5, "4"},
		{"?page=4", 4, 10, 0, ""},
		{"?limit=100", 1, 100, 25, "24"},
		{"?limit=7&page=4", 4, 7, 4, "3"},
		{"?limit=x&page=-1&sort_order=asc", 1, 10, 10, "24"},
		{"?limit=7&page=4&status=Finished", 4, 7, 4, "3"},
	} {
		page := list(t, r, test.query)
		first := ""
		if len(page.Items) > 0 {
			first = page.Items[0].ID
		}
		got := []any{page.Page, page.Limit, page.Total, len(page.Items), first}
		if want := []any{test.page, test.limit, test.total, test.total, test.first}; !slices.Equal(got, want) {
			t.Errorf("%q: page, limit, total, items and first are %v instead of %v", test.query, got, want)
		}
	}
}

func TestALateCompletionKeepsItsPlace(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	r.Add(Report{ID: "old", Status: Processing, CreatedAt: noon})
	r.Add(Report{ID: "new", CreatedAt: noon.Add(time.Hour)})
	if !r.Set("old", func(report *Report) { report.Status = Finished }) || r.Set("unknown", func(*Report) {}) {
		t.Error("Set misreports what is known")
	}
	if report, _ := r.Get("old"); time.Since(report.CompletedAt) > time.Minute {
		t.Errorf("completed %v instead of now", report.CompletedAt)
	}
	if got := ids(list(t, r, "")); !slices.Equal(got, []string{"new", "old"}) {
		t.Errorf("list %v", got)
	}
	r.Set("old", func(report *Report) { report.CreatedAt = noon.Add(6 * time.Hour) })
	if got := ids(list(t, r, "")); !slices.Equal(got, []string{"old", "new"}) {
		t.Errorf("list after another creation %v", got)
	}
	if all := r.All(); len(all) != 2 || all[0].ID != "old" {
		t.Errorf("all %v", all)
	}
	r.Remove("old")
	fetch(t, r.URL()+"/v1/reports/old").want(t, 404, "TPL-0011")
}

func TestFilters(t *testing.T) {
	t.Parallel()
	const template = "01890000-0000-7000-8000-0000000000aa"
	r := openReporter(t, ReporterOptions{})
	midnight := time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC)
	r.Add(Report{ID: "before", CreatedAt: midnight.Add(-1), Status: Partial})
	r.Add(Report{ID: "first", CreatedAt: midnight, TemplateID: template})
	r.Add(Report{ID: "last", CreatedAt: midnight.Add(24*time.Hour - 1), Status: Processing})
	r.Add(Report{ID: "after", CreatedAt: midnight.Add(24 * time.Hour), Status: Failed})
	everything := []string{"after", "last", "first", "before"}
	for query, want := range map[string][]string{
		"createdAt=2026-03-14":                  {"last", "first"},
		"createdAt=2026-03-14&status=Finished":  {"first"},
		"createdAt=14.03.2026":                  everything,
		"createdAt=2026-03-14T00:00:00Z":        everything,
		"status=Finished":                       {"first"},
		"status=Error":                          {"after"},
		"status=finished":                       nil,
		"templateId=" + template:                {"first"},
		"templateId=nonsense":                   everything,
		"status=Partial&templateId=" + template: nil,
		"sort_order=asc":                        everything,
	} {
		if got := ids(list(t, r, "?"+query)); !slices.Equal(got, want) {
			t.Errorf("%s: %v instead of %v", query, got, want)
		}
	}
}

func TestALimitAboveTheMaximumIsRefusedByEra(t *testing.T) {
	t.Parallel()
	for era, status := range map[Era]int{V1: 404, V2026: 400} {
		r := openReporter(t, ReporterOptions{Era: era})
		fetch(t, r.URL()+"/v1/reports?limit=101").want(t, status, `"title"`)
	}
}

func TestOnlyFinishedReportsAreDownloaded(t *testing.T) {
	t.Parallel()
	for era, want := range map[Era]struct {
		status int
		code   string
	}{V1: {400, "TPL-0029"}, V2026: {422, `"0260"`}} {
		r := openReporter(t, ReporterOptions{Era: era})
		for _, status := range []string{Processing, PendingExtraction, Partial, Failed, "Unheard"} {
			id := r.Add(Report{Status: status}).ID
			fetch(t, r.download(id)).want(t, want.status, want.code)
		}
		fetch(t, r.download("unknown")).want(t, 404, `"code"`)
	}
}

func TestADownloadNamesItsFile(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	for format, media := range map[string]string{
		"pdf": "application/pdf", "xml": "application/xml", "html": "text/html", "csv": "text/csv", "txt": "text/plain",
	} {
		id := r.Add(Report{Format: format, Size: 70_000}).ID
		got := fetch(t, r.download(id), "Accept-Encoding", "gzip")
		if got.err != nil || got.body != file(t, r, id) || got.length != 70_000 {
			t.Errorf("%s: length %d, %d bytes, error %v", format, got.length, len(got.body), got.err)
		}
		for name, want := range map[string]string{
			"Content-Type":        media,
			"Content-Disposition": `attachment; filename="` + id + "." + format + `"`,
			"Content-Encoding":    "", "ETag": "", "Last-Modified": "", "Accept-Ranges": "",
		} {
			if value := got.header.Get(name); value != want {
				t.Errorf("%s: %s is %q", format, name, value)
			}
		}
	}
}

func TestOpenPathsNeedNoToken(t *testing.T) {
	t.Parallel()
	for era, ready := range map[Era]map[string]int{
		V1:    {"/health": 200, "/version": 200, "/ready": 200, "/readyz": 404, "/v2/reports": 404},
		V2026: {"/health": 200, "/version": 200, "/ready": 404, "/readyz": 200, "/v1/reports/x/other": 404},
	} {
		r := openReporter(t, ReporterOptions{Era: era, Token: "t", GetLimit: 1})
		for path, status := range ready {
			fetch(t, r.URL()+path).want(t, status, "")
		}
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	for path, allowed := range map[string]string{"/v1/reports": "GET", "/v1/reports/x/download": "GET", "/v1/login/oauth/access_token": "POST"} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, r.URL()+path, nil)
		if got := send(t, request); got.status != 405 || got.header.Get("Allow") != allowed {
			t.Errorf("%s: %d, header %v", path, got.status, got.header)
		}
	}
}

func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	a := r.Add(Report{Size: 5000, Faults: []Fault{{Kind: CutBody, Bytes: 4096}, {Kind: MissingFile}}}).ID
	for range 3 {
		fetch(t, r.download(a))
	}
	fetch(t, r.URL()+"/v1/reports/"+a)
	fetch(t, r.URL()+"/v1/reports/unknown")
	fetch(t, r.URL()+"/v1/reports")
	fetch(t, r.URL()+"/health")
	want := Requests{
		Lists: 1, Gets: 2, Downloads: 3, DownloadsOf: map[string]int{a: 3}, GetsOf: map[string]int{a: 1, "unknown": 1},
		BodiesOf: map[string]int{a: 2}, DownloadsStarted: 2, DownloadsCompleted: 1, BytesSent: 9096,
	}
	eventually(t, "the last download is counted", func() bool { return r.Requests().DownloadsCompleted == 1 })
	if diff := cmp.Diff(want, r.Requests()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAReportGeneratedAgainHasOtherBytes(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	report := r.Add(Report{Status: Partial})
	r.Set(report.ID, func(report *Report) {
		report.Status, report.Seed, report.CompletedAt = Finished, report.Seed+1, report.CompletedAt.Add(time.Hour)
	})
	first := fetch(t, r.download(report.ID)).body
	r.Set(report.ID, func(report *Report) { report.Seed++ })
	if second := fetch(t, r.download(report.ID)).body; second == first || second != file(t, r, report.ID) {
		t.Error("the bytes did not change")
	}
}

func TestLatencyComesBeforeEveryAnswer(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{Latency: 5 * time.Millisecond})
	fetch(t, r.URL()+"/v1/reports").want(t, 200, "")

	r = openReporter(t, ReporterOptions{Latency: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.URL()+"/v1/reports", nil)
	done := make(chan reply)
	go func() { done <- send(t, request) }()
	eventually(t, "the request arrives", func() bool { return r.Requests().Lists == 1 })
	cancel()
	if got := <-done; !errors.Is(got.err, context.Canceled) {
		t.Errorf("answered %d within an hour", got.status)
	}
}

func list(t *testing.T, r *Reporter, query string) wirePage {
	t.Helper()
	got := fetch(t, r.URL()+"/v1/reports"+query)
	got.want(t, http.StatusOK, `"items":[`)
	var page wirePage
	if err := json.Unmarshal([]byte(got.body), &page); err != nil {
		t.Fatal(err)
	}
	return page
}

func ids(page wirePage) []string {
	var ids []string
	for _, item := range page.Items {
		ids = append(ids, item.ID)
	}
	return ids
}

func decoded(t *testing.T, text string) (value any) {
	t.Helper()
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func BenchmarkDownload(b *testing.B) {
	r := openReporter(b, ReporterOptions{})
	id := r.Add(Report{Size: 64 << 10}).ID
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	defer transport.CloseIdleConnections()
	b.SetBytes(64 << 10)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			request, _ := http.NewRequest(http.MethodGet, r.download(id), nil)
			response, err := transport.RoundTrip(request)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	})
}
