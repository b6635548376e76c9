package fetcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"recibo/rest"
	"recibo/setting"
)

const (
	bucket     = "fetcher-storage"
	resultPath = "external-data/" + jobID + ".json"

	lastModified = "Wed, 24 Jun 2026 12:00:00 GMT"
)

// depot is an object store with faults on request.
type depot struct {
	backend *s3mem.Backend
	server  *httptest.Server

	mu       sync.Mutex
	requests []string                                                      // method and path
	fault    func(w http.ResponseWriter, r *http.Request, n int) (ok bool) // before the store; n counts from 1
}

func openDepot(t testing.TB) *depot {
	t.Helper()
	d := &depot{backend: s3mem.New()}
	if err := d.backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	real := gofakes3.New(d.backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	d.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		d.requests = append(d.requests, r.Method+" "+r.URL.Path)
		fault, n := d.fault, len(d.requests)
		d.mu.Unlock()
		if fault == nil || !fault(w, r, n) {
			real.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(d.server.Close)
	return d
}

func (d *depot) put(t testing.TB, key string, object []byte) {
	t.Helper()
	if _, err := d.backend.PutObject(bucket, key, map[string]string{"Last-Modified": lastModified}, bytes.NewReader(object), int64(len(object)), nil); err != nil {
		t.Fatal(err)
	}
}

func (d *depot) seen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.requests...)
}

func (d *depot) config(change ...func(*Config)) Config {
	c := keyed(keyA)
	c.StorageKey = secrets(keyB)
	c.Objects = ObjectsConfig{
		Endpoint: d.server.URL, Region: "us-east-1", Bucket: bucket, AccessKey: setting.NewSecret("XAKIDX"), SecretKey: setting.NewSecret("XSECRETX"),
	}
	for _, apply := range change {
		apply(&c)
	}
	return c
}

func results(t testing.TB, c Config, rc ...rest.Config) *Results {
	t.Helper()
	if len(rc) == 0 {
		rc = []rest.Config{{Proxy: "none"}}
	}
	r, err := NewResults(rc[0], c, Options{ProbeBase: time.Millisecond, ProbeCap: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

var plaintext = []byte("{\n  \"pg-main\": {\n    \"users\": []\n  }\n}")

func wanted(plaintext []byte) Wanted {
	return Wanted{JobID: jobID, Result: Result{Path: resultPath, SizeBytes: int64(len(plaintext)), Format: "json", HMAC: macOf(keyA, string(plaintext))}}
}

// fetch returns a copy of what was delivered.
func fetch(ctx context.Context, r *Results, w Wanted) ([]byte, error) { return fetchFrom(ctx, r, 0, w) }

func fetchFrom(ctx context.Context, r *Results, i int, w Wanted) ([]byte, error) {
	if err := r.Acquire(ctx, i); err != nil {
		return nil, err
	}
	var got []byte
	err := r.Fetch(ctx, i, w, func(p []byte, proof Proof) error {
		if proof != Verified {
			return fmt.Errorf("proof %q", proof)
		}
		got = bytes.Clone(p)
		return nil
	})
	return got, err
}

// expect checks an error's kind, and that nothing was delivered with it, but for what only its HMAC tells.
func expect(t *testing.T, name string, got []byte, err error, want Kind) {
	t.Helper()
	var e *ResultError
	if !errors.As(err, &e) || e.Kind != want || e.JobID != jobID || got != nil && want != BadHMAC {
		t.Errorf("%s: got %d bytes, %v; want %s", name, len(got), err, want)
		return
	}
	for _, secret := range []string{"XSECRETX", "XAKIDX", keyA, keyB} {
		if holds(err.Error(), secret) {
			t.Errorf("%s: a secret is shown: %v", name, err)
		}
	}
}
