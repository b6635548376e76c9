package reporter

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"recibo/rest"
	"recibo/setting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const id = "01975e3c-9d0a-7a31-b1f3-5f2d6c8e9a10"

// start runs a Reporter for the length of the test, and a client of it.
func start(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return connect(t, Config{URL: server.URL, OrganizationID: "org", Token: setting.NewSecret("bearer")})
}

func connect(t *testing.T, config Config) *Client {
	t.Helper()
	c, err := New(rest.Config{Proxy: "none"}, config, rest.Options{ProbeBase: time.Millisecond, ProbeCap: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// answer writes one answer to every request.
func answer(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func open(c *Client, class rest.Class) bool {
	for _, g := range c.Gates() {
		if g.Class == class {
			return g.Open
		}
	}
	return false
}

func acquire(t *testing.T, c *Client, class rest.Class) {
	t.Helper()
	if err := c.Acquire(t.Context(), class); err != nil {
		t.Fatal(err)
	}
}

func kind(t *testing.T, err error) rest.Kind {
	t.Helper()
	var e *rest.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an error of the client", err)
	}
	return e.Kind
}

func TestConfigurationErrorsNameTheKey(t *testing.T) {
	t.Parallel()
	for key, config := range map[string]Config{
		"reporter.url":                    {URL: "reporter:4005"},
		"reporter.organization_id":        {URL: "http://x", OrganizationID: "a\nb"},
		"reporter.proxy":                  {URL: "http://x", Proxy: "nonsense"},
		"reporter.client_credentials.url": {URL: "http://x", ClientCredentials: &rest.ClientCredentials{}},
	} {
		if _, err := New(rest.Config{}, config, rest.Options{}); err == nil || !strings.HasPrefix(err.Error(), key+": ") {
			t.Errorf("%s: got %v", key, err)
		}
	}
	if c, err := New(rest.DefaultConfig(), DefaultConfig(), rest.Options{}); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
}

func TestIdsThatAreNotPlainAreNeverSent(t *testing.T) {
	t.Parallel()
	c := start(t, func(w http.ResponseWriter, r *http.Request) { t.Errorf("sent %s", r.URL) })
	for _, bad := range []string{
		"", ".", "..", "a/b", `a\b`, "a%2fb", "a b", "a?b", "a#b", "ä", "a\x00", "../health", strings.Repeat("a", 129),
	} {
		acquire(t, c, rest.Get)
		_, err := c.Report(t.Context(), bad)
		if kind(t, err) != rest.Refused || !errors.Is(err, ErrID) {
			t.Errorf("%q: got %v", bad, err)
		}
		acquire(t, c, rest.Download)
		_, err = c.Download(t.Context(), bad, Resume{})
		if kind(t, err) != rest.Refused || !errors.Is(err, ErrID) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func TestAProbeThatWasNeverSentIsGivenBack(t *testing.T) {
	t.Parallel()
	c := start(t, answer(503, ""))
	acquire(t, c, rest.Get)
	_, err := c.Report(t.Context(), id)
	if kind(t, err) != rest.Server || open(c, rest.Get) {
		t.Fatal("the gate is open", err)
	}
	for range 3 { // each is the one probe, and would be the last if it were not given back
		acquire(t, c, rest.Get)
		if _, err := c.Report(t.Context(), "a/b"); !errors.Is(err, ErrID) {
			t.Error(err)
		}
		acquire(t, c, rest.Get)
		if _, err := c.Page(t.Context(), 1, 101, ListQuery{}); err == nil {
			t.Error("a page of 101 items was asked for")
		}
	}
}

func TestCodesSayWhoseTroubleItIs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status                           int
		body                             string
		kind                             rest.Kind
		notReady, missing, undescribable bool
	}{
		{400, `{"code":"TPL-0029"}`, rest.Refused, true, false, false},
		{422, `{"code":"0260"}`, rest.Refused, true, false, false},
		{422, `{"code":260}`, rest.Refused, true, false, false},
		{400, `{"code":"TPL-0034"}`, rest.Refused, false, true, false},
		{503, `{"code":"0265"}`, rest.Refused, false, true, false},
		{503, `{"code":265}`, rest.Refused, false, true, false},
		{404, `{"code":"TPL-0011"}`, rest.Refused, false, false, true},
		{400, `{"code":"TPL-9999"}`, rest.Refused, false, false, false},
		{400, `{"code":"teapot"}`, rest.Malformed, false, false, false},
		{400, `{"code":"TPL-"}`, rest.Malformed, false, false, false},
		{404, `404 page not found`, rest.Malformed, false, false, true},
		{405, ``, rest.Malformed, false, false, true},
		{501, ``, rest.Server, false, false, true},
		{403, `{"code":"TPL-0001"}`, rest.Auth, false, false, true},
		{401, `Missing Token`, rest.Auth, false, false, false},
		{429, `{"code":"TPL-0001"}`, rest.Limited, false, false, false},
		{500, `{"code":"TPL-0046"}`, rest.Server, false, false, false},
		{500, `token is malformed`, rest.Server, false, false, false},
		{503, ``, rest.Server, false, false, false},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%d %s", test.status, test.body), func(t *testing.T) {
			t.Parallel()
			c := start(t, answer(test.status, test.body))
			_, err := c.Report(t.Context(), id)
			if got := kind(t, err); got != test.kind {
				t.Errorf("got %q: %v", got, err)
			}
			if NotReady(err) != test.notReady || Missing(err) != test.missing || Undescribable(err) != test.undescribable {
				t.Errorf("not ready %v, missing %v, undescribable %v", NotReady(err), Missing(err), Undescribable(err))
			}
			closed := test.kind <= rest.Server && !test.undescribable
			if open(c, rest.Get) == closed {
				t.Errorf("the gate is closed: %v", !closed)
			}
		})
	}
}

func TestAccessManagersRefusalIsNotReporters(t *testing.T) {
	t.Parallel()
	manager := httptest.NewServer(answer(403, `{"code":"0260"}`))
	t.Cleanup(manager.Close)
	c := connect(t, Config{URL: "http://127.0.0.1:1", ClientCredentials: &rest.ClientCredentials{
		URL: manager.URL, ClientID: "i", ClientSecret: setting.NewSecret("s"),
	}})
	_, err := c.Report(t.Context(), id)
	if kind(t, err) != rest.Auth || Undescribable(err) || NotReady(err) || Missing(err) || open(c, rest.Get) {
		t.Errorf("got %v, undescribable %v, gate open %v", err, Undescribable(err), open(c, rest.Get))
	}
}

func TestReadinessIsAskedWhereTheVersionHasIt(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		statuses map[string]int
		asked    string
		ok       bool
	}{
		"2026":                {map[string]int{"/readyz": 200}, "/readyz", true},
		"v1.1":                {map[string]int{"/ready": 200, "/health": 200}, "/readyz /ready", true},
		"older":               {map[string]int{"/health": 200}, "/readyz /ready /health", true},
		"kept by a gateway":   {map[string]int{"/readyz": 403, "/ready": 401, "/health": 200}, "/readyz /ready /health", true},
		"not ready":           {map[string]int{"/readyz": 503, "/health": 200}, "/readyz", false},
		"none of these is it": {nil, "/readyz /ready /health", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			c := start(t, func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.URL.Path)
				if r.Header.Get("Authorization") != "" {
					t.Error("a token was sent")
				}
				if status := test.statuses[r.URL.Path]; status != 0 {
					w.WriteHeader(status)
				} else {
					w.WriteHeader(404)
				}
			})
			err := c.Ready(t.Context())
			if (err == nil) != test.ok || strings.Join(asked, " ") != test.asked {
				t.Errorf("got %v after %v", err, asked)
			}
			if !open(c, rest.Get) {
				t.Error("a question about health closed the gate")
			}
		})
	}
}
