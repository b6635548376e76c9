// Package agent brings reports home. Events, sweeps and people only make receipts due in the ledger; the agent works from
// the ledger, asks the authority, publishes the file and settles the receipt. What is due survives every stop, and an
// attempt settles no more than what it started from.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"recibo/downloads"
	"recibo/hub"
	"recibo/reporter"
	"recibo/rest"
	"recibo/setting"
	"recibo/store"
)

// Reporter is what the agent needs of Reporter's client. Every Acquire is followed by one call of the class or a Cancel.
type Reporter interface {
	Acquire(context.Context, rest.Class) error
	Cancel(rest.Class)
	Report(ctx context.Context, id string) (*reporter.Report, error)
	Page(ctx context.Context, page, limit int, q reporter.ListQuery) ([]reporter.Report, error)
	Download(ctx context.Context, id string, resume reporter.Resume) (*reporter.Download, error)
	Gates() []rest.GateStatus
}

// Options are what an Agent is made of.
type Options struct {
	Config        Config
	Ledger        *store.Store
	Folder        *downloads.Folder  // nil: nothing is brought home
	Manifest      bool               // write <file>.receipt.json
	MaxSize       setting.Size       // of a file; 0: as the folder says
	Retention     time.Duration      // of settled receipts; 0 keeps them
	Reporter      Reporter           // nil: there is nobody to ask about reports, so they stay due
	Subscriptions []hub.Subscription // of reports

	Fetcher          Fetcher // nil: jobs stay due
	JobSubscriptions []hub.Subscription
	JobFolders       []*downloads.Folder // by the number of the Fetcher; nil or missing: Folder
	JobsFile         string              // of ids to expect; empty: none

	Log  *slog.Logger
	Now  func() time.Time
	Step func(Step) // tests stop the process at a step; nil otherwise
}

// Step is a numbered point of publishing and settling.
type Step string

// The steps in their order. A process that stops at any of them leaves a state that the next start completes.
const (
	StepAdmitted  Step = "1 admitted"
	StepDescribed Step = "2 described"
	StepStaged    Step = "3 staged"
	StepWritten   Step = "4 written"
	StepSynced    Step = "5 synced"
	StepAnnounced Step = "6 announced"
	StepPublished Step = "7 published"
	StepSettled   Step = "8 settled"
)

// Steps lists all of them.
var Steps = [...]Step{StepAdmitted, StepDescribed, StepStaged, StepWritten, StepSynced, StepAnnounced, StepPublished, StepSettled}

// Agent settles receipts.
type Agent struct {
	Options
	counts counters

	described *queue // to be described
	hinted    *queue // described already by a list
	ready     *queue // to be downloaded
	weighed   *queue // jobs whose events are to be weighed
	fetching  []fetching
	schedules []*schedule
	rebound   chan struct{}

	mu     sync.Mutex
	active map[store.Key]*transfer
	hints  map[store.Key]hint // descriptions that a list has just given
	sweep  *sweeping          // the sweep in progress, which others join

	outlets []*outlet // none without a folder
	settles settles
	working atomic.Bool
	started chan struct{} // closed once Work takes up its work, or can't
	begin   sync.Once
}

// counters since the start of the process.
type counters struct {
	admitted, repeated, skipped, rejected, quarantined atomic.Uint64
	descriptions, downloads, delivered, bytes          atomic.Uint64
}

// New returns an agent that does nothing until Run or Work.
func New(o Options) *Agent {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Step == nil {
		o.Step = func(Step) {}
	}
	a := &Agent{
		Options:   o,
		described: newQueue(),
		hinted:    newQueue(),
		ready:     newQueue(),
		weighed:   newQueue(),
		fetching:  newFetching(o.Fetcher),
		rebound:   make(chan struct{}, 1),
		active:    map[store.Key]*transfer{},
		started:   make(chan struct{}),
		hints:     map[store.Key]hint{},
	}
	a.described.of, a.ready.of = need{kind: store.Report}, need{kind: store.Report}
	a.newOutlets()
	a.newSchedules()
	return a
}

// Run is the daemon: it takes events in, settles what is due, sweeps and prunes until ctx ends. Intake stops first, work
// in progress gets agent.shutdown, the rest stays due. An error means that the agent can't go on without a person.
func (a *Agent) Run(ctx context.Context) error {
	intake, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for _, s := range a.Subscriptions {
		wg.Go(func() { a.subscribe(intake, stop, s) })
		wg.Go(func() { a.followBindings(intake, s) })
	}
	for _, s := range a.JobSubscriptions {
		wg.Go(func() { a.subscribe(intake, stop, s) })
		wg.Go(func() { a.askAfterBindings(intake, s) })
	}
	wg.Go(func() { a.expectJobsOnSchedule(intake) })
	wg.Go(func() { a.watchKeys(intake) })
	wg.Go(func() { a.pollOnSchedule(intake) })
	wg.Go(func() { a.pruneOnSchedule(intake) })
	err := a.Work(intake)
	wg.Wait()
	if ctx.Err() == nil {
		return errors.Join(context.Cause(intake), err) // a subscription ended for good
	}
	return err
}

// Work settles what is due until ctx ends, and returns when its workers have ended.
func (a *Agent) Work(ctx context.Context) error {
	defer a.begin.Do(func() { close(a.started) })
	if err := a.recoverIntents(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // a stop like any other
		}
		return err
	}
	a.working.Store(true)
	a.begin.Do(func() { close(a.started) })
	defer a.working.Store(false)
	// Workers outlive the dispatchers by agent.shutdown.
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var workers, loops sync.WaitGroup
	describers := max(4, a.Config.Workers)
	for _, s := range a.schedules {
		loops.Go(func() { a.takeDue(ctx, s) })
	}
	for _, l := range append(a.reportLanes(describers), a.jobLanes(describers)...) {
		loops.Go(func() { a.dispatch(ctx, work, &workers, l) })
	}
	loops.Wait()
	timer := time.AfterFunc(a.Config.Shutdown, cut)
	defer timer.Stop()
	workers.Wait()
	a.release()
	return nil
}

// subscribe keeps one subscription going. Only what a person must change ends it.
func (a *Agent) subscribe(ctx context.Context, stop context.CancelCauseFunc, s hub.Subscription) {
	if err := s.Run(ctx, a.Admit); err != nil && ctx.Err() == nil {
		a.Log.Error("the subscription ended", "transport", s.Health().Transport, "error", err)
		stop(err)
	}
}

// Wake makes the agent look at the ledger now.
func (a *Agent) Wake() {
	for _, s := range a.schedules {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// Started is closed once Work has taken up its work, or has failed to.
func (a *Agent) Started() <-chan struct{} { return a.started }

// Working reports whether Work is running.
func (a *Agent) Working() bool { return a.working.Load() }

// pruneOnSchedule removes what is older than the retention, in small batches.
func (a *Agent) pruneOnSchedule(ctx context.Context) {
	for {
		if err := a.Prune(ctx); err != nil && ctx.Err() == nil {
			a.Log.Warn("old receipts could not be removed", "error", err)
		}
		if !sleep(ctx, time.Hour) {
			return
		}
	}
}

// pruneBatch keeps one batch's commit short, so that admissions never wait long behind it.
const pruneBatch = 256

// Prune removes settled receipts older than the retention.
func (a *Agent) Prune(ctx context.Context) error {
	if a.Retention <= 0 {
		return nil
	}
	if ok, err := a.clockIsSteady(ctx); err != nil || !ok {
		return err
	}
	before := a.Now().Add(-a.Retention)
	for total := 0; ; {
		n, err := a.Ledger.Prune(ctx, before, pruneBatch)
		if err != nil {
			return err
		}
		if total += n; n == 0 {
			if total > 0 {
				a.Log.Info("old receipts removed", "receipts", total, "before", before.UTC().Format(time.RFC3339))
			}
			return nil
		}
	}
}

const (
	factClock = "clock" // RFC 3339: the time at which old receipts were last looked for
	// clockJump is a step that calls for a second look: one wrong clock must not make every id forgotten.
	clockJump = 31 * 24 * time.Hour
)

// clockIsSteady reports whether the clock is about where the last look left it.
func (a *Agent) clockIsSteady(ctx context.Context) (bool, error) {
	now := a.Now()
	data, err := a.Ledger.Fact(ctx, factClock)
	if err != nil {
		return false, err
	}
	last, err := time.Parse(time.RFC3339, string(data))
	steady := err != nil || now.Sub(last).Abs() < clockJump
	if !steady {
		a.Log.Warn("the clock jumped, or recibo did not run for long; nothing old is removed this time", "from", last, "to", now)
	}
	return steady, a.Ledger.SetFact(ctx, factClock, []byte(now.UTC().Format(time.RFC3339)))
}

// sleep waits and reports whether the wait was whole.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
