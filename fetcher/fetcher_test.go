package fetcher

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"recibo/hub"
	"recibo/rest"
	"recibo/setting"
)

// opened returns the Fetchers of a configuration, with waits that a test can sit out.
func opened(t testing.TB, c Config) *Fetcher {
	t.Helper()
	return openedWith(t, c, Options{ProbeBase: time.Millisecond, ProbeCap: 5 * time.Millisecond})
}

func openedWith(t testing.TB, c Config, o Options) *Fetcher {
	t.Helper()
	f, err := New(rest.Config{Proxy: "none"}, c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func TestASourceIsFoundByItsName(t *testing.T) {
	t.Parallel()
	c := complete()
	f := opened(t, c)
	if f.Sources() != 1 || f.Find("//any", "acme") != 0 || f.Find(f.Name(0)) != 0 {
		t.Error("without sources the section stands for all")
	}
	c.Sources = []SourceConfig{
		{Tenant: "acme"}, {Source: "//one"}, {Source: "//one", Tenant: "acme"}, {Source: "//two", Tenant: SingleTenant},
	}
	f = opened(t, c)
	if f.Sources() != len(c.Sources) {
		t.Errorf("%d sources", f.Sources())
	}
	for i, s := range c.Sources {
		source, tenant := f.Name(i)
		if source != s.Source || tenant != s.Tenant || f.Find(source, tenant) != i {
			t.Errorf("source %d is called %q, %q, by which %d is found", i, source, tenant, f.Find(source, tenant))
		}
	}
	for _, test := range []struct {
		source, tenant string
		want           int
	}{
		{"//three", "acme", 0}, {"//one", "globex", 1}, {"//one", "", 1}, {"//one", "acme", 2}, {"//two", "", 3},
		{"//two", "globex", -1}, {"", "", -1},
	} {
		if got := f.Find(test.source, test.tenant); got != test.want {
			t.Errorf("%q, %q: got %d, want %d", test.source, test.tenant, got, test.want)
		}
	}
}

func TestMessagesAreJudgedByTheRouteTheyCameBy(t *testing.T) {
	t.Parallel()
	all := load(t)
	c := complete()
	c.ExternalHMACKey = secrets(all.Keys.ExternalHMACKeyHex)
	f := openedWith(t, c, Options{Now: atSigning})
	for _, e := range all.Events {
		m := hub.AMQPMessage{Message: e.message(), Exchange: e.Exchange, RoutingKey: e.RoutingKey}
		d := f.Delivery(m)
		if (d.Verdict == hub.Accept) != e.Valid {
			t.Errorf("%s: verdict %d, %s", e.Name, d.Verdict, d.Reason)
		}
		again := f.Again(d.Event.Headers, d.Raw, d.Transport, d.Origin)
		if again.Verdict != d.Verdict || again.Reason != d.Reason || again.Event.ID != d.Event.ID {
			t.Errorf("%s: verdict %d of what was kept of it, %s", e.Name, again.Verdict, again.Reason)
		}
		m.Exchange = "elsewhere"
		if d := f.Delivery(m); d.Verdict == hub.Accept {
			t.Errorf("%s: accepted by another exchange", e.Name)
		}
	}
}

func TestAJobIsAskedForWhereItsSourceIs(t *testing.T) {
	t.Parallel()
	ask := func(name string) *httptest.Server {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer bearer" || r.UserAgent() != "recibo/test" {
				t.Errorf("asked with %v", r.Header)
			}
			says(200, `{"id":"`+jobID+`","status":"`+name+`"}`)(w, r)
		}))
		t.Cleanup(server.Close)
		return server
	}
	c := complete()
	c.Token = setting.NewSecret("bearer")
	c.Sources = []SourceConfig{{Tenant: "a", URL: ask("first").URL}, {Tenant: "b"}, {Tenant: "c", URL: ask("third").URL}}
	f := openedWith(t, c, Options{UserAgent: "recibo/test"})
	for i, want := range []string{"first", "", "third"} {
		if f.Asks(i) != (want != "") {
			t.Errorf("source %d is asked: %v", i, f.Asks(i))
		}
		if want == "" {
			continue
		}
		if err := f.AcquireJob(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		f.CancelJob(i)
		if err := f.AcquireJob(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		if job, err := f.Job(t.Context(), i, jobID); err != nil || job.Status != want {
			t.Errorf("source %d: %+v, %v", i, job, err)
		}
	}
}

func TestEveryServiceHasOneGate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"never asked": {func(*Config) {}, []string{"objects objects"}},
		"asked":       {func(c *Config) { c.URL = "http://x" }, []string{"objects objects", "fetcher get", "fetcher token"}},
		"sources that share it all": {
			func(c *Config) {
				c.URL = "http://x"
				c.Sources = []SourceConfig{{Tenant: "a"}, {Tenant: "b", Objects: ObjectsConfig{Prefix: "b/"}}}
			},
			[]string{"objects objects", "fetcher get", "fetcher token"},
		},
		"sources of their own": {
			func(c *Config) {
				c.Sources = []SourceConfig{
					{Tenant: "a"}, {Tenant: "b", URL: "http://x"}, {Tenant: "c", Objects: ObjectsConfig{Bucket: "another"}},
					{Tenant: "d", URL: "http://x"},
				}
			},
			[]string{"objects of fetcher.sources[0] objects", "objects of fetcher.sources[2] objects",
				"fetcher of fetcher.sources[1] get", "fetcher of fetcher.sources[1] token"},
		},
	} {
		c := complete()
		test.change(&c)
		var got []string
		for _, g := range opened(t, c).Gates() {
			got = append(got, g.Service+" "+string(g.Class))
			if !g.Open {
				t.Errorf("%s: %s is closed", name, g.Service)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestSourcesThatShareAStoreHaveTheirOwnPrefix(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	contents := [][]byte{plaintext, []byte("{\n  \"another\": {}\n}")}
	c := d.config(func(c *Config) { c.Objects.Prefix = "0/" })
	for i, content := range contents {
		d.put(t, fmt.Sprintf("%d/%s", i, resultPath), seal(t, keyB, content))
	}
	c.Sources = []SourceConfig{{Tenant: "a"}, {Tenant: "b", Objects: ObjectsConfig{Prefix: "1/"}}}
	f := opened(t, c)
	for i, content := range contents {
		if got, err := fetchFrom(t.Context(), f.Results, i, wanted(content)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("source %d: got %q, %v", i, got, err)
		}
	}
}

func TestWhatTheSectionSaysOfResults(t *testing.T) {
	t.Parallel()
	c := complete()
	c.Encrypted, c.Mode = "", ""
	if f := opened(t, c); f.Encrypted() != Refuse || f.Mode() != "0600" {
		t.Errorf("by default %s, %s", f.Encrypted(), f.Mode())
	}
	c.Encrypted, c.Mode = Deliver, "0640"
	if f := opened(t, c); f.Encrypted() != Deliver || f.Mode() != "0640" {
		t.Errorf("as configured %s, %s", f.Encrypted(), f.Mode())
	}
}

func TestFetchersThatCantBe(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"fetcher.external_hmac_key: missing": func(c *Config) { c.ExternalHMACKey = nil },
		"fetcher.objects.bucket: missing":    func(c *Config) { c.Objects.Bucket = "" },
		"fetcher.proxy: ":                    func(c *Config) { c.Proxy = "nonsense" },
		"fetcher.client_credentials.url: ":   func(c *Config) { c.URL, c.ClientCredentials = "http://x", &rest.ClientCredentials{} },
	} {
		c := complete()
		change(&c)
		if _, err := New(rest.Config{}, c, Options{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}
