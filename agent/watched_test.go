package agent

import (
	"context"
	"testing"
	"time"

	"recibo/hub"
	"recibo/sandbox"
	"recibo/store"
)

// quiet is a subscription by which nothing comes.
type quiet struct{ bound chan struct{} }

func newQuiet() *quiet { return &quiet{make(chan struct{}, 1)} }

func (*quiet) Run(ctx context.Context, _ hub.AdmitFunc) error {
	<-ctx.Done()
	return nil
}
func (*quiet) Drain(context.Context, hub.AdmitFunc) error { return nil }
func (*quiet) Health() hub.Health                         { return hub.Health{Transport: "amqp", Healthy: true} }
func (q *quiet) Bound() <-chan struct{}                   { return q.bound }

// TestAWatchedJobIsLeftToItsEventFirst, but only where one can come.
func TestAWatchedJobIsLeftToItsEventFirst(t *testing.T) {
	t.Parallel()
	const grace = 20 * time.Minute
	tests := map[string]struct {
		subscribed, working bool
		wait                time.Duration
	}{
		"with a subscription":      {true, true, grace},
		"without a subscription":   {false, true, 0},
		"in another process's run": {true, false, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, jobs(func(p *plan) { p.agent.PollGrace = grace }))
			if test.subscribed {
				h.JobSubscriptions = []hub.Subscription{newQuiet()}
			}
			job := h.ended(0, sandbox.Job{})
			if test.working {
				h.work()
				<-h.Started()
			}
			before := time.Now()
			h.watches(job.ID)
			if !test.working {
				h.work()
			}
			if test.wait == 0 {
				r := h.untilJob(job.ID, "delivery by Fetcher's word", in(store.Delivered))
				if r.Authority != byFetcher || r.FoundBy != "watch" || h.fetchers[0].Requests()[job.ID] != 1 {
					t.Errorf("by the word of %s, found by %s, asked %d times", r.Authority, r.FoundBy, h.fetchers[0].Requests()[job.ID])
				}
				return
			}
			r := h.receiptOf(jobKey(job.ID))
			if r.State != store.Expected || r.Due.Before(before.Add(grace)) || r.Due.After(time.Now().Add(grace)) {
				t.Errorf("watched:\n%s", describeReceipt(r))
			}
			h.watches(job.ID) // once more: now
			if r := h.receiptOf(jobKey(job.ID)); r.Due.After(time.Now()) {
				t.Errorf("watched again:\n%s", describeReceipt(r))
			}
			r = h.untilJob(job.ID, "delivery by Fetcher's word", in(store.Delivered))
			if r.Authority != byFetcher {
				t.Errorf("by the word of %s", r.Authority)
			}
		})
	}
}

// TestTheEventOfAWatchedJobIsEnough: nobody is asked.
func TestTheEventOfAWatchedJobIsEnough(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs())
	h.JobSubscriptions = []hub.Subscription{newQuiet()}
	h.work()
	<-h.Started()
	job := h.ended(0, sandbox.Job{})
	h.watches(job.ID)
	h.announced(h.message(0, job.ID, sandbox.Emission{}))
	r := h.untilJob(job.ID, "delivery", in(store.Delivered))
	if r.Authority != bySignedEvent || r.FoundBy != "watch" || h.fetchers[0].Requests()[job.ID] != 0 {
		t.Errorf("by the word of %s, found by %s, asked %d times", r.Authority, r.FoundBy, h.fetchers[0].Requests()[job.ID])
	}
	h.watches(job.ID) // it has ended
	if r := h.receiptOf(jobKey(job.ID)); r.Generation != 2 || !r.Due.IsZero() {
		t.Errorf("watched after its end:\n%s", describeReceipt(r))
	}
}

// TestAJobThatIsWatchedAndDoesNotEnd is asked about with back-off, and called stale in the end.
func TestAJobThatIsWatchedAndDoesNotEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs())
	young := h.ended(0, sandbox.Job{Status: sandbox.JobProcessing})
	old := h.ended(0, sandbox.Job{Status: sandbox.JobPending, CreatedAt: time.Now().Add(-25 * time.Hour)})
	h.work()
	h.watches(young.ID, old.ID)
	r := h.untilJob(young.ID, "in progress", in(store.Expected))
	if r.Stale || r.Status != sandbox.JobProcessing || time.Until(r.Due) < 4*time.Minute || time.Until(r.Due) > 7*time.Minute {
		t.Errorf("in progress, due in %s:\n%s", time.Until(r.Due), describeReceipt(r))
	}
	r = h.untilJob(old.ID, "stale", in(store.Expected))
	if !r.Stale || notes(r, "stale: ") != 1 || r.Due.IsZero() {
		t.Errorf("in progress for a day:\n%s", describeReceipt(r))
	}
	h.fetchers[0].Set(old.ID, func(j *sandbox.Job) { j.Status = sandbox.JobFailed })
	h.retries(old.ID)
	if r := h.untilJob(old.ID, "failed", in(store.Failed)); r.Stale {
		t.Error("failed and stale")
	}
}

// TestExpectedJobsCanBeHurried: they are due after a while, none of them later than before, and nothing else is touched.
func TestExpectedJobsCanBeHurried(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs())
	now := time.Now().Truncate(time.Second)
	ids := unknownJobs(5)
	due := []time.Time{now.Add(time.Hour), now.Add(time.Second), {}, now.Add(time.Hour), now.Add(time.Hour)}
	states := []store.State{store.Expected, store.Expected, store.Expected, store.Pending, store.Parked}
	for i, id := range ids {
		h.records(id, func(r *store.Receipt) { r.State, r.Due, r.Generation = states[i], due[i], 3 })
	}
	h.Now = func() time.Time { return now }
	if err := h.HurryJobs(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	want := []time.Time{now.Add(time.Minute), due[1], now.Add(time.Minute), due[3], due[4]}
	for i, id := range ids {
		if r := h.receiptOf(jobKey(id)); !r.Due.Equal(want[i]) || r.State != states[i] || r.Generation != 3 {
			t.Errorf("%s, due %s: %s", states[i], due[i], describeReceipt(r))
		}
	}
}

// records puts a job's receipt into the ledger.
func (h *house) records(id string, change func(*store.Receipt)) {
	h.t.Helper()
	err := h.Ledger.Change(h.t.Context(), []store.Key{jobKey(id)}, func(r *store.Receipt, fresh bool) bool {
		if fresh {
			r.State, r.FoundBy = store.Pending, "event"
		}
		change(r)
		return true
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// TestExpectedJobsAreAskedAboutAfterANewBinding: a queue that was gone has lost events.
func TestExpectedJobsAreAskedAboutAfterANewBinding(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs(func(p *plan) { p.agent.PollGrace = 10 * time.Millisecond }))
	queue := newQuiet()
	h.JobSubscriptions = []hub.Subscription{queue}
	job := h.ended(0, sandbox.Job{})
	h.records(job.ID, func(r *store.Receipt) { r.State, r.Due = store.Expected, time.Now().Add(3*time.Hour) })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-h.Started()
	if r := h.receiptOf(jobKey(job.ID)); r.State != store.Expected {
		t.Fatalf("before any binding:\n%s", describeReceipt(r))
	}
	queue.bound <- struct{}{}
	h.untilJob(job.ID, "delivery", in(store.Delivered))
}

// TestAJobThatEndedBeforeTheRetentionIsNotBroughtHomeAgain: its receipt may be gone, and its id still in the file of ids.
func TestAJobThatEndedBeforeTheRetentionIsNotBroughtHomeAgain(t *testing.T) {
	t.Parallel()
	const retention = 30 * 24 * time.Hour
	h := newHouse(t, jobs())
	h.Retention = retention
	old := h.ended(0, sandbox.Job{CompletedAt: time.Now().Add(-retention - time.Hour)})
	young := h.ended(0, sandbox.Job{CompletedAt: time.Now().Add(-retention + time.Hour)})
	announced := h.ended(0, sandbox.Job{CompletedAt: time.Now().Add(-retention - time.Hour)})
	h.work()
	h.watches(old.ID, young.ID)
	h.announced(h.message(0, announced.ID, sandbox.Emission{}))
	h.untilJob(young.ID, "delivery of what is young", in(store.Delivered))
	h.untilJob(announced.ID, "delivery of what an event tells of", in(store.Delivered))
	r := h.untilJob(old.ID, "parked", in(store.Parked))
	readable(t, r.Reason, "recibo fetch --job")
	if r.Attempts != 0 || r.CompletedAt == "" || !r.Due.IsZero() {
		t.Errorf("ended before the retention:\n%s", describeReceipt(r))
	}
	h.holds(young.ID+".json", announced.ID+".json")
	// What a person asked for before is brought home by a retry too.
	found := h.ended(0, sandbox.Job{CompletedAt: time.Now().Add(-retention - time.Hour)})
	h.records(found.ID, func(r *store.Receipt) { r.State, r.FoundBy = store.Parked, "fetch" })
	h.retries(found.ID, old.ID)
	h.untilJob(found.ID, "delivery of what was asked for", in(store.Delivered))
	if r := h.untilJob(old.ID, "the retry", in(store.Parked)); r.Generation != 2 || len(r.Files) > 0 {
		t.Errorf("retried:\n%s", describeReceipt(r))
	}
	h.asksFor(old.ID)
	r = h.untilJob(old.ID, "delivery since a person asked for it", in(store.Delivered))
	if r.Reason != "" || r.Urgent {
		t.Errorf("fetched:\n%s", describeReceipt(r))
	}
	h.soundJob(0, old.ID)
	if err := h.Prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.receiptOf(jobKey(old.ID)) // it was settled just now
}

// TestAJobThatNobodyCanBeAskedAboutWaitsForItsEvent, and is called stale when none comes.
func TestAJobThatNobodyCanBeAskedAboutWaitsForItsEvent(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs(counted(&results{asks: never})))
	job := h.ended(0, sandbox.Job{})
	h.work()
	h.watches(job.ID)
	r := h.untilJob(job.ID, "waiting", in(store.Expected))
	readable(t, r.Reason, "no fetcher.url")
	if wait := time.Until(r.Due); r.Stale || wait < 23*time.Hour || wait > 24*time.Hour {
		t.Errorf("waiting, due in %s:\n%s", wait, describeReceipt(r))
	}
	h.records(job.ID, func(r *store.Receipt) { r.Due, r.Created = time.Now(), time.Now().Add(-h.Config.StaleAfter) })
	h.Wake()
	r = h.untilJob(job.ID, "stale", func(r *store.Receipt) bool { return r.Stale && r.Due.IsZero() })
	if r.State != store.Expected || notes(r, "stale: ") != 1 {
		t.Errorf("stale:\n%s", describeReceipt(r))
	}
	h.announced(h.message(0, job.ID, sandbox.Emission{}))
	if r := h.untilJob(job.ID, "delivery", in(store.Delivered)); r.Stale || r.Reason != "" {
		t.Errorf("delivered:\n%s", describeReceipt(r))
	}
}

func never() bool { return false }
