package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"recibo/hub"
	"recibo/reporter"
	"recibo/sandbox"
	"recibo/store"
)

// What holds all work is told, and what holds one kind only is not.
func TestWaitingEndsWhenAllThatThereIsToDoIsHeld(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spoil func(*house)
		name  string // of what is away
		fine  store.Kind
	}{
		"Reporter is away":         {func(h *house) { h.reporter.Down(sandbox.Refuse) }, "reporter", store.Job},
		"the object store is away": {func(h *house) { h.fetchers[0].Objects.Down(true) }, "fetcher", store.Report},
		"Fetcher is away":          {func(h *house) { h.fetchers[0].Down(true) }, "fetcher", store.Report},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goOn := make(chan struct{})
			wait := func(ctx context.Context) {
				select {
				case <-goOn:
				case <-ctx.Done():
				}
			}
			h := newHouse(t, jobs(counted(&results{before: func(ctx context.Context, _ string) {
				if test.fine == store.Job {
					wait(ctx)
				}
			}})))
			if test.fine == store.Report {
				h.Agent.Reporter = waiting{h.Agent.Reporter, wait}
			}
			h.Now = func() time.Time { return time.Now().Add(time.Minute) } // a gate that closes has been closed for long
			test.spoil(h)
			job, report := h.ended(0, sandbox.Job{}), h.reporter.Add(sandbox.Report{})
			fine, away := keyOf(report.ID), jobKey(job.ID)
			if test.fine == store.Job {
				fine, away = away, fine
			}
			h.work()
			events := []hub.Delivery{h.message(0, job.ID, sandbox.Emission{})}
			if name == "Fetcher is away" {
				events = append(events, h.message(0, job.ID, sandbox.Emission{Status: sandbox.JobFailed})) // it has to be asked about
			}
			h.announced(events...)
			h.event("e-1", hub.ReportFinished, report.ID)
			h.eventually("one kind is held, and the other at work", func() bool {
				return h.closedFor(need{kind: away.Kind}, 0) != nil && h.isActive(fine)
			}, func() string { return fmt.Sprint(h.closedFor(need{kind: away.Kind}, 0)) })
			if err := h.Held(t.Context()); err != nil {
				t.Errorf("held, though one kind is at work: %v", err)
			}
			idle := make(chan error, 1)
			go func() { idle <- h.WaitIdle(t.Context(), h.Now()) }()
			both := make(chan error, 1)
			var seen []store.Key
			go func() {
				asked := map[store.Key]uint64{fine: 1, away: h.receiptOf(away).Generation}
				both <- h.Wait(t.Context(), asked, false, func(r *store.Receipt) error {
					seen = append(seen, r.Key())
					return nil
				})
			}()
			one := make(chan error, 1)
			go func() {
				one <- h.Wait(t.Context(), map[store.Key]uint64{fine: 1}, false, func(*store.Receipt) error { return nil })
			}()
			close(goOn)
			for what, err := range map[string]error{"WaitIdle": <-idle, "Wait": <-both} {
				if !isUnreachable(err, test.name) {
					t.Errorf("%s ended with %v", what, err)
				}
			}
			if err := <-one; err != nil {
				t.Errorf("waiting for what is well ended with %v", err)
			}
			if len(seen) != 1 || seen[0] != fine {
				t.Errorf("told of %v, want %v", seen, fine)
			}
			if r := h.receiptOf(fine); r.State != store.Delivered {
				t.Errorf("given up before what is well was home:\n%s", describeReceipt(r))
			}
			h.eventually("what holds all that is left is told", func() bool {
				return isUnreachable(h.Held(t.Context()), test.name)
			}, func() string { return fmt.Sprint(h.Held(t.Context())) })
		})
	}
}

// waiting is a Reporter whose downloads wait.
type waiting struct {
	Reporter
	before func(context.Context)
}

func (r waiting) Download(ctx context.Context, id string, resume reporter.Resume) (*reporter.Download, error) {
	r.before(ctx)
	return r.Reporter.Download(ctx, id, resume)
}

func isUnreachable(err error, service string) bool {
	return errors.Is(err, ErrUnreachable) && strings.HasPrefix(err.Error(), service)
}

// What waits for one source only is held, and what another source is at work on is not.
func TestWaitingGoesOnWhileAnotherSourceIsAtWork(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	var slow atomic.Value
	slow.Store("")
	h := newHouse(t, several(2, counted(&results{before: func(ctx context.Context, id string) {
		if id != slow.Load() {
			return
		}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
	}})))
	h.Now = func() time.Time { return time.Now().Add(time.Minute) } // a gate that closes has been closed for long
	h.fetchers[0].Objects.Down(true)
	away, fine := h.ended(0, sandbox.Job{}).ID, h.ended(1, sandbox.Job{}).ID
	slow.Store(fine)
	h.work()
	h.announced(h.message(0, away, sandbox.Emission{}), h.message(1, fine, sandbox.Emission{}))
	h.eventually("one is held, and the other at work", func() bool {
		closed, _ := h.closed()
		return closed && h.Counts().Downloads > 1
	}, func() string { return fmt.Sprint(h.Counts()) })
	if err := h.Held(t.Context()); err != nil {
		t.Errorf("held, though one source is at work: %v", err)
	}
	idle := make(chan error, 1)
	go func() { idle <- h.WaitIdle(t.Context(), h.Now()) }()
	close(goOn)
	if err := <-idle; !isUnreachable(err, "fetcher") {
		t.Errorf("ended with %v", err)
	}
	if r := h.receiptOf(jobKey(fine)); r.State != store.Delivered {
		t.Errorf("given up before what is well was home:\n%s", describeReceipt(r))
	}
	if r := h.receiptOf(jobKey(away)); r.State != store.Pending || r.Attempts != 0 {
		t.Errorf("held:\n%s", describeReceipt(r))
	}
	later := unknownJobs(1)[0]
	h.records(later, func(r *store.Receipt) { r.Source, r.Due = sourceName(1), h.Now().Add(time.Hour) })
	for range 20 {
		if err := h.Held(t.Context()); err != nil {
			t.Fatalf("held, though a job of the other source will be due: %v", err)
		}
	}
}
