package rest

import (
	"errors"
	"net/http"
	"slices"
	"time"
)

// judge reads what the end of a request says about the service. Anything that is an answer about the request itself is
// contact, whatever else is wrong with it; so is a status that the request tolerates.
func judge(resp *Response, err error, tolerate []int) verdict {
	if err == nil {
		return verdict{about: contact, pace: resp.pace}
	}
	var e *Error
	if !errors.As(err, &e) {
		return verdict{about: nothing}
	}
	v := verdict{err: e, pace: e.pace}
	switch {
	case e.Status != 0 && !e.Token && slices.Contains(tolerate, e.Status):
		v.about = contact
	case e.Service():
		v.about = trouble
	case e.Kind == TooSlow:
		v.about = silence
	default:
		v.about = contact
	}
	return v
}

// opened opens a gate after contact, and has other gates that are closed for a reason which this contact disproves
// probed at once: at every opening, and otherwise once in a closed spell, so that a busy class does not drive the
// probes of one that stays closed.
func (g *gates) opened(t *gate, now time.Time) {
	opening := !t.open
	if opening {
		g.log.Info("gate open", "class", string(t.class), "closed_for", now.Sub(t.since).Round(time.Millisecond).String())
		t.open, t.since, t.probe, t.step, t.token = true, now, atHome, 0, false
		t.epoch++
		g.tell()
	}
	for _, other := range g.all {
		if other == t || other.open || !other.disproved(t.class) || (other.hurried && !opening) {
			continue
		}
		other.hurried = true
		if other.probeAt.After(now) {
			other.probeAt = now
		}
		other.notify()
	}
}

// paused reports whether the service has asked to be left alone until later: a request that was on its way then and
// succeeds does not end the pause for the others.
func (t *gate) paused(now time.Time) bool {
	return (t.named || t.kind == Limited) && now.Before(t.probeAt)
}

// disproved reports whether contact in class by leaves no ground for the gate's being closed. A token says nothing
// about the service itself, which may be another host.
func (t *gate) disproved(by Class) bool {
	return t.token || (by != Token && (t.kind == Unreachable || t.kind == BadTLS))
}

// failed takes in the service's trouble.
func (g *gates) failed(t *gate, p permit, e *Error, now time.Time) {
	probed := p.probe && p.epoch == t.epoch
	switch {
	case t.open && p.epoch != t.epoch && e.Kind != Limited:
		return // older than the last opening, which disproves it
	case !t.open && !probed:
		// One of several that were on their way when the gate closed: the first has set the back-off.
		if e.Kind == Limited && e.RetryAt.After(t.probeAt) {
			g.shut(t, e, now)
		}
		return
	}
	if t.open {
		t.open, t.since, t.probe, t.hurried, t.step = false, now, atHome, false, 0
		t.epoch++
	}
	g.shut(t, e, now)
	g.log.Warn("gate closed", "class", string(t.class), "kind", e.Kind.String(), "reason", t.reason, "probe_in", t.wait.String())
	g.tell()
}

// shut notes why a gate is closed and when to probe. A time that the service named is kept to, up to an hour a wait.
func (g *gates) shut(t *gate, e *Error, now time.Time) {
	t.kind, t.reason = e.Kind, e.Error()
	t.token = e.Token || (e.Kind == Auth && e.Status == http.StatusUnauthorized)
	t.named = e.RetryAt.After(now)
	if t.named {
		wait := min(e.RetryAt.Sub(now), longestPause)
		t.wait = wait + added(wait, g.jitter())
	} else {
		t.wait = g.backoff(t, e.Kind)
	}
	if e.Kind == Limited {
		t.pacer.renew() // the pause takes the place of what earlier answers said about the window
	}
	t.probeAt = now.Add(t.wait)
}

// backoff returns the next wait: doubling from ProbeBase up to ProbeCap, with jitter that only adds and stays within
// ProbeCap. What a person must mend (a certificate, a secret) is asked about at the longest interval from the start.
func (g *gates) backoff(t *gate, kind Kind) time.Duration {
	longest := g.longest - g.longest/5
	switch {
	case kind == BadTLS || kind == Auth:
		t.step = longest
	case t.step == 0:
		t.step = min(g.first, longest)
	default:
		t.step = min(2*t.step, longest)
	}
	return t.step + time.Duration(g.jitter()*float64(t.step/4))
}

// tell announces a change to whoever reads Changed.
func (g *gates) tell() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}
