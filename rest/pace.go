package rest

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// pacing is what one answer says about the service's limit of its class.
type pacing struct {
	known     bool
	limit     int // requests a window, 0 unknown
	remaining int
	reset     time.Duration // until the next window
}

// readPacing reads X-RateLimit-Limit, -Remaining and -Reset (seconds). Some gateways give a point in time for -Reset.
func readPacing(header http.Header, now time.Time) pacing {
	remaining, ok := leadingInt(header.Get("X-RateLimit-Remaining"))
	if !ok {
		return pacing{}
	}
	reset, ok := leadingInt(header.Get("X-RateLimit-Reset"))
	if !ok {
		return pacing{}
	}
	const sinceEpoch = 1_000_000_000 // no window lasts 30 years
	if reset >= sinceEpoch {
		reset = max(reset-int(serverTime(header, now).Unix()), 0)
	}
	limit, _ := leadingInt(header.Get("X-RateLimit-Limit"))
	return pacing{true, limit, remaining, min(time.Duration(min(reset, sinceEpoch))*time.Second, longestPause)}
}

func leadingInt(value string) (int, bool) {
	value = strings.TrimSpace(value)
	end := strings.IndexFunc(value, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		value = value[:end]
	}
	n, err := strconv.Atoi(value)
	return n, err == nil
}

// pacer hands out the slots of one class. It knows nothing until the service speaks of a limit, and holds requests back
// only while the service said that none is left; too many in a new window end in a 429, which closes the gate.
type pacer struct {
	known   bool
	limit   int
	low     int       // fewest remaining that this window's answers spoke of: they may overtake each other
	left    int       // slots still to be handed out in this window
	anchor  time.Time // the window's end as its first answer had it
	resetAt time.Time // the window's end; zero: a new one that no answer has described yet
	wait    time.Duration
	extra   time.Duration // jitter, which only adds
}

// sameWindow is how far two answers' ends of one window differ, given in whole seconds and read at different times.
const sameWindow = 2 * time.Second

// delay returns how long to wait for a slot, 0 when there is one.
func (p *pacer) delay(now time.Time) time.Duration {
	if !p.known || p.resetAt.IsZero() {
		return 0
	}
	wait := p.resetAt.Add(p.extra).Sub(now)
	if wait <= 0 {
		p.renew()
		return 0
	}
	if wait > p.wait+p.extra { // the clock was set back: the wait that was asked for still is the bound
		p.resetAt = now.Add(p.wait)
		wait = p.wait + p.extra
	}
	if p.left > 0 {
		return 0
	}
	return wait
}

// renew begins a window that no answer has described yet.
func (p *pacer) renew() {
	*p = pacer{known: p.limit > 0, limit: p.limit, low: p.limit, left: p.limit}
}

func (p *pacer) take() {
	if p.left > 0 {
		p.left--
	}
}

func (p *pacer) giveBack() {
	if p.known && p.left < p.low {
		p.left++
	}
}

// learn takes in an answer. outstanding is the number of other slots handed out and not yet answered: whether the
// service has counted them is not known, so they are counted here, and the last one's answer sets the number right.
func (p *pacer) learn(said pacing, now time.Time, jitter float64, outstanding int) {
	if !said.known {
		return
	}
	end := now.Add(said.reset)
	running := p.known && !p.resetAt.IsZero()
	switch {
	case running && end.Before(p.anchor.Add(-sameWindow)):
		return // an answer of an earlier window that was overtaken
	case running && !end.After(p.anchor.Add(sameWindow)):
		p.low = min(p.low, said.remaining)
	default:
		p.low, p.anchor = said.remaining, end
		p.extra = added(said.reset, jitter)
	}
	p.known, p.limit = true, said.limit
	p.resetAt, p.wait = end, said.reset
	p.left = max(p.low-outstanding, 0)
}

// added is the jitter on top of a wait that the service named: up to a tenth of it and up to a second.
func added(wait time.Duration, jitter float64) time.Duration {
	return time.Duration(jitter * float64(min(wait/10, time.Second)))
}
