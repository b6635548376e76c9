package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"recibo/reporter"
	"recibo/rest"
	"recibo/store"
)

// Facts that sweeps keep in the ledger.
const (
	factSweep   = "sweep"    // the last complete sweep, a SweepResult
	factStartAt = "start_at" // RFC 3339; reports completed earlier are not ours unless a person asks
)

// listLimit is the largest page that every version of Reporter grants.
const listLimit = 100

// Sweep says what one walk over Reporter's list is to do.
type Sweep struct {
	Since  time.Duration // how far back; 0: the last complete sweep less agent.poll_look_back
	DryRun bool          // look only
}

// SweepResult is what a sweep saw.
type SweepResult struct {
	Start       time.Time `json:"start"`
	End         time.Time `json:"end,omitzero"`
	From        time.Time `json:"from"`
	Listed      int       `json:"listed"`
	Found       int       `json:"found"`       // reports made due or expected
	Unannounced int       `json:"unannounced"` // ended, and no event came within agent.poll_grace
	Missing     []string  `json:"missing,omitempty"`
	Complete    bool      `json:"complete"`

	ended []store.Key // found ended without an event: judged once the grace is over
}

// sweeping is a sweep in progress.
type sweeping struct {
	done   chan struct{}
	what   Sweep
	result SweepResult
	err    error
}

// Sweep asks Reporter what there is and makes due whatever differs from the record. Another call with the same wishes
// joins the sweep in progress.
func (a *Agent) Sweep(ctx context.Context, what Sweep) (SweepResult, error) {
	for {
		a.mu.Lock()
		s := a.sweep
		mine := s == nil
		if mine {
			s = &sweeping{done: make(chan struct{}), what: what}
			a.sweep = s
		}
		a.mu.Unlock()
		if mine {
			s.result, s.err = a.walk(ctx, what)
			a.mu.Lock()
			a.sweep = nil
			a.mu.Unlock()
			close(s.done)
			return s.result, s.err
		}
		select {
		case <-ctx.Done():
			return SweepResult{}, ctx.Err()
		case <-s.done:
		}
		// One that its own caller gave up, or that looked for something else, answers nobody but that caller.
		if s.what == what && !errors.Is(s.err, context.Canceled) && !errors.Is(s.err, context.DeadlineExceeded) {
			return s.result, s.err
		}
	}
}

// walk goes through the list from the newest report to the start of the window. The list is ordered by creation, and a
// report that ends late keeps its old place: so the whole window is walked each time, and ids are trusted, not times.
func (a *Agent) walk(ctx context.Context, what Sweep) (SweepResult, error) {
	res := SweepResult{Start: a.Now()}
	var err error
	if res.From, err = a.windowStart(ctx, res.Start, what.Since); err != nil {
		return res, err
	}
	startAt, err := a.startAt(ctx)
	if err != nil {
		return res, err
	}
	if what.Since > 0 {
		startAt = time.Time{} // a person named the window
	}
	seen := map[string]bool{}
	for page := 1; ; page++ {
		if err := a.Reporter.Acquire(ctx, rest.Get); err != nil {
			return res, err
		}
		asked := a.Now()
		reports, err := a.Reporter.Page(ctx, page, listLimit, reporter.ListQuery{})
		if err != nil && len(reports) == 0 {
			return res, err
		}
		if err != nil {
			// Some entries can't be read. They must not hide the others from every sweep to come.
			a.Log.Warn("a part of the list can't be read", "page", page, "error", err)
		}
		if known := len(seen); len(reports) > 0 {
			for i := range reports {
				seen[reports[i].ID] = true
			}
			if len(seen) == known {
				return res, fmt.Errorf("page %d of reporter's list holds only what earlier pages held: it can't be walked", page)
			}
		}
		res.Listed += len(reports)
		if err := a.compare(ctx, reports, asked, startAt, what.DryRun, &res); err != nil {
			return res, err
		}
		if err == nil && len(reports) < listLimit || createdBefore(reports[len(reports)-1], res.From) {
			break
		}
	}
	res.End, res.Complete = a.Now(), true
	if last, ok, err := a.LastSweep(ctx); err == nil && ok && a.silent(ctx) {
		res.Unannounced = last.Unannounced // no event has come since: the count stands
	}
	if what.DryRun || what.Since > 0 && what.Since < a.Config.PollLookBack {
		return res, nil // a shorter look does not move the window of the next sweep
	}
	return res, a.keepSweep(ctx, res)
}

// windowStart reaches back from the last complete sweep, so that a stop of a week loses nothing.
func (a *Agent) windowStart(ctx context.Context, now time.Time, since time.Duration) (time.Time, error) {
	if since > 0 {
		return now.Add(-since), nil
	}
	last, ok, err := a.LastSweep(ctx)
	if err != nil {
		return now, err
	}
	from := now
	if ok && last.Start.Before(now) {
		from = last.Start
	}
	if !ok {
		if start, err := a.startAt(ctx); err == nil && start.Before(now.Add(-a.Config.PollLookBack)) {
			return start, nil
		}
	}
	return from.Add(-a.Config.PollLookBack), nil
}

// LastSweep returns the last complete sweep.
func (a *Agent) LastSweep(ctx context.Context) (SweepResult, bool, error) {
	var last SweepResult
	data, err := a.Ledger.Fact(ctx, factSweep)
	if err != nil || data == nil {
		return last, false, err
	}
	if err := json.Unmarshal(data, &last); err != nil {
		return last, false, fmt.Errorf("the ledger's note of the last sweep: %w", err)
	}
	return last, true, nil
}

// startAt is the moment before which completed reports are not ours: configured, or fixed once at the first start.
func (a *Agent) startAt(ctx context.Context) (time.Time, error) {
	if !a.Config.StartAt.IsZero() {
		return a.Config.StartAt, nil
	}
	data, err := a.Ledger.Fact(ctx, factStartAt)
	if err != nil {
		return time.Time{}, err
	}
	if data != nil {
		return time.Parse(time.RFC3339, string(data))
	}
	start := a.Ledger.Created().Add(-a.Config.PollLookBack).UTC().Truncate(time.Second)
	return start, a.Ledger.SetFact(ctx, factStartAt, []byte(start.Format(time.RFC3339)))
}

func createdBefore(r reporter.Report, t time.Time) bool {
	created, ok := reporter.ParseTime(r.CreatedAt)
	return ok && created.Before(t)
}

func (a *Agent) keepSweep(ctx context.Context, res SweepResult) error {
	res.Missing = nil
	data, err := json.Marshal(res)
	if err != nil {
		return err
	}
	return a.Ledger.SetFact(ctx, factSweep, data)
}
