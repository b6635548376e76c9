package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"recibo/fetcher"
	"recibo/sandbox"
	"recibo/store"
)

// An event that comes while its job waits for its turn to be asked about is all that is needed.
func TestAnEventIsEnoughForAJobThatWaitsToBeAskedAbout(t *testing.T) {
	t.Parallel()
	turn, asked := make(chan struct{}), atomic.Int64{}
	h := newHouse(t, jobs(counted(&results{
		turn: turn,
		job: func(string) (*fetcher.Job, error) {
			asked.Add(1)
			return nil, errors.New("asked about what its event had told")
		},
	})))
	h.work()
	const n = 20
	ids := make([]string, n)
	for i := range ids {
		ids[i] = h.ended(0, sandbox.Job{}).ID
	}
	h.watches(ids...)
	h.eventually("all wait for their turn", func() bool { return h.fetching[0].asked.len() == n }, func() string {
		return fmt.Sprint(h.Active(), " active")
	})
	for _, id := range ids {
		h.announced(h.message(0, id, sandbox.Emission{}))
	}
	for _, id := range ids {
		r := h.untilJob(id, "delivery", in(store.Delivered))
		if r.Authority != bySignedEvent || len(r.Files) != 1 {
			t.Errorf("by the word of %s, %d files", r.Authority, len(r.Files))
		}
		h.soundJob(0, id)
	}
	close(turn) // whoever waited has nothing to ask any more
	h.eventually("the queue is empty", func() bool { return h.fetching[0].asked.len() == 0 }, func() string { return "" })
	h.stop()
	if asked.Load() > 0 {
		t.Errorf("asked %d times about what its event had told", asked.Load())
	}
}

// The same result once more costs no download, whatever brought it up and whoever forced it before.
func TestAResultOnRecordIsNotFetchedAgain(t *testing.T) {
	t.Parallel()
	fetched := &results{}
	h := newHouse(t, jobs(counted(fetched)))
	h.work()
	job := h.completes(0, sandbox.Job{})
	h.untilJob(job.ID, "delivery", in(store.Delivered))
	if _, err := h.Fetch(t.Context(), []store.Key{jobKey(job.ID)}, true); err != nil {
		t.Fatal(err)
	}
	h.untilJob(job.ID, "the forced one", handled(2, store.Delivered))
	h.asksFor(job.ID)
	r := h.untilJob(job.ID, "the unforced one", handled(3, store.Delivered))
	if fetched.of(job.ID) != 2 || len(r.Files) != 1 || r.Settled != "hmac "+hmacOf(h.fetchers[0], job.ID) {
		t.Errorf("fetched %d times, settled %q\n%s", fetched.of(job.ID), r.Settled, describeReceipt(r))
	}
	h.holds(job.ID + ".json")
}

// TestAnEventThatCanNoLongerBeReadIsAskedAbout: it was verified when it came, so it is damage, and Fetcher knows.
func TestAnEventThatCanNoLongerBeReadIsAskedAbout(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs())
	job := h.ended(0, sandbox.Job{})
	h.announced(h.message(0, job.ID, sandbox.Emission{}))
	h.records(job.ID, func(r *store.Receipt) {
		r.Announced = map[string]json.RawMessage{fetcher.JobCompleted: []byte(`{"jobId":"` + job.ID + `","status":"completed"}`)}
	})
	h.work()
	r := h.untilJob(job.ID, "delivery", in(store.Delivered))
	if r.Authority != byFetcher || h.fetchers[0].Requests()[job.ID] != 1 {
		t.Errorf("by the word of %s, asked %d times", r.Authority, h.fetchers[0].Requests()[job.ID])
	}
	h.soundJob(0, job.ID)
}

// TestManyJobsCanWaitForOneFetcher: more than are weighed at a time wait for their turn to be asked about, and none is put off
// for a while that a service which works would spend idle.
func TestManyJobsCanWaitForOneFetcher(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	h := newHouse(t, jobs(counted(&results{job: func(id string) (*fetcher.Job, error) {
		<-goOn
		return &fetcher.Job{ID: id, Status: fetcher.Failed, Error: "no such table"}, nil
	}})))
	release := sync.OnceFunc(func() { close(goOn) })
	const many = describeBacklog + scanPage
	h.watches(unknownJobs(many)...)
	h.work()
	t.Cleanup(release)
	h.eventually("all wait for their turn, but those who have it", func() bool {
		return h.fetching[0].asked.len() == many-max(4, h.Config.Workers)
	}, func() string { return fmt.Sprint(h.fetching[0].asked.len(), " wait") })
	release()
	h.stop()
}

// TestAnAgentThatStopsWhileItsJobsWait leaves them due, whatever they wait for.
func TestAnAgentThatStopsWhileItsJobsWait(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs())
	h.fetchers[0].Objects.Down(true)
	h.fetchers[0].Down(true)
	batch := h.events(0, 20)
	watched := h.ended(0, sandbox.Job{}).ID
	h.announced(batch...)
	h.watches(watched)
	h.work()
	h.eventually("all are in work", func() bool { return h.Active() == len(batch)+1 }, func() string {
		return fmt.Sprint(h.Active(), " active")
	})
	h.stop()
	if h.Active() != 0 || h.waiting() != 0 {
		t.Errorf("%d active, %d waiting after the stop", h.Active(), h.waiting())
	}
	for _, id := range append(idsOf(batch), watched) {
		if r := h.receiptOf(jobKey(id)); r.Due.IsZero() || r.Attempts != 0 {
			t.Errorf("after the stop:\n%s", describeReceipt(r))
		}
	}
	h.fetchers[0].Objects.Down(false)
	h.fetchers[0].Down(false)
	h.restarts(nil)
	h.home(append(idsOf(batch), watched))
}

// TestAWeighedJobMakesRoomForTheNext: whoever fills the queue of what is to be weighed is told when a job has left it, even
// while nothing ends.
func TestAWeighedJobMakesRoomForTheNext(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs())
	job := h.ended(0, sandbox.Job{})
	h.announced(h.message(0, job.ID, sandbox.Emission{}))
	var wake chan struct{}
	for _, s := range h.schedules {
		if s.kind == store.Job {
			wake = s.wake
		}
	}
	for name, leave := range map[string]func(*transfer){
		"for its result":         func(tr *transfer) { h.queueResult(t.Context(), tr) },
		"to be asked about next": func(tr *transfer) { h.askNext(t.Context(), tr) },
	} {
		select {
		case <-wake:
		default:
		}
		leave(&transfer{key: jobKey(job.ID), generation: 1, asks: []int{0}, described: &description{}})
		select {
		case <-wake:
		default:
			t.Errorf("queued %s: nobody was told", name)
		}
	}
	h.release()
}
