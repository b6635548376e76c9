package agent

import (
	"context"
	"strings"
	"testing"

	"recibo/fetcher"
	"recibo/hub"
	"recibo/sandbox"
	"recibo/store"
)

// A contradiction that comes while a result is being brought home is about the next attempt.
func TestAContradictionDuringAnAttemptIsNotLost(t *testing.T) {
	t.Parallel()
	for name, contradict := range map[string]func(*house, string) hub.Delivery{
		"another body": func(h *house, id string) hub.Delivery {
			return h.message(0, id, sandbox.Emission{Body: func(body []byte) []byte {
				return []byte(strings.Replace(string(body), `"source":"reporter"`, `"source":"x"`, 1))
			}})
		},
		"the other end": func(h *house, id string) hub.Delivery {
			return h.message(0, id, sandbox.Emission{Status: sandbox.JobFailed})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOracle(t)
			begun, goOn := make(chan struct{}, 9), make(chan struct{})
			fetched := &results{before: func(ctx context.Context, _ string) {
				begun <- struct{}{}
				select {
				case <-goOn:
				case <-ctx.Done():
				}
			}}
			h := newHouse(t, jobs(counted(fetched), func(p *plan) {
				p.jobs.section = func(c *fetcher.Config, _ []*sandbox.Fetcher) { c.URL = o.server.URL }
			}))
			other := h.ended(0, sandbox.Job{Size: 9000})
			h.work()
			job := h.completes(0, sandbox.Job{})
			o.knows("other", job.ID, h.fetchers[0], other.ID)
			o.says("other")
			<-begun
			h.announced(contradict(h, job.ID))
			if asked := o.of(job.ID); asked > 0 {
				t.Fatalf("asked %d times while an attempt ran", asked)
			}
			close(goOn)
			r := h.untilJob(job.ID, "both handled", handled(2, store.Delivered))
			if len(r.Files) != 2 || r.Authority != byFetcher || o.of(job.ID) != 1 || fetched.of(job.ID) != 2 {
				t.Errorf("%d files by the word of %s, asked %d times, fetched %d times\n%s",
					len(r.Files), r.Authority, o.of(job.ID), fetched.of(job.ID), describeReceipt(r))
			}
			h.holds(job.ID+".json", job.ID+"-r2.json")

			// What Fetcher decided is not taken back by the event when the job comes up again.
			h.retries(job.ID)
			r = h.untilJob(job.ID, "the retry", handled(3, store.Delivered))
			if len(r.Files) != 2 || r.Authority != byFetcher || o.of(job.ID) != 2 || fetched.of(job.ID) != 2 {
				t.Errorf("after a retry %d files by the word of %s, asked %d times, fetched %d times\n%s",
					len(r.Files), r.Authority, o.of(job.ID), fetched.of(job.ID), describeReceipt(r))
			}
		})
	}
}

// What Fetcher decided about a contradiction holds until it has come home: a failed attempt does not fall back on the event.
func TestAContradictionOutlivesAnAttemptThatFails(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	h := newHouse(t, jobs(func(p *plan) {
		p.jobs.section = func(c *fetcher.Config, _ []*sandbox.Fetcher) { c.URL = o.server.URL }
	}))
	f := h.fetchers[0]
	job, other := h.ended(0, sandbox.Job{Size: 3000}), h.ended(0, sandbox.Job{Size: 9000})
	o.knows("other", job.ID, f, other.ID)
	o.says("other")
	f.Objects.Cut(f.Key(other.ID), 2)
	h.work()
	h.announced(h.message(0, job.ID, sandbox.Emission{}), h.message(0, job.ID, sandbox.Emission{Body: func(body []byte) []byte {
		return []byte(strings.Replace(string(body), `"source":"reporter"`, `"source":"x"`, 1))
	}}))
	r := h.untilJob(job.ID, "delivery", in(store.Delivered))
	_, sum := f.Sum(other.ID)
	if len(r.Files) != 1 || r.Files[0].SHA256 != sum || r.Authority != byFetcher {
		t.Errorf("%d files, by the word of %s\n%s", len(r.Files), r.Authority, describeReceipt(r))
	}
	if asked := o.of(job.ID); asked != 3 || notes(r, "attempt ") != 2 {
		t.Errorf("asked %d times, want once for each attempt\n%s", asked, describeReceipt(r))
	}
}

// TestAReleaseDecidesAContradiction where there is nobody to ask: what a person releases overrides what was announced.
func TestAReleaseDecidesAContradiction(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs(counted(&results{asks: never})))
	h.work()
	job, other := h.completes(0, sandbox.Job{Size: 3000}), h.ended(0, sandbox.Job{Size: 9000})
	h.untilJob(job.ID, "the first word", in(store.Delivered))
	said, err := h.fetchers[0].Message(other.ID, sandbox.Emission{})
	if err != nil {
		t.Fatal(err)
	}
	second := h.message(0, job.ID, sandbox.Emission{Body: func([]byte) []byte {
		return []byte(strings.Replace(string(said.Body), `"jobId":"`+other.ID, `"jobId":"`+job.ID, 1))
	}})
	for range 3 {
		if got := h.announced(second); got[0] != hub.Quarantined {
			t.Errorf("outcome %v", got)
		}
	}
	r := h.untilJob(job.ID, "the contradiction looked at", handled(2, store.Delivered))
	if len(r.Files) != 1 || !r.Contested {
		t.Errorf("contested:\n%s", describeReceipt(r))
	}
	kept, err := h.Ledger.Quarantine(t.Context(), 0, 10)
	if err != nil || len(kept) != 1 || kept[0].Times != 3 {
		t.Fatalf("in quarantine: %+v, %v", kept, err)
	}
	k, outcome, err := h.Release(t.Context(), &kept[0], "")
	if k != jobKey(job.ID) || outcome != store.Admitted || err != nil {
		t.Fatalf("released: %v, %v, %v", k, outcome, err)
	}
	r = h.untilJob(job.ID, "what was released", handled(3, store.Delivered))
	_, sum := h.fetchers[0].Sum(other.ID)
	if len(r.Files) != 2 || r.Newest().SHA256 != sum || r.Authority != bySignedEvent || r.Contested {
		t.Errorf("released: %+v\n%s", r.Files, describeReceipt(r))
	}
	h.holds(job.ID+".json", job.ID+"-r2.json")
}
