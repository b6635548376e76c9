package rest

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

func TestPacingHeadersAreRead(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_777_000_000, 0)
	header := func(limit, remaining, reset string) http.Header {
		h := http.Header{}
		for name, value := range map[string]string{"Limit": limit, "Remaining": remaining, "Reset": reset} {
			if value != "" {
				h.Set("X-RateLimit-"+name, value)
			}
		}
		return h
	}
	tests := map[string]struct {
		header http.Header
		want   pacing
	}{
		"as documented":     {header("10", "3", "42"), pacing{true, 10, 3, 42 * time.Second}},
		"with a window":     {header("10, 10;w=60", "3", "42"), pacing{true, 10, 3, 42 * time.Second}},
		"a point in time":   {header("10", "0", "1777000030"), pacing{true, 10, 0, 30 * time.Second}},
		"in the past":       {header("10", "0", "1776999999"), pacing{true, 10, 0, 0}},
		"for days":          {header("10", "0", "999999"), pacing{true, 10, 0, time.Hour}},
		"no limit":          {header("", "1", "5"), pacing{true, 0, 1, 5 * time.Second}},
		"no reset":          {header("10", "3", ""), pacing{}},
		"none":              {header("", "", ""), pacing{}},
		"not to be read":    {header("10", "many", "5"), pacing{}},
		"beyond an integer": {header("10", "0", "99999999999999999999999"), pacing{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := readPacing(test.header, now); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// says is a success that speaks of the limit.
func says(limit, remaining int, reset time.Duration) verdict {
	return verdict{about: contact, pace: pacing{true, limit, remaining, reset}}
}

func TestAClassWaitsForTheNextWindowWhenNothingRemains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := testGates(0, time.Now)
		g.settle(Download, pass(t, g, Download), says(10, 0, 40*time.Second))
		began := time.Now()
		pass(t, g, Get)
		if time.Since(began) != 0 {
			t.Error("the other class waited too")
		}
		p := pass(t, g, Download)
		if waited := time.Since(began); waited != 40*time.Second {
			t.Errorf("waited %v", waited)
		}
		// In the new window there are as many slots as the limit allows, before any answer has come.
		g.settle(Download, p, verdict{about: contact})
		for range 9 {
			g.settle(Download, pass(t, g, Download), verdict{about: contact})
		}
		if waited := time.Since(began); waited != 40*time.Second {
			t.Errorf("waited %v within the new window", waited)
		}
	})
}

func TestSlotsCountRequestsThatAreNotAnsweredYet(t *testing.T) {
	t.Parallel()
	clock := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	g := testGates(0, func() time.Time { return clock })
	wait := func() time.Duration {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.of(Get).pacer.delay(clock)
	}
	first, second, third := pass(t, g, Get), pass(t, g, Get), pass(t, g, Get)
	g.settle(Get, first, says(10, 2, time.Minute)) // two others are on their way: they may be the last two
	if wait() != time.Minute {
		t.Error("the slots of requests on their way were handed out again")
	}
	g.settle(Get, second, says(10, 2, time.Minute))
	g.settle(Get, third, says(10, 1, time.Minute))
	if wait() != 0 {
		t.Error("the last answer did not set the number right")
	}
	if err := g.acquire(t.Context(), Get); err != nil {
		t.Fatal(err)
	}
	if wait() != time.Minute {
		t.Error("the last slot was handed out twice")
	}
	g.cancel(Get)
	if wait() != 0 {
		t.Error("a slot given back is lost")
	}
	g.settle(Get, pass(t, g, Get), says(10, 0, time.Minute))
	p, _ := g.begin(Get)
	g.settle(Get, p, says(10, 5, time.Minute)) // overtaken by the one that said 0
	if wait() != time.Minute {
		t.Error("an answer that was overtaken counts")
	}
	clock = clock.AddDate(-1, 0, 0)
	if wait() > time.Minute {
		t.Error("a clock that was set back strands the class")
	}
	clock = clock.Add(time.Minute)
	if wait() != 0 {
		t.Error("the window never ends")
	}
}
