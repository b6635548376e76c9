package reporter

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"recibo/rest"
)

func TestReportsOfEveryVersionAreRead(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		want *Report
	}{
		"v1.1": {`{"id":"` + id + `","templateId":"t","filters":null,"status":"Finished","metadata":null,
			"completedAt":"2026-05-04T12:00:00.123Z","createdAt":"2026-05-04T11:00:00Z","updatedAt":"u","deletedAt":null}`,
			&Report{
				ID: id, TemplateID: "t", Status: Finished,
				CompletedAt: "2026-05-04T12:00:00.123Z", CreatedAt: "2026-05-04T11:00:00Z", UpdatedAt: "u",
			}},
		"newer": {`{"id":"` + id + `","status":"Partial","metadata":{"a": 1},"completedAt":null,
			"templateOutputFormat":"PDF","templateDescription":"d"}`,
			&Report{ID: id, Status: Partial, Metadata: json.RawMessage(`{"a": 1}`), OutputFormat: "pdf", Description: "d"}},
		"a status of the future": {`{"id":"` + id + `","status":"Sleeping","extra":[1]}`, &Report{ID: id, Status: "Sleeping"}},
		"an id in capitals":      {`{"id":"` + strings.ToUpper(id) + `","status":"Finished"}`, &Report{ID: strings.ToUpper(id), Status: Finished}},
		"of another report":      {`{"id":"01975e3c-0000-7a31-b1f3-5f2d6c8e9a10","status":"Finished"}`, nil},
		"without an id":          {`{"status":"Finished"}`, nil},
		"without a status":       {`{"id":"` + id + `"}`, nil},
		"null":                   {`null`, nil},
		"a list":                 {`[]`, nil},
		"a page":                 {`<html>`, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, func(w http.ResponseWriter, r *http.Request) {
				organization, token := r.Header.Get("X-Organization-Id"), r.Header.Get("Authorization")
				if r.URL.Path != "/v1/reports/"+id || organization != "org" || token != "Bearer bearer" {
					t.Errorf("got %s with %v", r.URL, r.Header)
				}
				answer(200, test.body)(w, r)
			})
			got, err := c.Report(t.Context(), id)
			if test.want == nil {
				if kind(t, err) != rest.Malformed {
					t.Errorf("got %v", err)
				}
			} else if err != nil || !cmp.Equal(got, test.want) {
				t.Errorf("%v %s", err, cmp.Diff(test.want, got))
			}
		})
	}
}

func TestPagesAreAskedForAndReadItemByItem(t *testing.T) {
	t.Parallel()
	good := func(id string) string { return `{"id":"` + id + `","status":"Finished"}` }
	tests := map[string]struct {
		body string
		ids  string
		bad  []string
	}{
		"two":                   {`{"items":[` + good("a") + `,` + good("b") + `],"page":2,"limit":50,"total":2}`, "a b", nil},
		"the end":               {`{"items":[],"total":0}`, "", nil},
		"one without an id":     {`{"items":[` + good("a") + `,{"status":"Finished"},` + good("c") + `]}`, "a c", []string{"item 1"}},
		"one with a bad id":     {`{"items":[{"id":"../x","status":"Finished"}]}`, "", []string{"item 0"}},
		"several of all kinds":  {`{"items":[null,7,` + good("c") + `]}`, "c", []string{"item 0", "item 1"}},
		"without items":         {`{"total":0}`, "", []string{"without items"}},
		"items that are null":   {`{"items":null}`, "", []string{"without items"}},
		"items of another type": {`{"items":{}}`, "", []string{"cannot unmarshal"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked url.Values
			c := start(t, func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.Query()
				answer(200, test.body)(w, r)
			})
			reports, err := c.Page(t.Context(), 2, 50, ListQuery{Status: "Finished", CreatedAt: "2026-05-04"})
			if want := (url.Values{"page": {"2"}, "limit": {"50"}, "status": {"Finished"}, "createdAt": {"2026-05-04"}}); !cmp.Equal(asked, want) {
				t.Errorf("asked %v", asked)
			}
			var ids []string
			for _, r := range reports {
				ids = append(ids, r.ID)
			}
			if got := strings.Join(ids, " "); got != test.ids || (err == nil) != (test.bad == nil) {
				t.Errorf("got %q, %v", got, err)
			}
			for _, part := range test.bad {
				if kind(t, err) != rest.Malformed || !strings.Contains(err.Error(), part) {
					t.Errorf("got %v, want %q in it", err, part)
				}
			}
		})
	}
}

func TestAListThatIsNotGrantedLeavesTheGateOpen(t *testing.T) {
	t.Parallel()
	c := start(t, answer(403, "Forbidden"))
	if _, err := c.Page(t.Context(), 1, 10, ListQuery{}); kind(t, err) != rest.Auth || !open(c, rest.Get) {
		t.Errorf("got %v, gate open %v", err, open(c, rest.Get))
	}
}

func TestFailureMetadataOfEveryVersionIsRead(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		metadata, reason string
		sources          []Source
	}{
		"v1.1":     {`{"error":"text"}`, "text", nil},
		"document": {`{"error":{"code":"X-1","title":"Bad","message":"very","details":"indeed"}}`, "Bad: very: indeed (X-1)", nil},
		"2026": {`{"sections":{"zeta":{"error_code":"0287"},"alpha":{"error_code":288}},"error":"Some report data sections failed",
			"error_code":"0287"}`,
			"Some report data sections failed (0287)", []Source{{"zeta", "0287"}, {"alpha", "288"}}},
		"a code alone": {`{"error_code":"report_generation_timeout"}`, "report_generation_timeout", nil},
		"names":        {`{"sections":["a","b","a"]}`, "", []Source{{"a", ""}, {"b", ""}}},
		"objects": {`{"sections":[{"name":"a","error_code":"1"},{"database":"b","code":2},{"datasource":"c"},{"other":"d"},7.5,null]}`,
			"", []Source{{"a", "1"}, {"b", "2"}, {"c", ""}, {"7.5", ""}}},
		"codes in other places": {`{"sections":{"a":"E1","b":{"error":{"code":"E2"}},"c":null,"d":[]}}`,
			"", []Source{{"a", "E1"}, {"b", "E2"}, {"c", ""}, {"d", ""}}},
		"details that are no text":    {`{"error":{"title":"Bad","details":{"x":1}}}`, "Bad", nil},
		"an error that is null":       {`{"error":null,"message":"m"}`, "m", nil},
		"sections that are a text":    {`{"sections":"a"}`, "", nil},
		"sections that are empty":     {`{"sections":{},"error":"e"}`, "e", nil},
		"a name that is no name":      {`{"sections":{"":{},"\u001b[2J":{}}}`, "", []Source{{`\x1b[2J`, ""}}},
		"control characters":          {`{"error":"a\u001b[31m\nb"}`, `a\x1b[31m b`, nil},
		"a text":                      {`"broken"`, "broken", nil},
		"a list":                      {`["broken"]`, "", nil},
		"null":                        {`null`, "", nil},
		"nothing":                     {``, "", nil},
		"something else in the error": {`{"error":[1,2]}`, "", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := Report{Metadata: json.RawMessage(test.metadata)}
			want := Failure{test.reason, test.sources, len(test.sources) > 0}
			if got := report.Failure(); !cmp.Equal(got, want) {
				t.Error(cmp.Diff(want, got))
			}
		})
	}
}

func TestCompletionsAreComparedAtTheCoarserPrecision(t *testing.T) {
	t.Parallel()
	tests := []struct {
		a, b string
		same bool
	}{
		{"", "", true},
		{"", "2026-05-04T12:00:00Z", false},
		{"2026-05-04T12:00:00Z", "2026-05-04T12:00:00Z", true},
		{"2026-05-04T12:00:00Z", "2026-05-04T12:00:01Z", false},
		{"2026-05-04T12:00:00Z", "2026-05-04T12:00:00.999Z", true},           // cut
		{"2026-05-04T12:00:01Z", "2026-05-04T12:00:00.999Z", true},           // rounded
		{"2026-05-04T12:00:01Z", "2026-05-04T12:00:00.499Z", false},          // neither
		{"2026-05-04T12:00:00.123Z", "2026-05-04T12:00:00.123987654Z", true}, // cut
		{"2026-05-04T12:00:00.124Z", "2026-05-04T12:00:00.123987654Z", true}, // rounded
		{"2026-05-04T12:00:00.125Z", "2026-05-04T12:00:00.123987654Z", false},
		{"2026-05-04T12:00:00.123Z", "2026-05-04T12:00:00.124Z", false},
		{"2026-05-04T12:00:00.12Z", "2026-05-04T12:00:00.123Z", true}, // a zero at the end was not written
		{"2026-05-04T12:00:00Z", "2026-05-04T09:00:00-03:00", true},
		{"2026-05-04T12:00:00", "2026-05-04T12:00:00Z", true},
		{"yesterday", "yesterday", true},
		{"yesterday", "2026-05-04T12:00:00Z", false},
	}
	for _, test := range tests {
		if SameCompletion(test.a, test.b) != test.same || SameCompletion(test.b, test.a) != test.same {
			t.Errorf("%q and %q: want %v both ways", test.a, test.b, test.same)
		}
	}
}
