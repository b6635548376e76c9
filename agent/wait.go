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
		if err := a.held(kindsOf(open), serviceTrouble); err != nil && !ended {
			return err
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

// kinds tells of which kinds something is.
type kinds map[store.Kind]bool

func kindsOf(open map[store.Key]uint64) kinds {
	k := kinds{}
	for key := range open {
		k[key.Kind] = true
	}
	return k
}

// held returns an error when work on all of these kinds has been held for at least d.
func (a *Agent) held(k kinds, d time.Duration) (err error) {
	for kind := range k {
		if err = a.closedFor(kind, d); err == nil {
			return nil
		}
	}
	return err
}

// closedFor returns an error when work on a kind has been held for at least d by whoever it depends on or by a folder.
func (a *Agent) closedFor(kind store.Kind, d time.Duration) error {
	now := a.Now()
	for _, g := range a.gates(kind) {
		// Limited is no trouble: it is the service's way of setting the pace.
		if !g.Open && g.Kind != rest.Limited && now.Sub(g.Since) >= d {
			service := "reporter"
			if kind == store.Job {
				service = "fetcher"
			}
			return fmt.Errorf("%s %w: %s", service, ErrUnreachable, g.Reason)
		}
	}
	for i, o := range a.outlets {
		if i > 0 && kind == store.Report {
			break // those are of jobs
		}
		if reason, since := o.trouble.state(); reason != "" && now.Sub(since) >= d {
			return fmt.Errorf("the folder %s %w: %s", o.folder.Dir(), ErrUnreachable, reason)
		}
	}
	return nil
}

// Held says what holds all work that there is now: ErrUnreachable with the reason, nil for nothing.
func (a *Agent) Held(ctx context.Context) error {
	k, err := a.busy(ctx, a.Now().Add(store.MaxWait))
	if err != nil {
		return err
	}
	return a.held(k, 0)
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
		k, err := a.busy(ctx, deadline)
		if err != nil || len(k) == 0 {
			return err
		}
		if err := a.held(k, serviceTrouble); err != nil {
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

// busy tells of which kinds something is in work, due, or pending and due before the deadline.
func (a *Agent) busy(ctx context.Context, deadline time.Time) (kinds, error) {
	k := a.inWork()
	for _, kind := range [...]store.Kind{store.Report, store.Job} {
		if !a.works(kind) || k[kind] {
			continue
		}
		other := func(key store.Key) bool { return key.Kind != kind }
		look, err := a.Ledger.Due(ctx, a.Now(), store.Mark{}, 1, other)
		if err != nil {
			return nil, err
		}
		k[kind] = len(look.Due) > 0
		for r, err := range a.Ledger.All(ctx, store.Query{States: []store.State{store.Pending}, Kind: kind}) {
			if err != nil {
				return nil, err
			}
			if !r.Due.IsZero() && r.Due.Before(deadline) {
				k[kind] = true
			}
			if k[kind] {
				break
			}
		}
	}
	maps.Copy(k, a.inWork()) // what was taken into work meanwhile is no longer due
	maps.DeleteFunc(k, func(_ store.Kind, busy bool) bool { return !busy })
	return k, nil
}

func (a *Agent) inWork() kinds {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := kinds{}
	for key := range a.active {
		k[key.Kind] = true
		if len(k) == 2 {
			break
		}
	}
	return k
}
