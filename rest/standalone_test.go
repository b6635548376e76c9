package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"recibo/setting"
)

// standalone returns a gate without jitter, by the clock of the test's bubble.
func standalone() *Gate { return NewGate("objects", Options{Jitter: func() float64 { return 0 }}) }

var errCall = errors.New("no")

// tells returns what an error of a call tells of its service.
func tells(kind Kind) func(error) *Error {
	return func(err error) *Error { return &Error{Kind: kind, Err: err} }
}

func nothingTold(error) *Error { return nil }

// call acquires, and makes a call that ends with err.
func call(t *testing.T, g *Gate, err error, about func(error) *Error) {
	t.Helper()
	if err := g.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := g.Do(func(func()) error { return err }, about); got != err {
		t.Fatalf("got %v, want %v", got, err)
	}
}

func TestAServiceWithoutAClientMeetsOneProbeAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := standalone()
		call(t, g, errCall, tells(Server))
		var running, most, calls atomic.Int32
		up := make(chan struct{})
		ended := make(chan error, 5)
		for range 5 {
			go func() {
				for {
					if err := g.Acquire(t.Context()); err != nil {
						ended <- err
						return
					}
					err := g.Do(func(func()) error {
						calls.Add(1)
						most.Store(max(most.Load(), running.Add(1)))
						defer running.Add(-1)
						time.Sleep(time.Minute)
						select {
						case <-up:
							return nil
						default:
							return errCall
						}
					}, tells(Server))
					if err == nil {
						ended <- nil
						return
					}
				}
			}()
		}
		time.Sleep(time.Hour)
		if most.Load() != 1 || calls.Load() < 10 {
			t.Errorf("%d calls at a time, %d altogether", most.Load(), calls.Load())
		}
		close(up)
		for range 5 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if !g.Status().Open {
			t.Error("the gate is not open")
		}
	})
}

func TestWhatTheEndOfACallTells(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err   error
		about func(error) *Error
		opens bool          // a closed gate
		wait  time.Duration // of the next probe after the first trouble, where the gate was open; 0: it stays open
	}{
		"no error":                {opens: true},
		"nothing of the service":  {err: errCall, about: nothingTold},
		"about the object":        {err: errCall, about: tells(Refused), opens: true},
		"broken off":              {err: errCall, about: tells(Broken), opens: true},
		"unreachable":             {err: errCall, about: tells(Unreachable), wait: time.Second},
		"server trouble":          {err: errCall, about: tells(Server), wait: time.Second},
		"for a person to mend":    {err: errCall, about: tells(Auth), wait: 24 * time.Second},
		"too slow to tell either": {err: errCall, about: tells(TooSlow)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := standalone()
				call(t, g, test.err, test.about)
				if s := g.Status(); s.Open != (test.wait == 0) || !s.Open && time.Until(s.ProbeAt) != test.wait {
					t.Errorf("an open gate: %+v", s)
				}
				g = standalone()
				call(t, g, errCall, tells(Unreachable))
				call(t, g, test.err, test.about)
				if g.Status().Open != test.opens {
					t.Errorf("a closed gate is open: %v", !test.opens)
				}
				call(t, g, nil, nil) // nobody is stranded
			})
		})
	}
}

func TestAnAnswerOpensTheGateBeforeItsCallEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := standalone()
		call(t, g, errCall, tells(Unreachable))
		if err := g.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := g.Do(func(answered func()) error {
			answered()
			answered()
			if !g.Status().Open {
				t.Error("the gate is not open")
			}
			call(t, g, nil, nil)
			return nil
		}, nothingTold)
		if err != nil || !g.Status().Open {
			t.Errorf("at the end: %v, %+v", err, g.Status())
		}
	})
}

func TestOfAnAnsweredCallsEndOnlyTroubleCounts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err     error
		kind    Kind
		trouble bool // of another call in between
		open    bool
	}{
		"delivered":                        {open: true},
		"refused":                          {err: errCall, kind: Refused, open: true},
		"trouble of its own":               {err: errCall, kind: Server},
		"delivered while the gate closed":  {trouble: true},
		"refused while the gate closed":    {err: errCall, kind: Refused, trouble: true},
		"in trouble while the gate closed": {err: errCall, kind: Server, trouble: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := standalone()
				call(t, g, errCall, tells(Unreachable))
				if err := g.Acquire(t.Context()); err != nil {
					t.Fatal(err)
				}
				_ = g.Do(func(answered func()) error {
					answered()
					if test.trouble {
						call(t, g, errCall, tells(Unreachable))
					}
					return test.err
				}, tells(test.kind))
				s := g.Status()
				if s.Open != test.open {
					t.Fatalf("%+v", s)
				}
				if !s.Open && time.Until(s.ProbeAt) != time.Second {
					t.Errorf("two troubles of one moment: the next probe in %v", time.Until(s.ProbeAt))
				}
				if n := g.gates.of(g.class).running; n != 0 {
					t.Errorf("%d calls are still counted", n)
				}
				call(t, g, nil, nil)
			})
		})
	}
}

func TestAPermitThatIsGivenBackIsTheNextOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := standalone()
		call(t, g, errCall, tells(Server))
		if err := g.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := g.Acquire(ctx); err != context.DeadlineExceeded {
			t.Errorf("a second probe: %v", err)
		}
		g.Cancel()
		began := time.Now()
		call(t, g, nil, nil)
		if time.Since(began) != 0 {
			t.Errorf("waited for %v", time.Since(began))
		}
	})
}

func TestNothingIsCalledIntoAPauseThatWasAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := standalone()
		until := time.Now().Add(time.Minute)
		call(t, g, errCall, func(error) *Error { return &Error{Kind: Limited, RetryAt: until} })
		err := g.Do(func(func()) error {
			t.Error("called")
			return nil
		}, nothingTold)
		if e := failure(t, err, Limited); !e.RetryAt.Equal(until) {
			t.Errorf("until %v", e.RetryAt)
		}
		select {
		case <-g.Changed():
		default:
			t.Error("the closing was not told")
		}
	})
}

func TestTransportsDifferInWhatTheirOptionsSay(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pemFile(t, "CERTIFICATE", server.Certificate().Raw)
	for proto, options := range map[string]TransportOptions{"HTTP/2.0": {}, "HTTP/1.1": {HTTP1: true, ReadBuffer: 64 << 10}} {
		material, err := setting.NewMaterial(setting.TLS{CAFile: ca})
		if err != nil {
			t.Fatal(err)
		}
		transport := NewTransport(material, options)
		client := &http.Client{Transport: transport}
		resp, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(got) != proto || err != nil {
			t.Errorf("got %s, %v; want %s", got, err, proto)
		}
		client.CloseIdleConnections()
	}
}

func TestAProxyThatCantBeIsNamedByItsKey(t *testing.T) {
	t.Parallel()
	for want, test := range map[string]struct{ own, common string }{
		"fetcher.proxy: neither":         {"http://user:open-sesame@", "none"},
		"fetcher.proxy: must begin with": {"ftp://open-sesame", ""},
		"rest.proxy: neither":            {"", "open-sesame"},
	} {
		_, err := Proxy("fetcher.proxy", test.own, test.common)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "open-sesame") {
			t.Errorf("%s: got %v", want, err)
		}
	}
}
