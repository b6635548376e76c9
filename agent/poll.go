package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"recibo/hub"
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
	var before string // the first id of the previous page
	for page := 1; ; page++ {
		if err := a.Reporter.Acquire(ctx, rest.Get); err != nil {
			return res, err
		}
		reports, err := a.Reporter.Page(ctx, page, listLimit, reporter.ListQuery{})
		if err != nil && len(reports) == 0 {
			return res, err
		}
		if err != nil {
			// Some entries can't be read. They must not hide the others from every sweep to come.
			a.Log.Warn("a part of the list can't be read", "page", page, "error", err)
		}
		if len(reports) > 0 && reports[0].ID == before {
			return res, fmt.Errorf("reporter answered page %d of its list like page %d: it can't be walked", page, page-1)
		}
		res.Listed += len(reports)
		if err := a.compare(ctx, reports, startAt, what.DryRun, &res); err != nil {
			return res, err
		}
		if err == nil && len(reports) < listLimit || createdBefore(reports[len(reports)-1], res.From) {
			break
		}
		before = reports[0].ID
	}
	res.End, res.Complete = a.Now(), true
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

// compare makes due what differs from the record, one page in one transaction.
func (a *Agent) compare(ctx context.Context, reports []reporter.Report, startAt time.Time, dry bool, res *SweepResult) error {
	listed := make(map[store.Key]*reporter.Report, len(reports))
	keys := make([]store.Key, 0, len(reports))
	for i := range reports {
		k := store.Key{Kind: store.Report, ID: reports[i].ID}
		if listed[k] == nil {
			keys = append(keys, k)
		}
		listed[k] = &reports[i]
	}
	grace := a.graceStart()
	now := a.Now()
	examine := func(r *store.Receipt, fresh bool) bool {
		l := listed[r.Key()]
		if !fresh && !r.Due.IsZero() && !r.Due.After(now) {
			a.hint(l) // it is due anyway, and need not be described again
			return false
		}
		if !a.differs(r, fresh, l, startAt, grace) {
			return false
		}
		res.Found++
		if announced(l.Status) && len(r.Events) == 0 {
			res.ended = append(res.ended, r.Key())
		}
		if dry {
			res.Missing = append(res.Missing, r.ID)
			return false
		}
		a.foundByList(r, fresh, l)
		return true
	}
	if !dry {
		if err := a.Ledger.Change(ctx, keys, examine); err != nil {
			return err
		}
		a.Wake()
		return nil
	}
	for _, k := range keys {
		r, err := a.Ledger.Get(ctx, k)
		if errors.Is(err, store.ErrNotFound) {
			examine(&store.Receipt{Kind: k.Kind, ID: k.ID}, true)
		} else if err != nil {
			return err
		} else {
			examine(r, false)
		}
	}
	return nil
}

// differs tells whether a listed report calls for work.
func (a *Agent) differs(r *store.Receipt, fresh bool, l *reporter.Report, startAt, grace time.Time) bool {
	if !fresh {
		return r.Status != l.Status || !reporter.SameCompletion(r.CompletedAt, l.CompletedAt)
	}
	completed, ended := reporter.ParseTime(l.CompletedAt)
	if !ended {
		// Without a completion only its creation can tell a report of before our time.
		created, ok := reporter.ParseTime(l.CreatedAt)
		return !ok || !created.Before(startAt)
	}
	return !completed.Before(startAt) && !completed.After(grace)
}

// foundByList makes a receipt due, and keeps the description for whoever works on it. It writes no state but that of a
// new receipt.
func (a *Agent) foundByList(r *store.Receipt, fresh bool, l *reporter.Report) {
	now := a.Now()
	if fresh {
		r.State, r.FoundBy = store.Pending, "poll"
	}
	r.Generation++
	r.Due = now
	r.Note(now, "listed by reporter as "+l.Status)
	a.hint(l)
}

// hint keeps a description for whoever works on the report. Beyond the bound of what is kept in memory it is simply
// described again.
func (a *Agent) hint(l *reporter.Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.hints) < maxHints && len(l.Metadata) < maxHintMetadata && a.working.Load() {
		a.hints[store.Key{Kind: store.Report, ID: l.ID}] = hint{l, a.Now()}
	}
}

// hint is a description that a list gave. It serves instead of a GET for a short while only.
type hint struct {
	report *reporter.Report
	at     time.Time
}

// announced tells whether an event is published for a report that ends with this status. There is none for an Error.
func announced(status string) bool { return status == reporter.Finished || status == reporter.Partial }

const (
	hintFor         = time.Minute
	maxHints        = 4096
	maxHintMetadata = 16 << 10
)

// graceStart leaves what was completed after it to its event, while a healthy subscription can still bring one.
func (a *Agent) graceStart() time.Time {
	if !a.working.Load() || !a.subscribed() {
		return a.Now().Add(365 * 24 * time.Hour)
	}
	return a.Now().Add(-a.Config.PollGrace)
}

// subscribed reports whether there are subscriptions and all of them are healthy.
func (a *Agent) subscribed() bool {
	for _, s := range a.Subscriptions {
		if !s.Health().Healthy {
			return false
		}
	}
	return len(a.Subscriptions) > 0
}

// silent reports whether the last sweep found what no event had announced, and no event has come since.
func (a *Agent) silent(ctx context.Context) bool {
	last, ok, err := a.LastSweep(ctx)
	if err != nil || !ok || last.Unannounced == 0 {
		return false
	}
	for _, s := range a.Subscriptions {
		if s.Health().LastEvent.After(last.End) {
			return false
		}
	}
	return true
}

// judge counts which of the reports that a sweep found have still not been announced, and keeps the count.
func (a *Agent) judge(ctx context.Context, res SweepResult) error {
	res.Unannounced = 0
	for _, k := range res.ended {
		r, err := a.Ledger.Get(ctx, k)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err == nil && len(r.Events) == 0 {
			res.Unannounced++
		}
	}
	if res.Unannounced > 0 {
		a.Log.Warn("reports were found that no event announced: is the subscription silent?", "reports", res.Unannounced)
	}
	return a.keepSweep(ctx, res)
}

func (a *Agent) keepSweep(ctx context.Context, res SweepResult) error {
	res.Missing = nil
	data, err := json.Marshal(res)
	if err != nil {
		return err
	}
	return a.Ledger.SetFact(ctx, factSweep, data)
}

// pollOnSchedule sweeps at the start, as often as the state of the subscription asks for, and after every new binding:
// what a stream lost or a consumer skipped is found there.
func (a *Agent) pollOnSchedule(ctx context.Context) {
	if a.Reporter == nil || a.Config.PollEvery == 0 && a.Config.PollHealthy == 0 {
		return
	}
	var last SweepResult // to be judged
	bindings := 0        // that a sweep has followed
	a.untilQuiet(ctx)
	for next := a.Now(); ; {
		now := a.Now()
		if len(last.ended) > 0 && now.Sub(last.End) >= a.Config.PollGrace {
			if err := a.judge(ctx, last); err != nil && ctx.Err() == nil {
				a.Log.Warn("the sweep could not be judged", "error", err)
			}
			last.ended = nil
		}
		every := a.pollInterval(ctx)
		if bound := a.bindings(); bound > bindings || every > 0 && (!now.Before(next) || next.Sub(now) > every) {
			a.untilQuiet(ctx)
			bindings = a.bindings()
			last = a.sweepAndTell(ctx)
			next = a.Now().Add(every)
		}
		// Looking again each minute follows a change of the subscription's health.
		if !a.pause(ctx, min(time.Minute, max(every, time.Second), max(a.Config.PollGrace, time.Second))) {
			return
		}
	}
}

// pause waits for d or for a new binding, and reports whether ctx goes on.
func (a *Agent) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-a.rebound:
	}
	return true
}

// followBindings passes new bindings on to the polling.
func (a *Agent) followBindings(ctx context.Context, s hub.Subscription) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Bound():
			select {
			case a.rebound <- struct{}{}:
			default:
			}
		}
	}
}

func (a *Agent) bindings() int {
	n := 0
	for _, s := range a.Subscriptions {
		n += s.Health().Bindings
	}
	return n
}

const (
	bindWait    = 10 * time.Second
	backlogWait = 2 * time.Minute
)

// untilQuiet lets a subscription that has just been bound hand over what it holds, so that a sweep does not find first
// what an event is about to announce. A subscription that can't be bound, or that never rests, holds no sweep for long.
func (a *Agent) untilQuiet(ctx context.Context) {
	for begun := time.Now(); ; {
		bound, backlog := a.subscribed(), uint64(0)
		for _, s := range a.Subscriptions {
			backlog += s.Health().Backlog
		}
		waited := time.Since(begun)
		switch {
		case len(a.Subscriptions) == 0, bound && backlog == 0, !bound && waited > bindWait, waited > backlogWait:
			return
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// pollInterval is 0 while the present health of the subscription asks for no sweeps.
func (a *Agent) pollInterval(ctx context.Context) time.Duration {
	if a.subscribed() && !a.silent(ctx) {
		return a.Config.PollHealthy
	}
	return a.Config.PollEvery
}

func (a *Agent) sweepAndTell(ctx context.Context) SweepResult {
	res, err := a.Sweep(ctx, Sweep{})
	if err == nil {
		a.Log.Info("sweep complete", "listed", res.Listed, "found", res.Found)
	} else if ctx.Err() == nil {
		a.Log.Warn("sweep incomplete", "listed", res.Listed, "error", err)
	}
	return res
}
