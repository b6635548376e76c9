package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"recibo/fetcher"
	"recibo/sandbox"
	"recibo/store"
)

// requesters is metadata that no encoder of ours would write so: numbers beyond a float, an order of its own, escapes where
// none are needed and none where some would be, white space.
const requesters = `{ "z": 1, "a": 12345678901234567890.1200e-7, "huge": 1E4000, "source": "reporter",
  "html": "<a href=\"x\">&amp; & it's</a>", "escapes": "\u00e9 \ud83d\ude00 \u003cb\u003e \/ \u0009",
  "raw": "é 😀 ` + "\u2028" + `", "nested": {"b": [1 , 2.0, -0], "a": null, "B": {}}, "": false }`

func compact(t *testing.T, data []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return b.String()
}

// TestMetadataOfAJobIsKeptAsItWasWritten, whichever way it comes: it goes back to the requester unchanged.
func TestMetadataOfAJobIsKeptAsItWasWritten(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":%q,"status":"failed","metadata":%s}`, path.Base(r.URL.Path), requesters)
	}))
	t.Cleanup(api.Close)
	h := newHouse(t, jobs(func(p *plan) {
		p.jobs.manifest = true
		p.jobs.section = func(c *fetcher.Config, _ []*sandbox.Fetcher) { c.URL = api.URL }
	}))
	write := func(body []byte) []byte {
		return []byte(strings.Replace(string(body), `{"source":"reporter"}`, requesters, 1))
	}
	failing := func(body []byte) []byte {
		before, _, _ := strings.Cut(string(body), `"metadata":`)
		return []byte(before + `"metadata":` + requesters + `,"status":"failed"}`)
	}
	h.work()
	completed, asked := h.ended(0, sandbox.Job{}).ID, h.ended(0, sandbox.Job{}).ID
	failed := h.ended(0, sandbox.Job{Status: sandbox.JobFailed}).ID
	h.announced(h.message(0, completed, sandbox.Emission{Body: write}), h.message(0, failed, sandbox.Emission{Body: failing}))
	h.watches(asked)
	for id, want := range map[string]struct {
		state    store.State
		manifest string
	}{
		completed: {store.Delivered, completed + ".json.receipt.json"},
		failed:    {store.Failed, failed + ".receipt.json"},
		asked:     {store.Failed, asked + ".receipt.json"},
	} {
		r := h.untilJob(id, "the end", in(want.state))
		if got, want := string(r.Metadata), compact(t, []byte(requesters)); got != want {
			t.Errorf("%s: on record is\n%s, want\n%s", r.State, got, want)
		}
		var m manifest
		data, err := os.ReadFile(filepath.Join(h.dir, want.manifest))
		if err == nil {
			err = json.Unmarshal(data, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, want := compact(t, m.Metadata), compact(t, []byte(requesters)); got != want {
			t.Errorf("%s: in the manifest is\n%s, want\n%s", r.State, got, want)
		}
	}
}

// TestManifestsOfJobs says what stands beside a file, and beside none, and who may read it.
func TestManifestsOfJobs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		job     sandbox.Job
		section func(*fetcher.Config)
		mode    fs.FileMode
		state   store.State
		ext     string
	}{
		"delivered":            {mode: 0o600, state: store.Delivered, ext: ".json"},
		"delivered for others": {section: func(c *fetcher.Config) { c.Mode = "0640" }, mode: 0o640, state: store.Delivered, ext: ".json"},
		"sealed": {section: func(c *fetcher.Config) { c.StorageKey, c.Encrypted = nil, fetcher.Deliver },
			mode: 0o600, state: store.Encrypted, ext: ".json.enc"},
		"failed": {job: sandbox.Job{Status: sandbox.JobFailed, Error: "no such table: <secret>"}, mode: 0o600, state: store.Failed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, jobs(func(p *plan) {
				p.jobs.manifest = true
				p.jobs.section = func(c *fetcher.Config, _ []*sandbox.Fetcher) {
					if test.section != nil {
						test.section(c)
					}
				}
			}))
			h.work()
			job := h.completes(0, test.job)
			r := h.untilJob(job.ID, "the end", in(test.state))
			file := job.ID + test.ext + ".receipt.json"
			want := manifest{
				Kind: store.Job, ID: job.ID, State: test.state, Completed: r.CompletedAt, Tenant: "single-tenant",
				Reason: r.Reason, Metadata: r.Metadata,
				Source: r.Source, Authority: r.Authority,
			}
			if f := r.Newest(); f != nil {
				want.File, want.Size, want.SHA256, want.Revision, want.Proof = f.Name, f.Size, f.SHA256, 1, f.Proof
				want.Rows, want.HMAC = f.Rows, f.HMAC
				h.holds(job.ID+test.ext, file)
				mode(t, filepath.Join(h.dir, f.Name), test.mode)
			} else {
				h.holds(file)
				readable(t, r.Reason, test.job.Error)
			}
			mode(t, filepath.Join(h.dir, file), test.mode)
			h.saysManifest(file, want)
		})
	}
}

// saysManifest compares a manifest with what it has to say.
func (h *house) saysManifest(file string, want manifest) {
	h.t.Helper()
	data, err := os.ReadFile(filepath.Join(h.dir, file))
	if err != nil {
		h.t.Fatal(err)
	}
	var got manifest
	if err := json.Unmarshal(data, &got); err != nil {
		h.t.Fatal(err)
	}
	if got.Written.IsZero() || !bytes.HasSuffix(data, []byte("}\n")) {
		h.t.Errorf("%s was written at %s:\n%s", file, got.Written, data)
	}
	got.Written = want.Written
	got.Metadata, want.Metadata = []byte(compact(h.t, got.Metadata)), []byte(compact(h.t, want.Metadata))
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		h.t.Errorf("%s says\n%+v, want\n%+v", file, got, want)
	}
}

// TestAManifestFollowsItsJob: what stood beside no file tells of the file once there is one.
func TestAManifestFollowsItsJob(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs(func(p *plan) { p.jobs.manifest = true }))
	h.work()
	job := h.ended(0, sandbox.Job{})
	h.announced(h.message(0, job.ID, sandbox.Emission{Status: sandbox.JobFailed}))
	h.untilJob(job.ID, "failed", in(store.Failed))
	h.holds(job.ID + ".receipt.json")
	h.announced(h.message(0, job.ID, sandbox.Emission{}))
	r := h.untilJob(job.ID, "delivered", in(store.Delivered))
	h.holds(job.ID+".json", job.ID+".json.receipt.json", job.ID+".receipt.json")
	for _, file := range []string{job.ID + ".json.receipt.json", job.ID + ".receipt.json"} {
		f := r.Newest()
		h.saysManifest(file, manifest{
			Kind: store.Job, ID: job.ID, State: store.Delivered, Completed: r.CompletedAt, Tenant: "single-tenant", Metadata: r.Metadata,
			File: f.Name, Size: f.Size, SHA256: f.SHA256, Revision: 1, Proof: f.Proof, Rows: f.Rows, HMAC: f.HMAC,
			Source: r.Source, Authority: r.Authority,
		})
	}
}
