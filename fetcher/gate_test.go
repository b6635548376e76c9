package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"recibo/rest"
	"recibo/sandbox"
	"recibo/setting"
)

// worker runs a Fetcher of the sandbox with one job, and returns the section that takes its results.
func worker(t *testing.T) (*sandbox.Fetcher, Config, Wanted) {
	t.Helper()
	w, err := sandbox.StartFetcher(t.Context(), sandbox.FetcherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	job, err := w.Run(t.Context(), sandbox.Job{ID: jobID, Size: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	c.ExternalHMACKey, c.StorageKey = secrets(w.ExternalKeyHex()), secrets(w.StorageKeyHex())
	c.Objects = ObjectsConfig{
		Endpoint: w.ObjectsURL(), Region: "us-east-1", Bucket: w.Bucket(),
		AccessKey: setting.NewSecret(w.AccessKey()), SecretKey: setting.NewSecret(w.SecretKey()),
	}
	content := w.Plaintext(job.ID)
	return w, c, Wanted{JobID: job.ID, Result: Result{
		Path: w.Key(job.ID), SizeBytes: int64(len(content)), Format: "json", HMAC: macOf(w.ExternalKeyHex(), string(content)),
	}}
}

func take([]byte, Proof) error { return nil }

// bounded is a context that ends only where somebody is stranded.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// objectsGate is the gate of a source's store.
func objectsGate(f *Fetcher, i int) rest.GateStatus { return f.stores[i].gate.Status() }

func TestAStoreInTroubleMeetsOneProbeAtATime(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		down func(*sandbox.Objects, bool)
		kind rest.Kind
	}{
		"resets connections": {(*sandbox.Objects).Down, rest.Unreachable},
		"refuses the access key": {func(o *sandbox.Objects, down bool) {
			if down {
				o.Fail(-1, http.StatusUnauthorized)
			} else {
				o.Fail(0, 0)
			}
		}, rest.Auth},
		"answers 503": {func(o *sandbox.Objects, down bool) {
			if down {
				o.Fail(-1, http.StatusServiceUnavailable)
			} else {
				o.Fail(0, 0)
			}
		}, rest.Server},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken, c, w := worker(t)
			sound, other, fine := worker(t)
			door := openDoor(t, c.Objects.Endpoint)
			c.Objects.Endpoint = door.server.URL
			c.Sources = []SourceConfig{{Tenant: "a"}, {
				Tenant: "b", Objects: other.Objects, ExternalHMACKey: other.ExternalHMACKey, StorageKey: other.StorageKey,
			}}
			f := opened(t, c)
			test.down(broken.Objects, true)
			_, err := fetchFrom(t.Context(), f.Results, 0, w)
			var e *ResultError
			if !errors.As(err, &e) || !e.Service() {
				t.Fatalf("got %v", err)
			}
			if s := objectsGate(f, 0); s.Open || s.Kind != test.kind || !holds(s.Reason, w.Result.Path, c.Objects.Endpoint) {
				t.Fatalf("%+v", s)
			}

			const waiting = 8
			probed := make(chan struct{}, 1000)
			ended := make(chan error, waiting)
			for range waiting {
				go func() {
					for {
						_, err := fetchFrom(t.Context(), f.Results, 0, w)
						var e *ResultError
						if !errors.As(err, &e) || !e.Service() {
							ended <- err
							return
						}
						probed <- struct{}{}
					}
				}()
			}
			for range 10 {
				<-probed
			}
			if most := door.most.Load(); most != 1 {
				t.Errorf("%d requests at a time", most)
			}
			if got, err := fetchFrom(t.Context(), f.Results, 1, fine); err != nil || string(got) != string(sound.Plaintext(jobID)) ||
				!objectsGate(f, 1).Open {
				t.Errorf("the other source's store: %v, %+v", err, objectsGate(f, 1))
			}
			test.down(broken.Objects, false)
			for range waiting {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
			if !objectsGate(f, 0).Open {
				t.Error("the gate did not open")
			}
		})
	}
}

// door is what the requests for a store go through. It knows how many are on their way.
type door struct {
	server        *httptest.Server
	running, most atomic.Int32
}

func openDoor(t *testing.T, address string) *door {
	t.Helper()
	store, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	d := &door{}
	proxy := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(store) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		Transport:    &http.Transport{DisableKeepAlives: true},
	}
	d.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := d.running.Add(1)
		defer d.running.Add(-1) // before the end of the answer goes out
		for most := d.most.Load(); n > most && !d.most.CompareAndSwap(most, n); most = d.most.Load() {
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(d.server.Close)
	return d
}

// clock is a time that only a test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: atSigning()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// pass moves the clock to the next probe of a source's store, and returns how long that is.
func (c *clock) pass(f *Fetcher, i int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := f.stores[i].gate.Status().ProbeAt.Sub(c.at)
	c.at = c.at.Add(wait)
	return wait
}

// clocked returns Fetchers whose gates wait by the clock alone, without jitter.
func clocked(t *testing.T, c Config, clock *clock) *Fetcher {
	t.Helper()
	return openedWith(t, c, Options{Now: clock.now, Jitter: func() float64 { return 0 }})
}

func TestHowLongAStoreIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault  func(http.ResponseWriter, *http.Request, int) bool
		config func(*Config)
		want   []time.Duration
	}{
		"server trouble":       {answer(503, s3Error("SlowDown")), nil, []time.Duration{1, 2, 4, 8}},
		"for a person to mend": {answer(403, s3Error("InvalidAccessKeyId")), nil, []time.Duration{24, 24}},
		"a certificate": {nil, func(c *Config) { c.Objects.Endpoint = strings.Replace(c.Objects.Endpoint, "http", "https", 1) },
			[]time.Duration{24, 24}},
		"nothing listens": {nil, func(c *Config) { c.Objects.Endpoint = "http://127.0.0.1:1" }, []time.Duration{1, 2}},
		"it gives sizes and no bytes": {func(w http.ResponseWriter, r *http.Request, n int) bool {
			return r.Method == http.MethodGet && answer(503, s3Error("SlowDown"))(w, r, n)
		}, nil, []time.Duration{1, 2, 4, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDepot(t)
			d.put(t, resultPath, seal(t, keyB, plaintext))
			d.fault = test.fault
			c := d.config()
			if test.config != nil {
				test.config(&c)
			}
			clock := newClock()
			f := clocked(t, c, clock)
			for i, want := range test.want {
				if _, err := fetch(t.Context(), f.Results, wanted(plaintext)); err == nil {
					t.Fatal("fetched")
				}
				if got := clock.pass(f, 0); got != want*time.Second {
					t.Errorf("wait %d: %v", i+1, got)
				}
			}
		})
	}
}

func TestWhatAnAttemptTellsOfTheStore(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	attempt := func(ctx context.Context, f *Fetcher, change func(*Wanted), deliver func([]byte, Proof) error) error {
		w := wanted(plaintext)
		if change != nil {
			change(&w)
		}
		return f.Fetch(ctx, 0, w, deliver)
	}
	path := func(path string) func(*Wanted) { return func(w *Wanted) { w.Result.Path = path } }
	for name, test := range map[string]struct {
		attempt func(context.Context, *Fetcher) error
		cut     bool // bodies break off
		ends    bool // the context, at the first request
		opens   bool // the closed gate
	}{
		"delivered": {opens: true, attempt: func(ctx context.Context, f *Fetcher) error { return attempt(ctx, f, nil, take) }},
		"not taken": {opens: true, attempt: func(ctx context.Context, f *Fetcher) error {
			return attempt(ctx, f, nil, func([]byte, Proof) error { return full })
		}},
		"missing": {opens: true, attempt: func(ctx context.Context, f *Fetcher) error { return attempt(ctx, f, path("elsewhere"), take) }},
		"another content": {opens: true, attempt: func(ctx context.Context, f *Fetcher) error {
			return attempt(ctx, f, func(w *Wanted) { w.Result.HMAC = keyA }, take)
		}},
		"breaks off": {opens: true, cut: true, attempt: func(ctx context.Context, f *Fetcher) error { return attempt(ctx, f, nil, take) }},
		"as it is stored": {opens: true, attempt: func(ctx context.Context, f *Fetcher) error {
			return f.FetchEncrypted(ctx, 0, wanted(plaintext), func(from io.Reader, _ int64) error {
				_, err := io.Copy(io.Discard, from)
				return err
			})
		}},
		"as it is stored, missing": {opens: true, attempt: func(ctx context.Context, f *Fetcher) error {
			w := wanted(plaintext)
			w.Result.Path = "elsewhere"
			return f.FetchEncrypted(ctx, 0, w, nil)
		}},
		"never asked for": {attempt: func(ctx context.Context, f *Fetcher) error { return attempt(ctx, f, path("/"), take) }},
		"never asked for as it is stored": {attempt: func(ctx context.Context, f *Fetcher) error {
			w := wanted(plaintext)
			w.Result.Path = "../x"
			return f.FetchEncrypted(ctx, 0, w, nil)
		}},
		"given back": {attempt: func(_ context.Context, f *Fetcher) error {
			f.Cancel(0)
			return nil
		}},
		"its context ended": {ends: true, attempt: func(ctx context.Context, f *Fetcher) error { return attempt(ctx, f, nil, take) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDepot(t)
			object := seal(t, keyB, plaintext)
			d.put(t, resultPath, object)
			d.fault = answer(503, "")
			clock := newClock()
			f := clocked(t, d.config(), clock)
			if _, err := fetch(t.Context(), f.Results, wanted(plaintext)); err == nil {
				t.Fatal("fetched")
			}
			clock.pass(f, 0)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			d.fault = func(w http.ResponseWriter, r *http.Request, _ int) bool {
				switch {
				case test.ends:
					cancel()
					<-r.Context().Done()
				case test.cut && r.Method == http.MethodGet:
					w.Header().Set("Last-Modified", lastModified)
					w.Header().Set("Content-Length", fmt.Sprint(len(object)))
					_, _ = w.Write(object[:10])
				default:
					return false
				}
				return true
			}
			if err := f.Acquire(ctx, 0); err != nil {
				t.Fatal(err)
			}
			err := test.attempt(ctx, f)
			if s := objectsGate(f, 0); s.Open != test.opens {
				t.Errorf("the gate is open: %v, after %v", s.Open, err)
			}
			d.fault = nil
			if _, err := fetch(bounded(t), f.Results, wanted(plaintext)); err != nil {
				t.Errorf("the next one: %v", err)
			}
		})
	}
}

func TestNobodyWaitsForTheProbesDelivery(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, plaintext))
	d.fault = answer(503, "")
	clock := newClock()
	f := clocked(t, d.config(), clock)
	if _, err := fetch(t.Context(), f.Results, wanted(plaintext)); err == nil {
		t.Fatal("fetched")
	}
	d.fault = nil
	clock.pass(f, 0)
	if err := f.Acquire(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	err := f.Fetch(t.Context(), 0, wanted(plaintext), func([]byte, Proof) error {
		_, err := fetch(bounded(t), f.Results, wanted(plaintext))
		return err
	})
	if err != nil || !objectsGate(f, 0).Open {
		t.Errorf("%v, %+v", err, objectsGate(f, 0))
	}
}
