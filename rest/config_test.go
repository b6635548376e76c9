package rest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"recibo/setting"
)

func TestConfigurationErrorsNameTheKeyAndNoSecret(t *testing.T) {
	t.Parallel()
	credentials := func(url, id, secretValue string) func(*setup) {
		return func(s *setup) {
			s.ClientCredentials = &ClientCredentials{URL: url, ClientID: id, ClientSecret: secret(secretValue)}
		}
	}
	address := func(url string) func(*setup) { return func(s *setup) { s.URL = url } }
	tests := map[string]struct {
		change func(*setup)
		key    string
	}{
		"no address":            {address(""), "reporter.url"},
		"no scheme":             {address("127.0.0.1:4005"), "reporter.url"},
		"another scheme":        {address("ftp://x"), "reporter.url"},
		"no host":               {address("http://"), "reporter.url"},
		"a password in it":      {address("http://u:s3cr3t@x"), "reporter.url"},
		"a query":               {address("http://x/?s3cr3t"), "reporter.url"},
		"not to be parsed":      {address("http://u:s3cr/3t@x"), "reporter.url"},
		"a header of two lines": {func(s *setup) { s.Header = http.Header{"X-A": {"a\nb"}} }, "reporter.header"},
		"both kinds of token": {func(s *setup) {
			credentials("http://a", "i", "s3cr3t")(s)
			s.Token = secret("s3cr3t")
		}, "reporter.token"},
		"no address of Access Manager": {credentials("", "i", "s3cr3t"), "reporter.client_credentials.url"},
		"no client id":                 {credentials("http://a", "", "s3cr3t"), "reporter.client_credentials.client_id"},
		"no client secret":             {credentials("http://a", "i", ""), "reporter.client_credentials.client_secret"},
		"a proxy that is no URL":       {func(s *setup) { s.Service.Proxy = "http://u:s3cr/3t@x" }, "reporter.proxy"},
		"a proxy of another kind":      {func(s *setup) { s.Config.Proxy = "ftp://u:s3cr3t@x" }, "rest.proxy"},
		"a proxy without a host":       {func(s *setup) { s.Config.Proxy = "direct" }, "rest.proxy"},
		"no such roots":                {func(s *setup) { s.Config.CAFile = "/nowhere/ca.pem" }, "rest.ca_file"},
		"no such roots of its own":     {func(s *setup) { s.TLS.CAFile = "/nowhere/ca.pem" }, "reporter.tls"},
		"half a client certificate":    {func(s *setup) { s.TLS = setting.TLS{CertFile: "c.pem"} }, "reporter.tls"},
		"a negative idle limit":        {func(s *setup) { s.IdleTimeout = -time.Second }, "rest.idle_timeout"},
		"a negative header limit":      {func(s *setup) { s.HeaderTimeout = -time.Second }, "rest.header_timeout"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := quick("http://127.0.0.1:1")
			test.change(&s)
			_, err := New(s.Config, s.Service, s.Options)
			if err == nil || !strings.HasPrefix(err.Error(), test.key+": ") || strings.Contains(err.Error(), "s3cr") {
				t.Errorf("got %v, want %s named", err, test.key)
			}
		})
	}
}

func TestRequestsGoBelowTheAddressAndSayWhoAsks(t *testing.T) {
	t.Parallel()
	var got *http.Request
	server := serve(t, func(w http.ResponseWriter, r *http.Request) { got = r.Clone(r.Context()) })
	s := quick(server.URL + "/base/")
	s.Token, s.Header, s.UserAgent = secret("bearer"), http.Header{"x-organization-id": {"o"}}, "recibo/1"
	if _, _, err := fetch(t, s.client(t), Get); err != nil {
		t.Fatal(err)
	}
	if got.Method != "GET" || got.URL.String() != "/base/v1/reports/7?q=query-part" {
		t.Errorf("got %s %s", got.Method, got.URL)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer bearer", "X-Organization-Id": "o", "User-Agent": "recibo/1", "Accept-Encoding": "identity",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("%s is %q", name, got.Header.Get(name))
		}
	}
}

func TestAnonymousRequestsCarryNothingAndMoveNoGate(t *testing.T) {
	t.Parallel()
	var got http.Header
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		w.WriteHeader(503)
	})
	s := quick(server.URL)
	s.Token, s.Header = secret("bearer"), http.Header{"X-Organization-Id": {"o"}}
	c := s.client(t)
	_, err := c.Do(t.Context(), Get, Request{Path: "/readyz", Anonymous: true})
	failure(t, err, Server)
	if found := ours(got); len(found) > 0 || !gateOf(c, Get).Open {
		t.Errorf("sent %v, gate %+v", found, gateOf(c, Get))
	}
}
