package rest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// ours are the headers that no other origin may see.
func ours(h http.Header) []string {
	var found []string
	for _, name := range []string{"Authorization", "X-Organization-Id", "X-Custom", "Referer"} {
		if h.Get(name) != "" {
			found = append(found, name)
		}
	}
	return found
}

func TestRedirectsCarryNothingOfOursToAnotherOrigin(t *testing.T) {
	t.Parallel()
	var backTo string
	seen := make(chan http.Header, 9)
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/back" {
			http.Redirect(w, r, backTo+"/end", http.StatusFound)
			return
		}
		seen <- r.Header
	})
	home := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch code := 0; {
		case r.URL.Path == "/end":
			seen <- r.Header
		case strings.Count(r.URL.Path, "/") == 3: // /v1/reports/7
			_, _ = fmt.Sscan(r.URL.Query().Get("code"), &code)
			http.Redirect(w, r, r.URL.Query().Get("to"), code)
		}
	})
	backTo = home.URL
	tests := map[string]struct {
		to   string
		kept bool
	}{
		"the same origin":                    {"/end", true},
		"another port":                       {other.URL + "/x?signature=1", false},
		"another name":                       {strings.Replace(home.URL, "127.0.0.1", "localhost", 1) + "/end", false},
		"away and back":                      {other.URL + "/back", false},
		"the same origin, by its whole name": {strings.ToUpper(home.URL[:4]) + home.URL[4:] + "/end", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, code := range []string{"301", "302", "303", "307", "308"} {
				s := quick(home.URL)
				s.Token = secret("bearer")
				s.Header = http.Header{"X-Organization-Id": {"o"}}
				req := Request{Path: "/v1/reports/7", Header: http.Header{"X-Custom": {"c"}, "Range": {"bytes=5-"}}}
				req.Query = map[string][]string{"to": {test.to}, "code": {code}}
				resp, err := s.client(t).Do(t.Context(), Get, req)
				if err != nil {
					t.Fatal(code, err)
				}
				_ = resp.Body.Close()
				header := <-seen
				if got := ours(header); (len(got) > 0) != test.kept {
					t.Errorf("%s: received %v", code, got)
				}
				if header.Get("Range") != "bytes=5-" || header.Get("Accept-Encoding") != "identity" {
					t.Errorf("%s: lost what is not ours: %v", code, header)
				}
			}
		})
	}
}

func TestRedirectsThatAreNotFollowed(t *testing.T) {
	t.Parallel()
	plain := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Error("plain http was asked after https") })
	hops := 0
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/downgrade"):
			http.Redirect(w, r, plain.URL+"/?token=abc", http.StatusFound)
		case strings.HasSuffix(r.URL.Path, "/file"):
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		default:
			hops++
			http.Redirect(w, r, fmt.Sprintf("/loop/%d", hops), http.StatusFound)
		}
	}))
	t.Cleanup(secure.Close)
	for path, reason := range map[string]string{
		"/downgrade": "redirected from https to plain http at http://127.0.0.1",
		"/file":      "neither http nor https",
		"/loop":      "more than 3 redirects",
	} {
		t.Run(path, func(t *testing.T) {
			s := quick(secure.URL)
			s.TLS.CAFile = pemFile(t, "CERTIFICATE", secure.Certificate().Raw)
			c := s.client(t)
			_, err := c.Do(t.Context(), Get, Request{Path: path, Op: "get"})
			e := failure(t, err, Malformed)
			if !strings.Contains(e.Error(), reason) || strings.Contains(e.Error(), "abc") {
				t.Errorf("got %v", err)
			}
			if !gateOf(c, Get).Open {
				t.Error("the gate closed over an answer")
			}
		})
	}
	if hops != 4 {
		t.Errorf("%d requests for 3 hops", hops)
	}
}

func TestARefusalBehindARedirectIsNotAboutOurToken(t *testing.T) {
	t.Parallel()
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", "3000")
		w.WriteHeader(401)
	})
	for host, kind := range map[string]Kind{"localhost": Refused, "127.0.0.1": Auth} {
		t.Run(host, func(t *testing.T) {
			requests := 0
			home := serve(t, func(w http.ResponseWriter, r *http.Request) {
				requests++
				http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", host, 1)+"/signed?s=1", http.StatusFound)
			})
			s := quick(home.URL)
			s.ClientCredentials = &ClientCredentials{URL: tokenServer(t).URL, ClientID: "i", ClientSecret: secret("x")}
			_, _, err := fetch(t, s.client(t), Download)
			e := failure(t, err, kind)
			if !strings.Contains(e.Error(), "another origin") || requests != 1 || e.pace.known {
				t.Errorf("got %v after %d requests", err, requests)
			}
		})
	}
}
