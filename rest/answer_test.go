package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestAnswersThatAreNoSuccessBecomeTypedErrors(t *testing.T) {
	t.Parallel()
	const bearer = "s3cr3t-bearer"
	object := func(status int, code string) bool {
		return strings.HasPrefix(code, "TPL-") || code == "0265" || code == "265"
	}
	tests := map[string]struct {
		status  int
		header  map[string]string
		body    string
		kind    Kind
		code    string
		shows   []string
		hides   []string
		service bool
	}{
		"401 in plain text":     {status: 401, body: "Missing Token", kind: Auth, shows: []string{"401", "Missing Token"}, service: true},
		"403":                   {status: 403, body: "Forbidden", kind: Auth, service: true},
		"407 of a proxy":        {status: 407, kind: Unreachable, service: true},
		"408 of a gateway":      {status: 408, kind: Server, service: true},
		"429":                   {status: 429, kind: Limited, service: true},
		"500 for a bad token":   {status: 500, body: "token is malformed", kind: Server, service: true},
		"503 about the service": {status: 503, body: `{"code":"0999","title":"Down"}`, kind: Server, code: "0999", service: true},
		"503 about the object":  {status: 503, body: `{"code":"0265","title":"Storage"}`, kind: Refused, code: "0265"},
		"a numeric code":        {status: 503, body: `{"code":265,"title":"Storage"}`, kind: Refused, code: "265"},
		"400 about the object": {status: 400, body: `{"code":"TPL-0034","title":"No file","message":"gone"}`, kind: Refused, code: "TPL-0034",
			shows: []string{"get report 7: refused: 400 TPL-0034 No file: gone"}},
		"404 without a code":     {status: 404, body: "404 page not found", kind: Malformed},
		"304 that nobody wanted": {status: 304, kind: Malformed},
		"302 to nowhere":         {status: 302, kind: Malformed},
		"an HTML error page": {status: 502, body: "<html>\n<head><title>502 Bad Gateway</title>" + strings.Repeat("x", 5000),
			kind: Server, service: true,
			shows: []string{"<html> <head><title>502 Bad Gateway"}, hides: []string{strings.Repeat("x", 513)}},
		"control characters": {status: 500, header: map[string]string{"X-Request-Id": "id\u202e"}, kind: Server, service: true,
			body:  "\x1b[31mred\u202e\x00 \xff",
			shows: []string{`\x1b[31mred\u202e\x00 \xff`, `id\u202e`}, hides: []string{"\x1b", "\u202e", "\x00"}},
		"a title that fills the screen": {status: 400, kind: Refused,
			body:  `{"code":"TPL-0001","title":"` + strings.Repeat("y", 9000) + `"}`,
			hides: []string{strings.Repeat("y", 513)}, code: "TPL-0001"},
		"our token echoed": {status: 403, body: "no such token: Bearer " + bearer, kind: Auth,
			shows: []string{"Bearer [hidden]"}, service: true},
		"our token echoed in JSON": {status: 400, kind: Refused, code: "TPL-0002",
			body: `{"code":"TPL-0002","title":"` + bearer + `","message":"` + bearer + `"}`},
		"our token as request id": {status: 500, header: map[string]string{"X-Request-Id": bearer}, kind: Server, service: true},
		"a request id": {status: 500, header: map[string]string{"X-Request-Id": "req-77"}, kind: Server,
			shows: []string{"req-77"}, service: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				for name, value := range test.header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(test.status)
				fmt.Fprint(w, test.body)
			})
			s := quick(server.URL)
			s.Token, s.ObjectCode = secret(bearer), object
			_, _, err := fetch(t, s.client(t), Get)
			e := failure(t, err, test.kind)
			if e.Status != test.status || e.Code != test.code || e.Service() != test.service {
				t.Errorf("got status %d, code %q, service %v", e.Status, e.Code, e.Service())
			}
			line := err.Error()
			for _, part := range test.shows {
				if !strings.Contains(line, part) {
					t.Errorf("%q does not show %q", line, part)
				}
			}
			for _, part := range append(test.hides, bearer, "\n", "query-part") {
				if strings.Contains(line, part) || strings.Contains(fmt.Sprintf("%+v", *e), part) {
					t.Errorf("%q shows %q", line, part)
				}
			}
		})
	}
}

func TestToleratedStatusesCloseNoGate(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(403) })
	c := quick(server.URL).client(t)
	req := ask
	req.Tolerate = []int{403}
	_, err := c.Do(t.Context(), Get, req)
	failure(t, err, Auth)
	if !gateOf(c, Get).Open {
		t.Error("a tolerated 403 closed the gate")
	}
	_, err = c.Do(t.Context(), Get, ask)
	failure(t, err, Auth)
	if gateOf(c, Get).Open {
		t.Error("a 403 left the gate open")
	}
}

func TestJSONTakesOnlyWhatThePromisedFormHolds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		kind Kind
		ok   bool
	}{
		"an object":         {body: `{"id":"7"}`, ok: true},
		"a login page":      {body: "<html>log in</html>", kind: Malformed},
		"another type":      {body: `["7"]`, kind: Malformed},
		"nothing":           {body: "", kind: Malformed},
		"two documents":     {body: `{"id":"7"}{}`, kind: Malformed},
		"more than allowed": {body: `{"id":"7"}` + strings.Repeat(" ", 1000), kind: Malformed},
		"exactly in bounds": {body: `{"id":"7"}` + strings.Repeat(" ", 990), ok: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, test.body) })
			var into struct{ ID string }
			s := quick(server.URL)
			s.MaxJSON = 1000
			_, err := s.client(t).JSON(t.Context(), Get, ask, &into)
			if !test.ok {
				failure(t, err, test.kind)
			} else if err != nil || into.ID != "7" {
				t.Errorf("got %v, %v", into, err)
			}
		})
	}
}

func TestRetryAfterIsReadInEveryForm(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	date := "Mon, 04 May 2026 09:00:00 GMT" // the service's clock is three hours behind
	tests := map[string]struct {
		value, date string
		want        time.Duration
		none        bool
	}{
		"seconds":                   {value: "37", want: 37 * time.Second},
		"zero":                      {value: "0"},
		"more than time can hold":   {value: "99999999999999999999999", want: century},
		"IMF-fixdate":               {value: "Mon, 04 May 2026 09:01:00 GMT", date: date, want: time.Minute},
		"RFC 850":                   {value: "Monday, 04-May-26 09:02:00 GMT", date: date, want: 2 * time.Minute},
		"asctime":                   {value: "Mon May  4 09:03:00 2026", date: date, want: 3 * time.Minute},
		"a date without a Date":     {value: "Mon, 04 May 2026 12:05:00 GMT", want: 5 * time.Minute},
		"a date in the past":        {value: "Mon, 04 May 2026 08:00:00 GMT", date: date},
		"the year 9999":             {value: "Fri, 31 Dec 9999 23:59:59 GMT", want: century},
		"negative":                  {value: "-5", none: true},
		"not to be read":            {value: "soon", none: true},
		"absent":                    {none: true},
		"a Date that can't be read": {value: "Mon, 04 May 2026 12:00:09 GMT", date: "yesterday", want: 9 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := retryAt(http.Header{"Retry-After": {test.value}, "Date": {test.date}}, now)
			if got.IsZero() != test.none {
				t.Fatalf("got %v", got)
			}
			if !test.none && got.Sub(now) != test.want {
				t.Errorf("got %v, want %v", got.Sub(now), test.want)
			}
		})
	}
}

func TestLimitedAnswersNameTheirTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		header map[string]string
		after  time.Duration // 0: no time named, the back-off holds
	}{
		"Retry-After": {map[string]string{"Retry-After": "42"}, 42 * time.Second},
		"Retry-After goes first": {
			map[string]string{"Retry-After": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "60"}, 5 * time.Second,
		},
		"X-RateLimit-Reset": {map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "17"}, 17 * time.Second},
		"none":              {nil, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				for name, value := range test.header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(429)
			})
			s := quick(server.URL)
			s.Now = func() time.Time { return now }
			c := s.client(t)
			_, _, err := fetch(t, c, Download)
			e := failure(t, err, Limited)
			if test.after == 0 {
				if !e.RetryAt.IsZero() || gateOf(c, Download).ProbeAt != now.Add(time.Millisecond) {
					t.Errorf("got %v and a probe at %v", e.RetryAt, gateOf(c, Download).ProbeAt)
				}
				return
			}
			if want := now.Add(test.after); !e.RetryAt.Equal(want) || !gateOf(c, Download).ProbeAt.Equal(want) {
				t.Errorf("got %v and a probe at %v, want %v", e.RetryAt, gateOf(c, Download).ProbeAt, want)
			}
			if !gateOf(c, Get).Open {
				t.Error("the other class was closed too")
			}
		})
	}
}

func TestNothingIsSentIntoAPauseThatTheServiceAskedFor(t *testing.T) {
	t.Parallel()
	requests := make(chan string, 9)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL.Path
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(429)
	})
	c := quick(server.URL).client(t)
	for range 2 { // both hold a permit from before the pause
		if err := c.Acquire(t.Context(), Get); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		_, _, err := fetch(t, c, Get)
		if e := failure(t, err, Limited); e.RetryAt.IsZero() {
			t.Error("no time to try again")
		}
	}
	if len(requests) != 1 {
		t.Errorf("%d requests were sent", len(requests))
	}
}
