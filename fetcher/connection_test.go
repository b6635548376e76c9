package fetcher

import (
	"bytes"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"recibo/rest"
	"recibo/setting"
)

// secure puts a depot behind TLS and returns the file of its root.
func (d *depot) secure(t *testing.T) (address, caFile string) {
	t.Helper()
	server := httptest.NewTLSServer(d.server.Config.Handler)
	t.Cleanup(server.Close)
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	block := pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&block), 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, caFile
}

func TestTheStoreIsTrustedByTheRootsConfigured(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, plaintext))
	address, ca := d.secure(t)
	for name, test := range map[string]struct {
		own setting.TLS
		all string
		ok  bool
	}{
		"its own root":        {setting.TLS{CAFile: ca}, "", true},
		"the root of all":     {setting.TLS{}, ca, true},
		"the system's roots":  {setting.TLS{}, "", false},
		"both, which are one": {setting.TLS{CAFile: ca}, ca, true},
	} {
		c := d.config(func(c *Config) { c.Objects.Endpoint, c.Objects.TLS = address, test.own })
		got, err := fetch(t.Context(), results(t, c, rest.Config{Proxy: "none", CAFile: test.all}), wanted(plaintext))
		if test.ok && (err != nil || !bytes.Equal(got, plaintext)) {
			t.Errorf("%s: %v", name, err)
		}
		if !test.ok {
			expect(t, name, got, err, Unreachable)
		}
	}
}

func TestRootsAreReadAgainWhenTheyChange(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, plaintext))
	address, right := d.secure(t)
	good, err := os.ReadFile(right)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "roots.pem")
	writeFile(t, file, strangeRoot)
	r := results(t, d.config(func(c *Config) { c.Objects.Endpoint, c.Objects.TLS.CAFile = address, file }))
	for _, step := range []struct {
		roots string
		ok    bool
	}{{strangeRoot, false}, {string(good), true}, {"nonsense", true}, {strangeRoot, false}} {
		writeFile(t, file, step.roots)
		got, err := fetch(t.Context(), r, wanted(plaintext))
		if step.ok && err != nil {
			t.Errorf("with %.40q: %v", step.roots, err)
		}
		if !step.ok {
			expect(t, "strange root", got, err, Unreachable)
		}
	}
}

func TestTheProxyConfiguredIsUsed(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, plaintext))
	var passed atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passed.Add(1)
		d.server.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	for name, test := range map[string]struct{ own, all string }{
		"its own":          {proxy.URL, "none"},
		"that of all":      {"", proxy.URL},
		"none in any case": {"none", proxy.URL},
	} {
		passed.Store(0)
		c := d.config(func(c *Config) { c.Proxy = test.own })
		if _, err := fetch(t.Context(), results(t, c, rest.Config{Proxy: test.all}), wanted(plaintext)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := test.own != "none"; (passed.Load() == 2) != want {
			t.Errorf("%s: %d requests passed", name, passed.Load())
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent %v", r.Header) }))
	t.Cleanup(elsewhere.Close)
	d := openDepot(t)
	d.fault = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		return true
	}
	got, err := fetch(t.Context(), results(t, d.config()), wanted(plaintext))
	expect(t, "redirected", got, err, Server)
}

// strangeRoot is a root that signed nothing here.
const strangeRoot = `-----BEGIN CERTIFICATE-----
MIIBezCCASGgAwIBAgIUaS1hdnlCjJBN5At3FGjsWR8WanIwCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHc3RyYW5nZTAgFw0yNjExMjkxNDI1MDlaGA8yMTI2MTEwNTE0
MjUwOVowEjEQMA4GA1UEAwwHc3RyYW5nZTBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABMdbaKguo5VlufVsc36m7kHIa4sibCkMw7+HyZhwBe0TexT9VFJo4aZWdhoo
FMU0YfFoTY6e6ykMMyaS1Kti9syjUzBRMB0GA1UdDgQWBBQ7yAImnu0lh8BhlFb5
YzCiel31/DAfBgNVHSMEGDAWgBQ7yAImnu0lh8BhlFb5YzCiel31/DAPBgNVHRMB
Af8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIHvXO0W7e3elGfy9g0cN3n8Vs3Ie
0sBJlz36d8uC7KKxAiEAxlNBYgaMFrTwcfU+jSwfcLfdaXuwwXqoiMxnZeULq8A=
-----END CERTIFICATE-----
`
