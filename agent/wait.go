package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"recibo/rest"
	"recibo/store"
)

// How those who asked for something wait for it.

// serviceTrouble is how long a person who waits is left waiting for a service that does not answer.
const serviceTrouble = 20 * time.Second

// ErrUnreachable tells that what is needed can't be reached now. What was asked for stays due.
var ErrUnreachable = errors.New("can't be reached")

// Wait returns once every receipt has been handled at its generation, calling each with every receipt as it is; with
// ended, only once each has ended. It gives up with ErrUnreachable when the gate that all wait at stays closed.
func (a *Agent) Wait(ctx context.Context, asked map[store.Key]uint64, ended bool, each func(*store.Receipt) error) error {
	changes := a.settles.listen()
	defer changes.close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	open := maps.Clone(asked)
	look := slices.Collect(maps.Keys(open))
	for {
		for _, k := range look {
			generation, waited := open[k]
			if !waited {
				continue
			}
			r, err := a.Ledger.Get(ctx, k)
			if err != nil {
				return err
			}
			if done(r, generation, ended, a.Now()) {
				delete(open, k)
				if err := each(r); err != nil {
					return err
				}
			}
		}
		if len(open) == 0 {
			return nil
		}
		if !ended {
			if err := a.allHeld(ctx, open); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changes.raised:
		case <-tick.C:
		}
		look = changes.take()
	}
}

// A person who waits for one report is told that it fails after this many attempts, or when the next one is far off. It
// stays due.
const (
	failedAttempts = 3
	farOff         = 20 * time.Second
)

func done(r *store.Receipt, generation uint64, ended bool, now time.Time) bool {
	switch {
	case r.Handled < generation:
		return false
	case ended:
		return r.State != store.Pending && r.State != store.Expected
	case r.State == store.Pending:
		return r.Attempts >= failedAttempts || r.Due.Sub(now) > farOff
	}
	return r.Intent == nil
}

// need is which service something waits for.
type need struct {
	kind   store.Kind
	source int // of a job: the number of its Fetcher, -1 while that is not known
	what   service
}

// service is what a job may need of its Fetcher.
type service int

const (
	either   service = iota
	asking           // its REST API
	bringing         // its object store, and the folder of its results
)

// closedFor returns an error when what is needed has been away for at least d.
func (a *Agent) closedFor(n need, d time.Duration) (err error) {
	switch {
	case !a.works(n.kind):
		return nil
	case n.kind == store.Report:
		return a.shut("reporter", a.Reporter.Gates(), a.outlets, d)
	case n.source >= 0:
		return a.closedForJob(n, d)
	}
	for i := range a.fetching { // any of them may know it
		n.source = i
		if err = a.closedForJob(n, d); err == nil {
			return nil
		}
	}
	return err
}

func (a *Agent) closedForJob(n need, d time.Duration) error {
	if n.what != bringing {
		if err := a.shut("fetcher", a.Fetcher.JobGates(n.source), nil, d); err != nil || n.what == asking {
			return err
		}
	}
	var into []*outlet
	if o := a.fetching[n.source].outlet; o != nil {
		into = append(into, o)
	}
	return a.shut("fetcher's object store", []rest.GateStatus{a.Fetcher.StoreGate(n.source)}, into, d)
}

// shut returns an error for the first gate, or first of the outlets, that has been shut for at least d.
func (a *Agent) shut(name string, gates []rest.GateStatus, outlets []*outlet, d time.Duration) error {
	now := a.Now()
	for _, g := range gates {
		// Limited is no trouble: it is the service's way of setting the pace.
		if !g.Open && g.Kind != rest.Limited && now.Sub(g.Since) >= d {
			return fmt.Errorf("%s %w: %s", name, ErrUnreachable, g.Reason)
		}
	}
	for _, o := range outlets[:min(1, len(outlets))] {
		if reason, since := o.trouble.state(); reason != "" && now.Sub(since) >= d {
			return fmt.Errorf("the folder %s %w: %s", o.folder.Dir(), ErrUnreachable, reason)
		}
	}
	return nil
}

// allHeld returns an error when everything that is waited for has been held for long.
func (a *Agent) allHeld(ctx context.Context, open map[store.Key]uint64) (held error) {
	for k := range open {
		n, moving, err := a.needOf(ctx, k)
		if err != nil || moving {
			return err
		}
		if held = a.closedFor(n, serviceTrouble); held == nil {
			return nil
		}
	}
	return held
}

// needOf tells what a receipt waits for; moving, that it is being worked on.
func (a *Agent) needOf(ctx context.Context, k store.Key) (n need, moving bool, err error) {
	a.mu.Lock()
	t := a.active[k]
	a.mu.Unlock()
	if t != nil {
		waits := t.waitsFor.Load()
		if waits == nil {
			return n, true, nil
		}
		return *waits, false, nil
	}
	r, err := a.Ledger.Get(ctx, k)
	if err != nil {
		return n, false, err
	}
	return a.needBy(r), false, nil
}

// needBy is what a receipt will need that is not in work.
func (a *Agent) needBy(r *store.Receipt) need {
	n := need{kind: r.Kind}
	if r.Kind == store.Job {
		n.source = a.sourceOf(r)
	}
	return n
}

// Held says what holds all work that there is now: ErrUnreachable with the reason, nil for nothing.
func (a *Agent) Held(ctx context.Context) error {
	_, err := a.busy(ctx, a.Now().Add(store.MaxWait), 0)
	if errors.Is(err, ErrUnreachable) {
		return err
	}
	return nil
}

// WaitIdle returns once nothing is in work, nothing is due, and no pending receipt will be due before the deadline. It
// gives up with ErrUnreachable once all that there is to do waits at gates that stay closed.
func (a *Agent) WaitIdle(ctx context.Context, deadline time.Time) error {
	changes := a.settles.listen()
	defer changes.close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		changes.take()
		busy, err := a.busy(ctx, deadline, serviceTrouble)
		if err != nil || !busy {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changes.raised:
		case <-tick.C:
		}
	}
}

// busy reports whether something is in work, due, or pending and due before the deadline. ErrUnreachable tells that all of
// it has been held for at least d.
func (a *Agent) busy(ctx context.Context, deadline time.Time, d time.Duration) (busy bool, held error) {
	needs, moving, err := a.needs(ctx, deadline)
	if err != nil || moving {
		return true, err
	}
	for n := range needs {
		if held = a.closedFor(n, d); held == nil {
			return true, nil
		}
	}
	return len(needs) > 0, held
}

// needs lists what all that there is to do waits for. It ends early where something is moving.
func (a *Agent) needs(ctx context.Context, deadline time.Time) (needs map[need]bool, moving bool, err error) {
	needs = map[need]bool{}
	if a.inWork(needs) {
		return needs, true, nil
	}
	passOver := func(k store.Key) bool { return a.isActive(k) || !a.works(k.Kind) }
	look, err := a.Ledger.Due(ctx, a.Now(), store.Mark{}, scanPage, passOver)
	if err != nil {
		return needs, false, err
	}
	for _, due := range look.Due {
		n, moving, err := a.needOf(ctx, due.Key)
		if err != nil || moving {
			return needs, moving, err
		}
		needs[n] = true
	}
	for r, err := range a.Ledger.All(ctx, store.Query{States: []store.State{store.Pending}}) {
		if err != nil {
			return needs, false, err
		}
		if a.works(r.Kind) && !r.Due.IsZero() && r.Due.Before(deadline) && !a.isActive(r.Key()) {
			needs[a.needBy(r)] = true
		}
	}
	return needs, a.inWork(needs), nil // what was taken into work meanwhile is no longer due
}

// inWork adds what those in work wait for, and reports whether one is being worked on.
func (a *Agent) inWork(needs map[need]bool) (moving bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.active {
		n := t.waitsFor.Load()
		if n == nil {
			return true
		}
		needs[*n] = true
	}
	return false
}
