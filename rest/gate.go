package rest

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// gates holds the gate and the pacer of each class of one service. A gate closes on the service's trouble and lets one
// probe at a time through, so that an outage costs neither the service nor anybody's budget anything.
type gates struct {
	now     func() time.Time
	jitter  func() float64
	first   time.Duration // Options.ProbeBase
	longest time.Duration // Options.ProbeCap
	log     *slog.Logger
	changed chan struct{}
	classes []Class // in the order of status

	mu  sync.Mutex
	all map[Class]*gate
}

type gate struct {
	class   Class
	open    bool
	epoch   int // rises at every opening and closing
	since   time.Time
	kind    Kind
	reason  string
	token   bool          // closed for want of a token that is accepted
	probeAt time.Time     // when the next probe may pass
	wait    time.Duration // what probeAt was when set; the bound when the clock is set back
	step    time.Duration // the last back-off without jitter
	named   bool          // probeAt is a time that the service named
	hurried bool          // a success elsewhere has called for a probe since the closing
	probe   probe

	pacer   pacer
	owed    int           // acquired, neither begun nor cancelled
	running int           // begun, not settled
	wake    chan struct{} // closed and replaced at every change that a waiter may wait for
}

// probe is where the one probe of a closed gate is.
type probe int

const (
	atHome  probe = iota
	granted       // its Acquire returned
	under         // its Do is running
)

// permit is what a Do in progress started from.
type permit struct {
	probe bool
	epoch int
}

func newGates(o Options, classes ...Class) *gates {
	g := &gates{
		now: o.Now, jitter: o.Jitter, first: o.ProbeBase, longest: o.ProbeCap, log: o.Log,
		changed: make(chan struct{}, 1), classes: classes, all: map[Class]*gate{},
	}
	for _, class := range classes {
		g.of(class)
	}
	return g
}

// of returns the gate of a class; new ones are open.
func (g *gates) of(class Class) *gate {
	t := g.all[class]
	if t == nil {
		t = &gate{class: class, open: true, since: g.now(), wake: make(chan struct{})}
		g.all[class] = t
	}
	return t
}

func (g *gates) acquire(ctx context.Context, class Class) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		wait, wake := g.try(class)
		if wait <= 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// try takes a permit, or returns how long to wait at most and a channel that is closed when trying again is worth it.
func (g *gates) try(class Class) (time.Duration, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, now := g.of(class), g.now()
	wait := max(t.delay(now), t.pacer.delay(now))
	if wait > 0 {
		return wait, t.wake
	}
	if !t.open {
		t.probe = granted
	}
	t.pacer.take()
	t.owed++
	return 0, nil
}

// delay returns how long to wait for the gate, 0 when it is open or a probe may pass.
func (t *gate) delay(now time.Time) time.Duration {
	if t.open {
		return 0
	}
	if t.probe != atHome {
		return longestPause // its end wakes the waiters
	}
	wait := t.probeAt.Sub(now)
	if wait > t.wait { // the clock was set back
		t.probeAt, wait = now.Add(t.wait), t.wait
	}
	return max(wait, 0)
}

// cancel gives a permit back. Permits are alike: while a probe is granted, whichever comes back first is taken for it.
func (g *gates) cancel(class Class) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.of(class)
	if t.owed == 0 {
		return
	}
	t.owed--
	t.pacer.giveBack()
	if t.probe == granted {
		t.probe = atHome
	}
	t.notify()
}

// begin turns a permit into a running request. Without one, as for a token, the request runs all the same, but not into
// a pause that the service asked for: then the end of the pause is returned and nothing may be sent.
func (g *gates) begin(class Class) (permit, time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.of(class)
	t.owed = max(t.owed-1, 0)
	if !t.open {
		wait := t.delay(g.now())
		switch {
		case t.probe == granted || wait == 0:
			t.probe = under
			t.running++
			return permit{true, t.epoch}, time.Time{}
		case t.kind == Limited && t.probe == atHome:
			t.pacer.giveBack()
			t.notify()
			return permit{}, t.probeAt
		}
	}
	t.running++
	return permit{false, t.epoch}, time.Time{}
}

// verdict is what a finished request says about the service.
type verdict struct {
	about about
	err   *Error
	pace  pacing
}

type about int

const (
	nothing about = iota // its context ended, or it was never sent
	contact              // the service answered as one that works
	trouble              // the service's trouble
	silence              // no contact, and nothing that holds for other requests
)

// settle ends a running request.
func (g *gates) settle(class Class, p permit, v verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(class, p, v)
}

func (g *gates) end(class Class, p permit, v verdict) {
	t, now := g.of(class), g.now()
	t.running--
	back := p.probe && p.epoch == t.epoch
	if back {
		t.probe = atHome
	}
	switch v.about {
	case contact:
		if t.open || back || !t.paused(now) {
			g.opened(t, now)
		}
		t.pacer.learn(v.pace, now, g.jitter(), t.owed+t.running)
	case trouble:
		g.failed(t, p, v.err, now)
	case silence:
		if back {
			t.wait = g.backoff(t, t.kind)
			t.probeAt = now.Add(t.wait)
		}
	case nothing:
		t.pacer.giveBack()
	}
	t.notify()
}

// answered settles a request with contact and has it go on running, with the permit that is returned.
func (g *gates) answered(class Class, p permit) permit {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(class, p, verdict{about: contact})
	t := g.of(class)
	t.running++
	return permit{epoch: t.epoch}
}

// notify wakes everyone who waits at the gate.
func (t *gate) notify() {
	close(t.wake)
	t.wake = make(chan struct{})
}

func (g *gates) status() []GateStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]GateStatus, 0, len(g.all))
	for _, class := range g.classes {
		t := g.all[class]
		s := GateStatus{Class: class, Open: t.open, Since: t.since}
		if !t.open {
			s.Reason, s.Kind, s.ProbeAt = t.reason, t.kind, t.probeAt
		}
		list = append(list, s)
	}
	return list
}
