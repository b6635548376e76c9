package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"recibo/downloads"
	"recibo/fetcher"
	"recibo/sandbox"
	"recibo/store"
)

// sealed plans one Fetcher without a storage key, whose results are delivered as they are stored.
func sealed(change ...func(*plan)) func(*plan) {
	return jobs(append(change, func(p *plan) { p.jobs.section = withoutKey })...)
}

func withoutKey(c *fetcher.Config, _ []*sandbox.Fetcher) {
	c.StorageKey, c.Encrypted = nil, fetcher.Deliver
}

// restarts ends the agent and has another one take over its ledger and folder, with another section fetcher.
func (h *house) restarts(section func(*fetcher.Config, []*sandbox.Fetcher)) {
	h.t.Helper()
	h.stop()
	o := h.Options
	o.Fetcher = h.fetcherOf(&plan{jobs: jobPlan{section: section}})
	h.Agent = New(o)
	h.work()
}

// asStored checks that a file is the object of a job as it is stored.
func (h *house) asStored(id, name string) {
	h.t.Helper()
	object, _ := h.fetchers[0].Objects.Get(h.fetchers[0].Key(id))
	if got := sumOf(h.t, filepath.Join(h.dir, name)); got != sumOfBytes(object) {
		h.t.Errorf("%s is not the object as it is stored", name)
	}
}

func TestWithoutAKeyAResultIsDeliveredAsItIsStored(t *testing.T) {
	t.Parallel()
	for _, revise := range []string{downloads.Keep, downloads.Replace} {
		t.Run(revise, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, sealed(func(p *plan) { p.downloads.OnRevision = revise }))
			h.work()
			job := h.completes(0, sandbox.Job{})
			r := h.untilJob(job.ID, "delivery", in(store.Encrypted))
			h.holds(job.ID + ".json.enc")
			h.asStored(job.ID, job.ID+".json.enc")
			f := r.Newest()
			if f.Proof != string(fetcher.Sealed) || f.Revision != 1 || f.HMAC == "" || f.Rows == 0 || r.Reason != "" || !r.Due.IsZero() {
				t.Errorf("on record: %+v\n%s", f, describeReceipt(r))
			}
			mode(t, filepath.Join(h.dir, job.ID+".json.enc"), 0o600)

			h.restarts(nil) // with the key
			if r := h.receiptOf(jobKey(job.ID)); r.State != store.Encrypted || !r.Due.IsZero() {
				t.Errorf("a key alone makes nothing due:\n%s", describeReceipt(r))
			}
			h.retries(job.ID)
			r = h.untilJob(job.ID, "the opened result", in(store.Delivered))
			h.holds(job.ID+".json", job.ID+".json.enc")
			h.soundJob(0, job.ID)
			h.asStored(job.ID, job.ID+".json.enc")
			if len(r.Files) != 2 || r.Newest().Revision != 2 || r.Newest().Name != job.ID+".json" || r.Files[0].Replaced {
				t.Errorf("on record: %+v", r.Files)
			}
			h.verifies(map[string]string{job.ID + ".json": "sound", job.ID + ".json.enc": "sound"})

			// Opened is opened, with or without the key.
			h.restarts(withoutKey)
			h.retries(job.ID)
			r = h.untilJob(job.ID, "the retry", handled(3, store.Delivered))
			if len(r.Files) != 2 {
				t.Errorf("on record: %+v", r.Files)
			}
			if err := os.Remove(filepath.Join(h.dir, job.ID+".json.enc")); err != nil {
				t.Fatal(err)
			}
			h.verifies(map[string]string{job.ID + ".json": "sound", job.ID + ".json.enc": "collected"})
		})
	}
}

func mode(t *testing.T, file string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("%s has mode %o, want %o", filepath.Base(file), got, want)
	}
}

// verifies checks what a verification says of every file.
func (h *house) verifies(want map[string]string) {
	h.t.Helper()
	got := map[string]string{}
	err := h.Verify(h.t.Context(), func(v Verification) error {
		got[v.File] = v.Verdict
		return nil
	}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	for file, verdict := range want {
		if got[file] != verdict {
			h.t.Errorf("%s is called %q, want %q", file, got[file], verdict)
		}
	}
	if len(got) != len(want) {
		h.t.Errorf("verified %v", got)
	}
}

// What is home as it is stored stays so, whatever else fails.
func TestASealedResultNeverDegrades(t *testing.T) {
	t.Parallel()
	h := newHouse(t, sealed(func(p *plan) { p.agent.Attempts = 2 }))
	h.work()
	job := h.completes(0, sandbox.Job{})
	h.untilJob(job.ID, "delivery", in(store.Encrypted))

	h.announced(h.message(0, job.ID, sandbox.Emission{Status: sandbox.JobFailed}))
	r := h.untilJob(job.ID, "the contradiction settled", handled(2, store.Encrypted))
	if len(r.Files) != 1 || r.Authority != byFetcher {
		t.Errorf("by the word of %s:\n%s", r.Authority, describeReceipt(r))
	}

	h.restarts(func(c *fetcher.Config, fs []*sandbox.Fetcher) { c.StorageKey = secretsOf(fs[0].ExternalKeyHex()) }) // the wrong one
	h.retries(job.ID)
	r = h.untilJob(job.ID, "the budget spent", func(r *store.Receipt) bool { return handled(3, store.Encrypted)(r) && r.Attempts == 2 })
	readable(t, r.Reason, "can't be opened")
	if r.State != store.Encrypted || len(r.Files) != 1 {
		t.Errorf("with a wrong key:\n%s", describeReceipt(r))
	}
	h.holds(job.ID + ".json.enc")

	h.restarts(nil)
	h.retries(job.ID)
	r = h.untilJob(job.ID, "the opened result", in(store.Delivered))
	if r.Reason != "" || r.Attempts != 0 || len(r.Files) != 2 {
		t.Errorf("with the right key:\n%s", describeReceipt(r))
	}
	h.soundJob(0, job.ID)
	h.holds(job.ID+".json", job.ID+".json.enc")
}

// Another completion of a sealed job is another revision, sealed or opened.
func TestASealedResultGeneratedAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t, sealed())
	h.work()
	job := h.completes(0, sandbox.Job{})
	h.untilJob(job.ID, "delivery", in(store.Encrypted))
	before := sumOf(t, filepath.Join(h.dir, job.ID+".json.enc"))

	// The id of an event stands for one completion, so that it is Fetcher that tells of another.
	h.ended(0, sandbox.Job{ID: job.ID, Seed: 7})
	h.announced(h.message(0, job.ID, sandbox.Emission{}))
	r := h.untilJob(job.ID, "the second completion", handled(2, store.Encrypted))
	h.holds(job.ID+".json.enc", job.ID+"-r2.json.enc")
	h.asStored(job.ID, job.ID+"-r2.json.enc")
	if sumOf(t, filepath.Join(h.dir, job.ID+".json.enc")) != before || len(r.Files) != 2 || r.Authority != byFetcher {
		t.Errorf("on record: %+v\n%s", r.Files, describeReceipt(r))
	}

	h.restarts(nil)
	h.asksFor(job.ID)
	r = h.untilJob(job.ID, "the opened result", in(store.Delivered))
	h.soundJob(0, job.ID)
	var names []string
	for _, f := range r.Files {
		names = append(names, f.Name)
	}
	if want := []string{job.ID + ".json.enc", job.ID + "-r2.json.enc", job.ID + ".json"}; !slices.Equal(names, want) {
		t.Errorf("on record are %q, want %q", names, want)
	}
	h.holds(names...)
}

// Without the key, a person who wants a verified result once more gets no sealed one in its place.
func TestAVerifiedResultIsNotFollowedByASealedOne(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs())
	h.work()
	job := h.completes(0, sandbox.Job{})
	h.untilJob(job.ID, "delivery", in(store.Delivered))
	h.restarts(withoutKey)
	asked, err := h.Fetch(t.Context(), []store.Key{jobKey(job.ID)}, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Wait(t.Context(), asked, false, func(*store.Receipt) error { return nil }); err != nil {
		t.Fatal(err)
	}
	r := h.receiptOf(jobKey(job.ID))
	if r.State != store.Delivered || len(r.Files) != 1 || r.Reason == "" {
		t.Errorf("on record:\n%s", describeReceipt(r))
	}
	h.holds(job.ID + ".json")
}
