package rest

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func testGates(jitter float64, now func() time.Time) *gates {
	return newGates(Options{Jitter: func() float64 { return jitter }, Now: now}.withDefaults(), Get, Download, Token)
}

// pass acquires and begins at once.
func pass(t *testing.T, g *gates, class Class) permit {
	t.Helper()
	if err := g.acquire(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	p, paused := g.begin(class)
	if !paused.IsZero() {
		t.Fatal("paused until", paused)
	}
	return p
}

func fail(kind Kind) verdict { return verdict{about: trouble, err: &Error{Op: "get", Kind: kind}} }

func (g *gates) get(class Class) GateStatus {
	all := g.status()
	return all[slices.IndexFunc(all, func(s GateStatus) bool { return s.Class == class })]
}

func TestAClosedGateLetsOneProbePassAndSuccessLetsAllPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := testGates(0, time.Now)
		g.settle(Get, pass(t, g, Get), fail(Unreachable))
		var passed atomic.Int32
		for range 5 {
			go func() {
				if g.acquire(t.Context(), Get) == nil {
					passed.Add(1)
				}
			}()
		}
		expect := func(what string, want int32) {
			t.Helper()
			synctest.Wait()
			if got := passed.Load(); got != want {
				t.Fatalf("%s: %d passed, want %d", what, got, want)
			}
		}
		expect("closed", 0)
		time.Sleep(time.Second)
		expect("at the first probe", 1)
		p, _ := g.begin(Get)
		time.Sleep(time.Hour / 2)
		expect("while the probe is out", 1)
		g.settle(Get, p, fail(Unreachable))
		expect("after a failed probe", 1)
		time.Sleep(2 * time.Second)
		expect("at the second probe", 2)
		g.cancel(Get)
		expect("after the probe was given back", 3)
		p, _ = g.begin(Get)
		g.settle(Get, p, verdict{about: nothing})
		expect("after the probe's context ended", 4)
		p, _ = g.begin(Get)
		g.settle(Get, p, verdict{about: contact})
		expect("after a success", 5)
		if !g.get(Get).Open {
			t.Error("the gate is not open")
		}
	})
}

func TestWaitsBetweenProbes(t *testing.T) {
	t.Parallel()
	seconds := func(list ...float64) []time.Duration {
		var waits []time.Duration
		for _, s := range list {
			waits = append(waits, time.Duration(s*float64(time.Second)))
		}
		return waits
	}
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	named := func(wait time.Duration) verdict {
		return verdict{about: trouble, err: &Error{Kind: Limited, RetryAt: now.Add(wait)}}
	}
	tests := map[string]struct {
		verdict verdict
		jitter  float64
		want    []time.Duration
	}{
		"doubling":                          {fail(Unreachable), 0, seconds(1, 2, 4, 8, 16, 24, 24)},
		"jitter adds, within the bound":     {fail(Server), 1, seconds(1.25, 2.5, 5, 10, 20, 30, 30)},
		"a certificate is a person's":       {fail(BadTLS), 0, seconds(24, 24)},
		"so is a secret":                    {fail(Auth), 1, seconds(30, 30)},
		"429 without a time":                {fail(Limited), 0, seconds(1, 2, 4)},
		"429 with a time":                   {named(42 * time.Second), 0, seconds(42, 42)},
		"jitter on top of a time":           {named(42 * time.Second), 1, seconds(43)},
		"a time in the past":                {named(-time.Hour), 0, seconds(1, 2)},
		"a time in the year 2100":           {named(75 * 365 * 24 * time.Hour), 0, seconds(3600)},
		"a download's headers that linger":  {verdict{about: silence}, 0, seconds(0)},
		"an answer that is not as promised": {verdict{about: contact}, 0, seconds(0)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := now
			g := testGates(test.jitter, func() time.Time { return clock })
			for i, want := range test.want {
				p, _ := g.begin(Get)
				if test.verdict.err != nil && i > 0 && !test.verdict.err.RetryAt.IsZero() {
					again := *test.verdict.err
					again.RetryAt = again.RetryAt.Add(clock.Sub(now))
					g.settle(Get, p, verdict{about: trouble, err: &again})
				} else {
					g.settle(Get, p, test.verdict)
				}
				var got time.Duration
				if s := g.get(Get); !s.Open {
					got = s.ProbeAt.Sub(clock)
				}
				if got != want {
					t.Fatalf("wait %d: got %v, want %v", i, got, want)
				}
				clock = clock.Add(got)
			}
		})
	}
}

func TestSuccessElsewhereHasAGateProbedAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	noToken := verdict{about: trouble, err: &Error{Kind: Server, Token: true}}
	rejected := verdict{about: trouble, err: &Error{Kind: Auth, Status: 401}}
	forbidden := verdict{about: trouble, err: &Error{Kind: Auth, Status: 403}}
	tests := map[string]struct {
		closed  verdict
		success Class
		want    bool
	}{
		"unreachable":                    {fail(Unreachable), Get, true},
		"a certificate":                  {fail(BadTLS), Get, true},
		"no token":                       {noToken, Get, true},
		"no token, and a token was got":  {noToken, Token, true},
		"a rejected token":               {rejected, Get, true},
		"forbidden":                      {forbidden, Get, false},
		"server trouble of its own":      {fail(Server), Get, false},
		"a pause of its own":             {fail(Limited), Get, false},
		"a token proves no service well": {fail(Unreachable), Token, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := now
			g := testGates(0, func() time.Time { return clock })
			succeed := func() {
				p, _ := g.begin(test.success)
				g.settle(test.success, p, verdict{about: contact})
			}
			p, _ := g.begin(Download)
			g.settle(Download, p, test.closed)
			before := g.get(Download).ProbeAt
			succeed()
			if s := g.get(Download); s.Open || s.ProbeAt.Before(before) != test.want {
				t.Fatalf("open %v, probe at %v after %v", s.Open, s.ProbeAt, before)
			}
			// A busy class does not drive the probes of one that stays closed.
			p, _ = g.begin(Download)
			g.settle(Download, p, test.closed)
			before = g.get(Download).ProbeAt
			succeed()
			if got := g.get(Download).ProbeAt; !got.Equal(before) {
				t.Errorf("hurried twice in one spell: %v, before %v", got, before)
			}
		})
	}
}

func TestResultsThatAreOlderThanTheGatesStateChangeNothing(t *testing.T) {
	t.Parallel()
	clock := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	g := testGates(0, func() time.Time { return clock })
	old, second, third := pass(t, g, Get), pass(t, g, Get), pass(t, g, Get)
	g.settle(Get, second, fail(Unreachable))
	g.settle(Get, third, fail(Unreachable))
	if wait := g.get(Get).ProbeAt.Sub(clock); wait != time.Second {
		t.Errorf("two failures of one moment doubled the wait: %v", wait)
	}
	clock = clock.Add(time.Second)
	g.settle(Get, pass(t, g, Get), verdict{about: contact})
	g.settle(Get, old, fail(Unreachable))
	if !g.get(Get).Open {
		t.Error("a failure from before the opening closed the gate")
	}
}

func TestASuccessThatWasOnItsWayEndsNoPause(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		err  Error
		open bool
	}{
		"429 with a time":         {Error{Kind: Limited, RetryAt: now.Add(time.Minute)}, false},
		"429 without":             {Error{Kind: Limited}, false},
		"Retry-After with a 503":  {Error{Kind: Server, RetryAt: now.Add(time.Minute)}, false},
		"trouble that time mends": {Error{Kind: Server}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := now
			g := testGates(0, func() time.Time { return clock })
			early, late := pass(t, g, Get), pass(t, g, Get)
			g.settle(Get, early, verdict{about: trouble, err: &test.err})
			g.settle(Get, late, verdict{about: contact})
			if g.get(Get).Open != test.open {
				t.Errorf("open: %v", !test.open)
			}
			clock = clock.Add(time.Hour)
			g.settle(Get, pass(t, g, Get), verdict{about: contact})
			if !g.get(Get).Open {
				t.Error("the probe's success did not open the gate")
			}
		})
	}
}

func TestAClockThatIsSetBackStrandsNobody(t *testing.T) {
	t.Parallel()
	clock := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	g := testGates(0, func() time.Time { return clock })
	g.settle(Get, pass(t, g, Get), fail(Unreachable))
	clock = clock.AddDate(-10, 0, 0)
	if wait, _ := g.try(Get); wait != time.Second {
		t.Errorf("got a wait of %v", wait)
	}
	clock = clock.Add(time.Second)
	pass(t, g, Get)
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := testGates(0, time.Now)
		g.settle(Get, pass(t, g, Get), verdict{about: trouble, err: &Error{Kind: Limited, RetryAt: time.Now().Add(time.Hour)}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.acquire(ctx, Get) }()
		synctest.Wait()
		began := time.Now()
		cancel()
		if err := <-done; err != context.Canceled || time.Since(began) != 0 {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

func TestChangesAreTold(t *testing.T) {
	t.Parallel()
	g := testGates(0, time.Now)
	g.settle(Get, pass(t, g, Get), fail(Server))
	select {
	case <-g.changed:
	default:
		t.Fatal("a closing was not told")
	}
	p, _ := g.begin(Get)
	g.settle(Get, p, verdict{about: contact})
	select {
	case <-g.changed:
	default:
		t.Fatal("an opening was not told")
	}
}
