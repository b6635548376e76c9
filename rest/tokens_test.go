package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"recibo/setting"
)

// tokenServer hands out t1, t2, … for an hour each.
func tokenServer(t *testing.T) *httptest.Server {
	var count atomic.Int32
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"accessToken":"t%d","tokenType":"Bearer","expiresIn":3600}`, count.Add(1))
	})
}

// guarded answers 200 to one token and 401 to all others.
type guarded struct {
	mu       sync.Mutex
	accepts  string
	received []string
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	g.received = append(g.received, token)
	if token != g.accepts {
		http.Error(w, "Invalid Token", http.StatusUnauthorized)
	}
}

func (g *guarded) start(t *testing.T) string { return serve(t, g.ServeHTTP).URL }

func (g *guarded) got() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.received, " ")
}

func (g *guarded) accept(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.accepts = token
}

func managed(address, manager string) setup {
	s := quick(address)
	s.ClientCredentials = &ClientCredentials{URL: manager, ClientID: "me", ClientSecret: secret(`sh"hh`)}
	return s
}

func TestTheTokenIsAskedForAsTheContractSays(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"", "/", "/base", "/v1/login/oauth/access_token"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			var path, contentType, method, organization string
			var body map[string]string
			manager := serve(t, func(w http.ResponseWriter, r *http.Request) {
				path, contentType, method, organization = r.URL.Path, r.Header.Get("Content-Type"), r.Method, r.Header.Get("X-Organization-Id")
				_ = json.NewDecoder(r.Body).Decode(&body)
				fmt.Fprint(w, `{"accessToken":"good","expiresIn":"3600"}`)
			})
			service := &guarded{accepts: "good"}
			s := managed(service.start(t), manager.URL+suffix)
			s.Header = http.Header{"X-Organization-Id": {"o"}}
			if _, _, err := fetch(t, s.client(t), Get); err != nil {
				t.Fatal(err)
			}
			want := "/v1/login/oauth/access_token"
			if suffix == "/base" {
				want = "/base" + want
			}
			if path != want || method != "POST" || contentType != "application/json" || organization != "" {
				t.Errorf("got %s %s, %s, organization %q", method, path, contentType, organization)
			}
			if len(body) != 3 || body["grantType"] != "client_credentials" || body["clientId"] != "me" || body["clientSecret"] != `sh"hh` {
				t.Errorf("got %v", body)
			}
		})
	}
}

func TestWithoutATokenNothingIsSent(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answer http.HandlerFunc
		kind   Kind
		shows  string
	}{
		"denied": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(403)
			fmt.Fprint(w, `{"code":1024,"title":"Denied","message":"not you with sh\"hh"}`)
		}, Auth, `403 1024 Denied: not you with [hidden]`},
		"refused":    {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(400) }, Auth, "400"},
		"not found":  {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404) }, Auth, "404"},
		"in trouble": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) }, Server, "503"},
		"limited": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(429)
		}, Limited, "429"},
		"a page":      {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>") }, Auth, "not the JSON"},
		"other names": {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"access_token":"leak-me"}`) }, Auth, "no accessToken"},
		"a bad token": {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"accessToken":"leak-me\n"}`) }, Auth, "no accessToken"},
		"cut off": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "500")
			fmt.Fprint(w, `{"accessToken":"leak-me"}`)
		}, Auth, "unexpected EOF"},
		"redirected": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere?x=leak-me", http.StatusTemporaryRedirect)
		}, Auth, "redirected to http://127.0.0.1"},
		"silent": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, Unreachable, "no token within"},
		"stalled": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, Unreachable, "no token within"},
		"down": {nil, Unreachable, "refused"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := atomic.Int32{}
			manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				test.answer(w, r)
			}))
			t.Cleanup(manager.Close)
			if test.answer == nil {
				manager.Close()
			}
			service := &guarded{}
			s := managed(service.start(t), manager.URL)
			if strings.HasPrefix(test.shows, "no token within") {
				s.TokenTimeout = 50 * time.Millisecond
			}
			c := s.client(t)
			_, _, err := fetch(t, c, Get)
			e := failure(t, err, test.kind)
			line := e.Error()
			if !e.Token || !e.Service() || !strings.Contains(line, test.shows) {
				t.Errorf("got token %v, service %v: %s", e.Token, e.Service(), line)
			}
			if strings.Contains(line, "leak-me") || strings.Contains(line, "hh") {
				t.Errorf("a credential is shown: %s", line)
			}
			if gateOf(c, Get).Open || gateOf(c, Token).Open {
				t.Error("a gate is open")
			}
			if service.got() != "" || asked.Load() > 1 {
				t.Errorf("the service received %q, the manager %d requests", service.got(), asked.Load())
			}
		})
	}
}

func TestAPauseOfTheTokenEndpointHoldsForEveryClass(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	manager := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(429)
	})
	c := managed((&guarded{}).start(t), manager.URL).client(t)
	for _, class := range []Class{Get, Download} {
		_, _, err := fetch(t, c, class)
		if e := failure(t, err, Limited); e.RetryAt.IsZero() || !e.Token {
			t.Errorf("got %v until %v", err, e.RetryAt)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
}

func TestATokenThatIsRevokedIsReplacedOnce(t *testing.T) {
	t.Parallel()
	service := &guarded{accepts: "t1"}
	c := managed(service.start(t), tokenServer(t).URL).client(t)
	steps := []struct {
		accepts, received string
		ok                bool
	}{
		{"t1", "t1", true},
		{"t2", "t1 t1 t2", true},
		{"none", "t1 t1 t2 t2 t3", false},
	}
	for _, step := range steps {
		service.accept(step.accepts)
		_, _, err := fetch(t, c, Get)
		if step.ok != (err == nil) || service.got() != step.received {
			t.Fatalf("accepting %s: received %q, %v", step.accepts, service.got(), err)
		}
		if err != nil && failure(t, err, Auth).Token {
			t.Error("the service's own 401 is taken for the token endpoint's")
		}
	}
	if gateOf(c, Get).Open {
		t.Error("the gate is open")
	}
}

func TestAFixedTokenIsReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(value string) {
		if err := os.WriteFile(file+".new", []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	token, err := setting.SecretFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	service := &guarded{accepts: "second"}
	s := quick(service.start(t))
	s.Token = token
	c := s.client(t)
	_, _, err = fetch(t, c, Get)
	failure(t, err, Auth)
	if service.got() != "first" {
		t.Errorf("a token that has not changed was sent again: %q", service.got())
	}
	write("second")
	if err := c.Acquire(bounded(t), Get); err != nil {
		t.Fatal(err)
	}
	if _, _, err := fetch(t, c, Get); err != nil {
		t.Fatal(err)
	}
}

func TestAFixedTokenThatNoHeaderCanCarryIsNotSent(t *testing.T) {
	t.Parallel()
	service := &guarded{}
	s := quick(service.start(t))
	s.Token = secret("two\nlines")
	_, _, err := fetch(t, s.client(t), Get)
	if e := failure(t, err, Auth); strings.Contains(e.Error(), "lines") || service.got() != "" {
		t.Errorf("got %v, received %q", err, service.got())
	}
}

// asks is a source of tokens that a test steers.
type asks struct {
	clock time.Time
	count atomic.Int32
	life  time.Duration
	err   error
}

func (a *asks) source() *renewed {
	return &renewed{now: func() time.Time { return a.clock }, ask: func(context.Context) (grant, error) {
		n := a.count.Add(1)
		return grant{fmt.Sprintf("t%d", n), a.clock.Add(a.life)}, a.err
	}}
}

func TestTokensAreRenewedBeforeTheyEnd(t *testing.T) {
	t.Parallel()
	for life, renewed := range map[time.Duration]time.Duration{
		time.Hour:         59 * time.Minute,
		100 * time.Second: 80 * time.Second,
	} {
		a := &asks{clock: time.Unix(1_777_000_000, 0), life: life}
		source := a.source()
		expect := func(what, want string) {
			t.Helper()
			if got, err := source.get(t.Context()); err != nil || got != want {
				t.Errorf("%v, %s: got %q, %v, want %q", life, what, got, err, want)
			}
		}
		expect("at first", "t1")
		a.clock = a.clock.Add(renewed - 1)
		expect("just before", "t1")
		a.clock = a.clock.Add(1)
		a.err = errors.New("down")
		expect("with the endpoint down", "t1")
		expect("and soon again", "t1")
		if n := a.count.Load(); n != 2 {
			t.Errorf("asked %d times", n)
		}
		a.clock, a.err = a.clock.Add(renewRetry), nil
		expect("with the endpoint back", "t3")
		a.err, a.clock = errors.New("down"), a.clock.Add(life)
		if got, err := source.get(t.Context()); err == nil {
			t.Errorf("got %q after its end", got)
		}
	}
}

func TestATokenIsAskedForOnceAtATime(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var asked atomic.Int32
	manager := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-release
		fmt.Fprint(w, `{"accessToken":"good","expiresIn":3600}`)
	})
	service := &guarded{accepts: "good"}
	c := managed(service.start(t), manager.URL).client(t)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, _, err := fetch(t, c, []Class{Get, Download}[i%2]); err != nil {
				t.Error(err)
			}
		})
	}
	for asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	all.Wait()
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
}

func TestWhoeverWaitsForATokenOutlivesTheOneWhoAsked(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	asking := make(chan struct{})
	source := &renewed{now: time.Now}
	source.ask = func(ctx context.Context) (grant, error) {
		if calls.Add(1) == 1 {
			close(asking)
			<-ctx.Done()
			return grant{}, ctx.Err()
		}
		return grant{"good", time.Now().Add(time.Hour)}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := source.get(ctx); err != context.Canceled {
			t.Errorf("whoever asked got %v", err)
		}
	})
	<-asking
	all.Go(func() {
		if token, err := source.get(t.Context()); token != "good" {
			t.Errorf("whoever waited got %q, %v", token, err)
		}
	})
	cancel()
	all.Wait()
}
