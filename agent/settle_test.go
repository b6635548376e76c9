package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"recibo/downloads"
	"recibo/fetcher"
	"recibo/hub"
	"recibo/reporter"
	"recibo/rest"
	"recibo/sandbox"
	"recibo/setting"
	"recibo/store"
)

// patience is how long a condition may take to come true; what is right takes far less.
const patience = time.Minute

// plan is what a house is made of.
type plan struct {
	agent     Config
	downloads downloads.Config
	rest      rest.Config
	options   rest.Options
	sandbox   sandbox.Options
	jobs      jobPlan
}

// house is an agent with everything that it works with, all of it real: Reporter, Fetchers, download folder and ledger.
type house struct {
	*Agent
	t        *testing.T
	reporter *sandbox.Reporter
	fetchers []*sandbox.Fetcher // as many as planned, usually none
	judge    *fetcher.Fetcher   // of the messages of jobs
	dir      string             // the download folder
	path     string             // the ledger
	stop     func()             // ends the work and waits for its end
}

func newHouse(t *testing.T, change func(*plan)) *house {
	t.Helper()
	base := t.TempDir()
	p := plan{agent: DefaultConfig(), downloads: downloads.DefaultConfig(), rest: rest.DefaultConfig(), sandbox: sandbox.Options{NoHub: true}}
	p.agent.Backoff = setting.Range{Min: time.Millisecond, Max: 5 * time.Millisecond}
	p.agent.Shutdown = 5 * time.Second
	p.downloads.Dir, p.downloads.MinFree = filepath.Join(base, "home"), 0
	p.options = rest.Options{ProbeBase: 10 * time.Millisecond, ProbeCap: 50 * time.Millisecond}
	if change != nil {
		change(&p)
	}
	sb, err := sandbox.Start(t.Context(), p.sandbox)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sb.Close)
	h := &house{t: t, reporter: sb.Reporter, dir: p.downloads.Dir, path: filepath.Join(base, "recibo.db"), stop: func() {}}
	ledger, err := store.Open(h.path, store.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ledger.Close(); err != nil {
			t.Error(err)
		}
	})
	folder, err := downloads.Open(p.downloads, downloads.Options{Owner: ledger.InstanceID(), Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	client, err := reporter.New(p.rest, reporter.Config{URL: sb.ReporterURL()}, p.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	o := Options{Config: p.agent, Ledger: ledger, Folder: folder, MaxSize: p.downloads.MaxSize, Reporter: client, Log: testLog(t)}
	h.addFetchers(&p, &o)
	h.Agent = New(o)
	return h
}

// work lets the agent work until the test ends, or stop is called.
func (h *house) work() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Work(ctx) }()
	stopped := false
	h.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			h.t.Error("the work ended:", err)
		}
	}
	h.t.Cleanup(func() { h.stop() })
}

// event admits an event about a report, as a transport does.
func (h *house) event(id, name, report string) hub.Outcome {
	h.t.Helper()
	outcomes, err := h.Admit(h.t.Context(), []hub.Delivery{delivery(id, name, report)})
	if err != nil {
		h.t.Fatal(err)
	}
	return outcomes[0]
}

func delivery(id, name, report string) hub.Delivery {
	return hub.Delivery{
		Verdict: hub.Accept, Transport: "nats", Origin: "STREAMING_HUB:1", Raw: []byte(`{}`),
		Event: hub.Event{ID: id, Name: name, ReportID: report, Source: "reporter"},
	}
}

func keyOf(id string) store.Key { return store.Key{Kind: store.Report, ID: id} }

func (h *house) receipt(id string) *store.Receipt {
	h.t.Helper()
	return h.receiptOf(keyOf(id))
}

func (h *house) receiptOf(k store.Key) *store.Receipt {
	h.t.Helper()
	r, err := h.Ledger.Get(context.Background(), k)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

// until waits for a receipt that is as it should be and in nobody's hands.
func (h *house) until(id, what string, ok func(*store.Receipt) bool) *store.Receipt {
	h.t.Helper()
	return h.untilOf(keyOf(id), what, ok)
}

func (h *house) untilOf(k store.Key, what string, ok func(*store.Receipt) bool) *store.Receipt {
	h.t.Helper()
	var r *store.Receipt
	h.eventually(what, func() bool {
		var err error
		r, err = h.Ledger.Get(context.Background(), k)
		return err == nil && !h.isActive(k) && ok(r)
	}, func() string { return describeReceipt(r) })
	return r
}

// eventually waits for a condition.
func (h *house) eventually(what string, ok func() bool, last func() string) {
	h.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			h.t.Fatalf("%s: not within %s\n%s", what, patience, last())
		}
	}
}

func describeReceipt(r *store.Receipt) string {
	if r == nil {
		return "no receipt"
	}
	lines := []string{fmt.Sprintf("state %s, generation %d of %d, attempts %d, due %v, files %d, reason %q",
		r.State, r.Handled, r.Generation, r.Attempts, r.Due, len(r.Files), r.Reason)}
	for _, e := range r.Timeline {
		lines = append(lines, "  "+e.What)
	}
	return strings.Join(lines, "\n")
}

func in(state store.State) func(*store.Receipt) bool {
	return func(r *store.Receipt) bool { return r.State == state && r.Handled == r.Generation }
}

// notes counts the lines of the timeline that begin with a text.
func notes(r *store.Receipt, prefix string) int {
	n := 0
	for _, e := range r.Timeline {
		if strings.HasPrefix(e.What, prefix) {
			n++
		}
	}
	return n
}

// files lists what an importer sees in a download folder, and what is staged.
func filesIn(t *testing.T, dir string) (visible, staged []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		switch {
		case strings.HasPrefix(name, ".recibo/staging/"):
			staged = append(staged, name)
		case !strings.HasPrefix(name, ".recibo/"):
			visible = append(visible, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return visible, staged
}

// holds checks that the folder shows exactly these files and that nothing is left staged.
func (h *house) holds(want ...string) {
	h.t.Helper()
	visible, staged := filesIn(h.t, h.dir)
	slices.Sort(want)
	if !slices.Equal(visible, want) {
		h.t.Errorf("the folder holds %q, want %q", visible, want)
	}
	if len(staged) > 0 {
		h.t.Errorf("left staged: %q", staged)
	}
}

// sumOf is the SHA-256 of a file.
func sumOf(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sumOfBytes(data)
}

func sumOfBytes(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// sound checks that a receipt's newest file is the report as Reporter has it now, on disk and on record.
func (h *house) sound(id string) {
	h.t.Helper()
	f := h.receipt(id).Newest()
	if f == nil {
		h.t.Fatalf("%s: nothing on record", id)
	}
	size, sum := h.reporter.Sum(id)
	if f.Size != size || f.SHA256 != sum {
		h.t.Errorf("on record are %d bytes %s, Reporter has %d bytes %s", f.Size, f.SHA256, size, sum)
	}
	if got := sumOf(h.t, filepath.Join(h.dir, f.Name)); got != sum {
		h.t.Errorf("%s holds other bytes: %s, Reporter has %s", f.Name, got, sum)
	}
}

// readable checks a text for people: not empty, one line, bounded.
func readable(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) || strings.ContainsAny(text, "\n\r\x00\x1b") || len(text) > 4096 {
		t.Errorf("reason %q: want one line with %q", text, part)
	}
}

// TestFaultsOfADownload has every fault that a download can meet, and what becomes of the receipt: its end, what of its
// budget was spent, how often the file was asked for, and what proved it whole.
func TestFaultsOfADownload(t *testing.T) {
	t.Parallel()
	type fault = sandbox.Fault
	once := func(f ...fault) []fault { return f }
	tests := map[string]struct {
		faults   []fault
		format   string // default pdf
		ranges   bool
		sticky   bool
		era      sandbox.Era
		state    store.State // default delivered
		proof    string
		spent    int // failed attempts about this report
		requests int // for the file
		reason   string
	}{
		"in order":                     {proof: "length", requests: 1},
		"cut in the middle":            {faults: once(fault{Kind: sandbox.CutBody, Bytes: 9000}), proof: "length", spent: 1, requests: 2, reason: "broken off"},
		"cut before the last byte":     {faults: once(fault{Kind: sandbox.CutBody, Bytes: -1}), proof: "length", spent: 1, requests: 2, reason: "broken off"},
		"cut, and the rest can be had": {faults: once(fault{Kind: sandbox.CutBody, Bytes: 9000}), ranges: true, proof: "length", requests: 2},
		"cut, and ranges are ignored after a validator": {
			faults: once(fault{Kind: sandbox.CutBody, Bytes: 9000, With: &fault{Kind: sandbox.ETag}}), proof: "length", requests: 2},
		"cut, and the rest begins elsewhere": {
			faults: once(fault{Kind: sandbox.CutBody, Bytes: 9000, With: &fault{Kind: sandbox.ETag}}, fault{Kind: sandbox.WrongRange}),
			proof:  "length", requests: 3},
		"cut, and the validator is weak": {
			faults: once(fault{Kind: sandbox.CutBody, Bytes: 9000, With: &fault{Kind: sandbox.WeakETag}}),
			proof:  "length", spent: 1, requests: 2, reason: "broken off"},
		"chunked":          {faults: once(fault{Kind: sandbox.NoLength}), proof: "chunked", requests: 1},
		"chunked and cut":  {faults: once(fault{Kind: sandbox.NoLength, With: &fault{Kind: sandbox.CutBody, Bytes: 9000}}), proof: "length", spent: 1, requests: 2, reason: "broken off"},
		"a strong ETag":    {faults: once(fault{Kind: sandbox.ETag}), proof: "length", requests: 1},
		"a weak ETag":      {faults: once(fault{Kind: sandbox.WeakETag}), proof: "length", requests: 1},
		"close-delimited":  {faults: once(fault{Kind: sandbox.CloseDelimited}), proof: "end-mark", requests: 1},
		"close, as XML":    {faults: once(fault{Kind: sandbox.CloseDelimited}), format: "xml", proof: "end-mark", requests: 1},
		"close, as HTML":   {faults: once(fault{Kind: sandbox.CloseDelimited}), format: "html", proof: "end-mark", requests: 1},
		"close, as CSV":    {faults: once(fault{Kind: sandbox.CloseDelimited}, fault{Kind: sandbox.CloseDelimited}), format: "csv", proof: "two downloads", requests: 2},
		"close, as text":   {faults: once(fault{Kind: sandbox.CloseDelimited}), format: "txt", proof: "two downloads", requests: 2},
		"close, cut":       {faults: once(fault{Kind: sandbox.CloseDelimited, Bytes: 9000}), proof: "length", spent: 1, requests: 2, reason: "end mark"},
		"close, XML cut":   {faults: once(fault{Kind: sandbox.CloseDelimited, Bytes: -2}), format: "xml", proof: "length", spent: 1, requests: 2, reason: "end mark"},
		"close, CSV cut":   {faults: once(fault{Kind: sandbox.CloseDelimited, Bytes: 9000}), format: "csv", proof: "length", spent: 1, requests: 3, reason: "differ"},
		"a wrong length":   {faults: once(fault{Kind: sandbox.WrongLength}), proof: "length", spent: 1, requests: 2, reason: "broken off"},
		"slow":             {faults: once(fault{Kind: sandbox.SlowBytes, Bytes: 4096, Interval: time.Millisecond}), proof: "length", requests: 1},
		"stalled":          {faults: once(fault{Kind: sandbox.SlowBytes, Bytes: 4096, Interval: time.Hour}), proof: "length", spent: 1, requests: 2, reason: "no byte for"},
		"a late header":    {faults: once(fault{Kind: sandbox.LateFirstByte, Interval: 20 * time.Millisecond}), proof: "length", requests: 1},
		"no header":        {faults: once(fault{Kind: sandbox.Hang}), proof: "length", spent: 1, requests: 2, reason: "too slow"},
		"429":              {faults: once(fault{Kind: sandbox.TooMany}), proof: "length", requests: 2},
		"429 with a time":  {faults: once(fault{Kind: sandbox.TooMany, RetryAfter: "1"}), proof: "length", requests: 2},
		"503 of a gateway": {faults: once(fault{Kind: sandbox.Status, Code: 503, Body: "upstream connect error"}), proof: "length", requests: 2},
		"401":              {faults: once(fault{Kind: sandbox.Status, Code: 401, Body: "Missing Token"}), proof: "length", requests: 2},
		"403":              {faults: once(fault{Kind: sandbox.Status, Code: 403, Body: "Forbidden"}), proof: "length", requests: 2},
		"500 for a token":  {faults: once(fault{Kind: sandbox.Status, Code: 500, Body: `{"code":"IDE-0001","title":"Internal"}`}), proof: "length", requests: 2},
		"a login page":     {faults: once(fault{Kind: sandbox.HTMLInstead}), proof: "length", spent: 1, requests: 2, reason: "HTML"},
		"an error in JSON": {faults: once(fault{Kind: sandbox.JSONErrorInstead}), proof: "length", spent: 1, requests: 2, reason: "JSON"},
		"a login page for HTML": {faults: once(fault{Kind: sandbox.HTMLInstead}), format: "html",
			proof: "length", spent: 1, requests: 2, reason: "HTML"},
		"not ready":             {faults: once(fault{Kind: sandbox.NotReady}), proof: "length", spent: 1, requests: 2, reason: "TPL-0029"},
		"not ready, 2026":       {faults: once(fault{Kind: sandbox.NotReady}), era: sandbox.V2026, proof: "length", spent: 1, requests: 2, reason: "0260"},
		"no file":               {faults: once(fault{Kind: sandbox.MissingFile}), proof: "length", spent: 1, requests: 2, reason: "TPL-0034"},
		"no file, 2026":         {faults: once(fault{Kind: sandbox.MissingFile}), era: sandbox.V2026, proof: "length", spent: 1, requests: 2, reason: "0265"},
		"no template":           {faults: once(fault{Kind: sandbox.TemplateDeleted}), proof: "length", spent: 1, requests: 2, reason: "TPL-0011"},
		"compressed unasked":    {faults: once(fault{Kind: sandbox.Gzip}), proof: "length", requests: 1},
		"no file for ever":      {faults: once(fault{Kind: sandbox.MissingFile}), sticky: true, state: store.Parked, spent: 3, requests: 3, reason: "TPL-0034"},
		"no file for ever 2026": {faults: once(fault{Kind: sandbox.MissingFile}), sticky: true, era: sandbox.V2026, state: store.Parked, spent: 3, requests: 3, reason: "0265"},
		"always cut":            {faults: once(fault{Kind: sandbox.CutBody, Bytes: 9000}), sticky: true, state: store.Parked, spent: 3, requests: 3, reason: "broken off"},
		"always a login page":   {faults: once(fault{Kind: sandbox.HTMLInstead}), sticky: true, state: store.Parked, spent: 3, requests: 3, reason: "HTML"},
		"not ready for ever":    {faults: once(fault{Kind: sandbox.NotReady}), sticky: true, state: store.Parked, spent: 3, requests: 3, reason: "TPL-0029"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, func(p *plan) {
				p.agent.Attempts = 3
				p.rest.IdleTimeout, p.rest.HeaderTimeout = 500*time.Millisecond, 500*time.Millisecond
				p.sandbox.Reporter.Era = test.era
			})
			report := h.reporter.Add(sandbox.Report{
				Format: test.format, Size: 20_000, Faults: test.faults, Sticky: test.sticky, Ranges: test.ranges,
			})
			h.work()
			h.event("e-1", hub.ReportFinished, report.ID)
			state := test.state
			if state == "" {
				state = store.Delivered
			}
			r := h.until(report.ID, "the end", in(state))
			if state == store.Delivered {
				h.sound(report.ID)
				h.holds(report.ID + "." + report.Format)
				if got := r.Newest().Proof; got != test.proof {
					t.Errorf("proof %q, want %q", got, test.proof)
				}
				if r.Attempts != 0 || r.Reason != "" || !r.Due.IsZero() {
					t.Errorf("delivered with attempts %d, reason %q, due %v", r.Attempts, r.Reason, r.Due)
				}
			} else {
				h.holds()
				readable(t, r.Reason, test.reason)
				if r.Attempts != test.spent || !r.Due.IsZero() || r.Intent != nil {
					t.Errorf("parked with %d attempts, want %d; due %v", r.Attempts, test.spent, r.Due)
				}
			}
			failed := test.spent
			if state == store.Parked {
				failed-- // the last one is noted as parked
			}
			if got := notes(r, "attempt "); got != failed {
				t.Errorf("%d failed attempts, want %d\n%s", got, failed, describeReceipt(r))
			}
			if failed > 0 {
				for _, e := range r.Timeline {
					if strings.HasPrefix(e.What, "attempt 1 ") {
						readable(t, e.What, test.reason)
					}
				}
			}
			if got := h.reporter.Requests().DownloadsOf[report.ID]; got != test.requests {
				t.Errorf("the file was asked for %d times, want %d", got, test.requests)
			}
		})
	}
}

// TestFaultsOfADescription has the faults of GET /v1/reports/{id}. What a gateway or a service in trouble answers says
// nothing about the report, and spends none of its budget.
func TestFaultsOfADescription(t *testing.T) {
	t.Parallel()
	type fault = sandbox.Fault
	tests := map[string]struct {
		fault       fault
		event       string
		state       store.State
		spent, gets int
		undescribed bool
		reason      string
	}{
		"a gateway's 503": {fault: fault{Kind: sandbox.Status, Code: 503, Body: "no healthy upstream"}, state: store.Delivered, gets: 2},
		"429":             {fault: fault{Kind: sandbox.TooMany}, state: store.Delivered, gets: 2},
		"401":             {fault: fault{Kind: sandbox.Status, Code: 401, Body: "Missing Token"}, state: store.Delivered, gets: 2},
		"late":            {fault: fault{Kind: sandbox.LateFirstByte, Interval: 20 * time.Millisecond}, state: store.Delivered, gets: 1},
		"compressed":      {fault: fault{Kind: sandbox.Gzip}, state: store.Delivered, gets: 1},
		"chunked":         {fault: fault{Kind: sandbox.NoLength}, state: store.Delivered, gets: 1},
		"cut":             {fault: fault{Kind: sandbox.CutBody, Bytes: 20}, state: store.Delivered, spent: 1, gets: 2},
		"a login page":    {fault: fault{Kind: sandbox.HTMLInstead}, state: store.Pending, gets: 1, reason: "invalid character '<'"},
		"an error in 200": {fault: fault{Kind: sandbox.JSONErrorInstead}, state: store.Pending, gets: 1, reason: "unexpected answer"},
		"forbidden, and an event says finished": {
			fault: fault{Kind: sandbox.Status, Code: 403, Body: "Forbidden"}, state: store.Delivered, gets: 1, undescribed: true},
		"not known, and an event says finished": {
			fault: fault{Kind: sandbox.TemplateDeleted}, state: store.Delivered, gets: 1, undescribed: true},
		"no such method, and an event says finished": {
			fault: fault{Kind: sandbox.Status, Code: 405, Body: "no"}, state: store.Delivered, gets: 1, undescribed: true},
		"not implemented, and an event says finished": {
			fault: fault{Kind: sandbox.Status, Code: 501, Body: "no"}, state: store.Delivered, gets: 1, undescribed: true},
		"forbidden, and an event says partial": {
			fault: fault{Kind: sandbox.Status, Code: 403, Body: "Forbidden"}, event: hub.ReportPartial, state: store.Pending, gets: 1, reason: "403"},
		"not known, and an event says partial": {
			fault: fault{Kind: sandbox.TemplateDeleted}, event: hub.ReportPartial, state: store.Delivered, spent: 1, gets: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, nil)
			report := h.reporter.Add(sandbox.Report{})
			h.reporter.Fault(sandbox.ClassGet, 1, test.fault)
			h.work()
			event := test.event
			if event == "" {
				event = hub.ReportFinished
			}
			h.event("e-1", event, report.ID)
			r := h.until(report.ID, "the outcome", func(r *store.Receipt) bool {
				return in(test.state)(r) && (r.State != store.Pending || time.Until(r.Due) > 30*time.Second)
			})
			if got := notes(r, "attempt "); got != test.spent {
				t.Errorf("%d failed attempts, want %d\n%s", got, test.spent, describeReceipt(r))
			}
			if got := h.reporter.Requests().GetsOf[report.ID]; got != test.gets {
				t.Errorf("asked %d times, want %d", got, test.gets)
			}
			if r.Undescribed != test.undescribed {
				t.Errorf("undescribed %v, want %v", r.Undescribed, test.undescribed)
			}
			if test.state == store.Delivered {
				h.sound(report.ID)
				h.holds(report.ID + ".pdf")
				return
			}
			h.holds()
			readable(t, r.Reason, test.reason)
			if r.Attempts != 0 {
				t.Errorf("%d attempts were spent on what is not about the report", r.Attempts)
			}
		})
	}
}

// TestFaultsOfAList: a sweep that fails changes nothing, and the next one brings home what it describes, without a GET.
func TestFaultsOfAList(t *testing.T) {
	t.Parallel()
	type fault = sandbox.Fault
	tests := map[string]struct {
		fault fault
		fails bool
	}{
		"in order":     {fault{Kind: sandbox.NoFault}, false},
		"compressed":   {fault{Kind: sandbox.Gzip}, false},
		"cut":          {fault{Kind: sandbox.CutBody, Bytes: 30}, true},
		"503":          {fault{Kind: sandbox.Status, Code: 503, Body: "no healthy upstream"}, true},
		"429":          {fault{Kind: sandbox.TooMany}, true},
		"a login page": {fault{Kind: sandbox.HTMLInstead}, true},
		"an error":     {fault{Kind: sandbox.JSONErrorInstead}, true},
		"forbidden":    {fault{Kind: sandbox.Status, Code: 403, Body: "Forbidden"}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, nil)
			report := h.reporter.Add(sandbox.Report{})
			// A request that is repeated at once meets the fault again: two of them fail one call.
			n := 1
			if test.fails {
				n = -1
			}
			h.reporter.Fault(sandbox.ClassList, n, test.fault)
			h.work()
			<-h.Started()
			_, err := h.Sweep(t.Context(), Sweep{})
			if (err != nil) != test.fails {
				t.Fatalf("the sweep ended with %v", err)
			}
			if test.fails {
				if _, err := h.Ledger.Get(t.Context(), keyOf(report.ID)); !errors.Is(err, store.ErrNotFound) {
					t.Errorf("a sweep that failed left a receipt: %v", err)
				}
				if _, ok, _ := h.LastSweep(t.Context()); ok {
					t.Error("a sweep that failed counts as complete")
				}
				h.reporter.Fault(sandbox.ClassList, 0, fault{})
				if _, err := h.Sweep(t.Context(), Sweep{}); err != nil {
					t.Fatal(err)
				}
			}
			h.until(report.ID, "delivery", in(store.Delivered))
			h.sound(report.ID)
			if asked := h.reporter.Requests(); asked.Gets != 0 || asked.Downloads != 1 {
				t.Errorf("%d descriptions and %d downloads, want 0 and 1: the list has just described it", asked.Gets, asked.Downloads)
			}
		})
	}
}

func TestAReportGeneratedAgain(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change   func(*sandbox.Report)
		revise   string // downloads.on_revision
		gets     int
		requests int
		files    []string // suffixes
		revision int
	}{
		"with other bytes": {
			change: func(r *sandbox.Report) { r.Seed, r.CompletedAt = 7, r.CompletedAt.Add(time.Hour) },
			gets:   2, requests: 2, files: []string{".pdf", "-r2.pdf"}, revision: 2},
		"with other bytes in the place of the first": {
			change: func(r *sandbox.Report) { r.Seed, r.CompletedAt = 7, r.CompletedAt.Add(time.Hour) }, revise: downloads.Replace,
			gets: 2, requests: 2, files: []string{".pdf"}, revision: 2},
		"with equal bytes": {
			change: func(r *sandbox.Report) { r.CompletedAt = r.CompletedAt.Add(time.Hour) },
			gets:   2, requests: 2, files: []string{".pdf"}, revision: 1},
		"not at all: another event about the same completion": {
			change: func(*sandbox.Report) {},
			gets:   2, requests: 1, files: []string{".pdf"}, revision: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, func(p *plan) {
				if test.revise != "" {
					p.downloads.OnRevision = test.revise
				}
			})
			report := h.reporter.Add(sandbox.Report{CompletedAt: time.Now().Add(-2 * time.Hour)})
			h.work()
			h.event("e-1", hub.ReportFinished, report.ID)
			h.until(report.ID, "the first delivery", in(store.Delivered))
			h.reporter.Set(report.ID, test.change)
			h.event("e-2", hub.ReportFinished, report.ID)
			r := h.until(report.ID, "the second event handled", func(r *store.Receipt) bool { return r.Generation == 2 && in(store.Delivered)(r) })
			var names []string
			for _, suffix := range test.files {
				names = append(names, report.ID+suffix)
			}
			h.holds(names...)
			h.sound(report.ID)
			if got := r.Newest().Revision; got != test.revision || len(r.Files) != test.revision {
				t.Errorf("revision %d of %d on record, want %d", got, len(r.Files), test.revision)
			}
			if r.Files[0].Replaced != (test.revise == downloads.Replace) {
				t.Errorf("the first file is on record as replaced: %v", r.Files[0].Replaced)
			}
			now, _ := h.reporter.Get(report.ID)
			if !reporter.SameCompletion(r.Settled, now.CompletedAt.UTC().Format(time.RFC3339Nano)) {
				t.Errorf("settled for the completion of %s, now %s", r.Settled, now.CompletedAt)
			}
			asked := h.reporter.Requests()
			if asked.GetsOf[report.ID] != test.gets || asked.DownloadsOf[report.ID] != test.requests {
				t.Errorf("%d descriptions and %d downloads, want %d and %d",
					asked.GetsOf[report.ID], asked.DownloadsOf[report.ID], test.gets, test.requests)
			}
		})
	}
}

func TestAnEventDuringADownloadIsNotSwallowed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	// Slow until the second event is in: the download can't end before it.
	report := h.reporter.Add(sandbox.Report{Size: 20_000, CompletedAt: time.Now().Add(-time.Hour), Faults: []sandbox.Fault{
		{Kind: sandbox.SlowBytes, Bytes: 1000, Interval: 100 * time.Millisecond}}})
	h.work()
	h.event("e-1", hub.ReportFinished, report.ID)
	h.eventually("the download has begun", func() bool { return len(h.Transfers()) == 1 }, func() string { return "" })
	h.reporter.Set(report.ID, func(r *sandbox.Report) { r.Seed, r.CompletedAt, r.Faults = 7, time.Now(), nil })
	h.event("e-2", hub.ReportFinished, report.ID)
	if visible, _ := filesIn(t, h.dir); len(visible) > 0 {
		t.Fatalf("the first download ended before the second event came: %q", visible)
	}
	r := h.until(report.ID, "both events handled", func(r *store.Receipt) bool { return r.Generation == 2 && in(store.Delivered)(r) })
	h.holds(report.ID+".pdf", report.ID+"-r2.pdf")
	h.sound(report.ID)
	if len(r.Files) != 2 {
		t.Errorf("%d files on record, want 2", len(r.Files))
	}
}

func TestADeliveredReportStaysDeliveredWhateverUpstreamSaysLater(t *testing.T) {
	t.Parallel()
	for _, status := range []string{sandbox.Partial, sandbox.Failed, sandbox.Processing} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, nil)
			report := h.reporter.Add(sandbox.Report{CompletedAt: time.Now().Add(-time.Hour)})
			h.work()
			h.event("e-1", hub.ReportFinished, report.ID)
			before := h.until(report.ID, "delivery", in(store.Delivered))
			h.reporter.Set(report.ID, func(r *sandbox.Report) {
				r.Status, r.CompletedAt, r.Metadata = status, time.Time{}, map[string]any{"error": "too late"}
			})
			h.event("e-2", hub.ReportPartial, report.ID)
			r := h.until(report.ID, "the second event handled", func(r *store.Receipt) bool { return r.Generation == 2 && r.Handled == 2 })
			if r.State != store.Delivered || len(r.Files) != 1 || r.Settled != before.Settled || r.Status != status {
				t.Errorf("after %s:\n%s", status, describeReceipt(r))
			}
			h.holds(report.ID + ".pdf")
			// The way back: the completion on record costs no download, another one does.
			h.reporter.Set(report.ID, func(r *sandbox.Report) {
				r.Status, r.Seed, r.CompletedAt, r.Metadata = sandbox.Finished, 7, time.Now(), nil
			})
			h.event("e-3", hub.ReportFinished, report.ID)
			h.until(report.ID, "the new completion", func(r *store.Receipt) bool { return r.Generation == 3 && in(store.Delivered)(r) && len(r.Files) == 2 })
			h.sound(report.ID)
		})
	}
}

func TestEndsThatAreNoFiles(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status   string
		metadata any
		event    string
		state    store.State
		sources  []store.FailedSource
		known    bool
		reason   string
		again    bool // asked about again
	}{
		"partial with sources": {sandbox.Partial, map[string]any{"error": "Some report data sections failed", "error_code": "0287",
			"sections": map[string]any{"core": map[string]any{"error_code": "timeout"}}}, hub.ReportPartial,
			store.Partial, []store.FailedSource{{Name: "core", Code: "timeout"}}, true, "0287", true},
		"partial without": {sandbox.Partial, map[string]any{"error": "some failed"}, hub.ReportFinished,
			store.Partial, nil, false, "some failed", true},
		"error":                       {sandbox.Failed, map[string]any{"error": "no template"}, hub.ReportPartial, store.Failed, nil, false, "no template", false},
		"processing":                  {sandbox.Processing, nil, hub.ReportFinished, store.Expected, nil, false, "", true},
		"pending extraction":          {sandbox.PendingExtraction, nil, hub.ReportFinished, store.Expected, nil, false, "", true},
		"a status that is not known":  {"Archived", nil, hub.ReportFinished, store.Expected, nil, false, "Archived", true},
		"finished whatever the event": {sandbox.Finished, nil, hub.ReportPartial, store.Delivered, nil, false, "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, nil)
			report := h.reporter.Add(sandbox.Report{Status: test.status, Metadata: test.metadata})
			h.work()
			h.event("e-1", test.event, report.ID)
			r := h.until(report.ID, "the outcome", in(test.state))
			if !slices.Equal(r.FailedSources, test.sources) || r.SourcesKnown != test.known {
				t.Errorf("failed sources %v, known %v", r.FailedSources, r.SourcesKnown)
			}
			if !strings.Contains(r.Reason, test.reason) || r.Due.IsZero() == test.again || r.Attempts != 0 {
				t.Errorf("reason %q, due %v, attempts %d", r.Reason, r.Due, r.Attempts)
			}
			if test.state == store.Delivered {
				return
			}
			h.holds()
			if got := h.reporter.Requests().Downloads; got != 0 {
				t.Errorf("%d downloads of what is no file", got)
			}
			// Whatever it was, it may still be generated again.
			h.reporter.Set(report.ID, func(r *sandbox.Report) { r.Status, r.CompletedAt = sandbox.Finished, time.Now() })
			h.event("e-2", hub.ReportFinished, report.ID)
			r = h.until(report.ID, "delivery in the end", in(store.Delivered))
			if len(r.FailedSources) > 0 || r.Reason != "" || r.SourcesKnown {
				t.Errorf("delivered with failed sources %v and reason %q", r.FailedSources, r.Reason)
			}
			h.sound(report.ID)
		})
	}
}

// TestAReportThatLagsBehindItsEvent is asked about again soon, since an event says that it has ended.
func TestAReportThatLagsBehindItsEvent(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	report := h.reporter.Add(sandbox.Report{Status: sandbox.Processing})
	h.work()
	h.event("e-1", hub.ReportFinished, report.ID)
	r := h.until(report.ID, "in progress", in(store.Expected))
	if wait := time.Until(r.Due); wait > 3*time.Second {
		t.Errorf("asked again only in %s", wait)
	}
	h.reporter.Set(report.ID, func(r *sandbox.Report) { r.Status = sandbox.Finished })
	h.until(report.ID, "delivery", in(store.Delivered))
	h.sound(report.ID)
}

func TestAReportInProgressForTooLongIsStaleAndStays(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	old := h.reporter.Add(sandbox.Report{Status: sandbox.Processing, CreatedAt: time.Now().Add(-25 * time.Hour)})
	young := h.reporter.Add(sandbox.Report{Status: sandbox.Processing, CreatedAt: time.Now().Add(-23 * time.Hour)})
	h.work()
	if _, err := h.Watch(t.Context(), []store.Key{keyOf(old.ID), keyOf(young.ID)}); err != nil {
		t.Fatal(err)
	}
	r := h.until(old.ID, "stale", func(r *store.Receipt) bool { return in(store.Expected)(r) && r.Stale })
	if r.Due.IsZero() || notes(r, "stale: ") != 1 {
		t.Errorf("a stale report is still asked about:\n%s", describeReceipt(r))
	}
	if r := h.until(young.ID, "expected", in(store.Expected)); r.Stale {
		t.Error("a young report is called stale")
	}
	h.reporter.Set(old.ID, func(r *sandbox.Report) { r.Status = sandbox.Finished })
	h.event("e-1", hub.ReportFinished, old.ID)
	if r := h.until(old.ID, "delivery", in(store.Delivered)); r.Stale {
		t.Error("delivered and stale")
	}
}

func TestWhereOnlyTheDownloadIsGranted(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.reporter.Deny(sandbox.ClassGet, sandbox.ClassList)
	finished, partial := h.reporter.Add(sandbox.Report{Format: "xml"}), h.reporter.Add(sandbox.Report{Status: sandbox.Partial})
	h.work()
	h.event("e-1", hub.ReportFinished, finished.ID)
	h.event("e-2", hub.ReportPartial, partial.ID)
	r := h.until(finished.ID, "delivery", in(store.Delivered))
	if !r.Undescribed || r.Settled != "" {
		t.Errorf("undescribed %v, settled %q", r.Undescribed, r.Settled)
	}
	h.sound(finished.ID)
	r = h.until(partial.ID, "told that it can't be described", func(r *store.Receipt) bool { return r.Reason != "" })
	if r.State != store.Pending || r.Attempts != 0 || r.Due.IsZero() {
		t.Errorf("a partial report without a description:\n%s", describeReceipt(r))
	}
	h.holds(finished.ID + ".xml")
	// Another event costs one more download, and equal bytes are thrown away.
	h.event("e-3", hub.ReportFinished, finished.ID)
	r = h.until(finished.ID, "the second event", func(r *store.Receipt) bool { return r.Generation == 2 && in(store.Delivered)(r) })
	h.holds(finished.ID + ".xml")
	if len(r.Files) != 1 {
		t.Errorf("%d files on record", len(r.Files))
	}
}

func TestAConflictOfEventIDsIsKeptAndTheAuthorityIsAskedAboutBoth(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	first, second := h.reporter.Add(sandbox.Report{}), h.reporter.Add(sandbox.Report{})
	h.work()
	for i, want := range []struct {
		name, report string
		outcome      hub.Outcome
	}{
		{hub.ReportFinished, first.ID, hub.Admitted},
		{hub.ReportFinished, first.ID, hub.Repeated},
		{hub.ReportFinished, second.ID, hub.Quarantined},
	} {
		if got := h.event("e-1", want.name, want.report); got != want.outcome {
			t.Errorf("event %d: outcome %v, want %v", i+1, got, want.outcome)
		}
	}
	for _, id := range []string{first.ID, second.ID} {
		h.until(id, "delivery", in(store.Delivered))
		h.sound(id)
	}
	h.holds(first.ID+".pdf", second.ID+".pdf")
	kept, err := h.Ledger.Quarantine(t.Context(), 0, 10)
	if err != nil || len(kept) != 1 || kept[0].Receipt.ID != second.ID || !strings.Contains(string(kept[0].Data), "{}") {
		t.Errorf("in quarantine: %+v, %v", kept, err)
	}
}

func TestATooLargeReportIsParkedAtOnce(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string][]sandbox.Fault{
		"by its length": nil,
		"by its bytes":  {{Kind: sandbox.NoLength}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, func(p *plan) { p.downloads.MaxSize = 10_000 })
			large := h.reporter.Add(sandbox.Report{Size: 10_001, Faults: faults})
			fits := h.reporter.Add(sandbox.Report{Size: 10_000})
			h.work()
			h.event("e-1", hub.ReportFinished, large.ID)
			h.event("e-2", hub.ReportFinished, fits.ID)
			r := h.until(large.ID, "parked", in(store.Parked))
			readable(t, r.Reason, "max_size")
			h.until(fits.ID, "delivery", in(store.Delivered))
			if got := h.reporter.Requests().DownloadsOf[large.ID]; got != 1 {
				t.Errorf("%d downloads of a report that will never fit", got)
			}
			h.holds(fits.ID + ".pdf")
		})
	}
}

// TestAFullDiskParksNothing: a report that does not fit stays due without spending its budget, and smaller ones pass it.
func TestAFullDiskParksNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	free, err := h.Folder.Room()
	if err != nil {
		t.Fatal(err)
	}
	const left = 64 << 20
	if free < 2*left {
		t.Skip("too little room on the disk to leave a known rest of it")
	}
	release, err := h.Folder.Reserve(free - left)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	// The rest of the disk moves while others write to it, so the large one is far above and the small one far below.
	large, small := h.reporter.Add(sandbox.Report{Size: 3 << 30}), h.reporter.Add(sandbox.Report{Size: 1000})
	h.work()
	h.event("e-1", hub.ReportFinished, large.ID)
	r := h.until(large.ID, "told that there is no room", func(r *store.Receipt) bool { return r.Reason != "" })
	if r.State != store.Pending || r.Attempts != 0 || r.Due.IsZero() || r.Due.Before(time.Now().Add(10*time.Second)) {
		t.Errorf("without room:\n%s", describeReceipt(r))
	}
	readable(t, r.Reason, "room")
	h.event("e-2", hub.ReportFinished, small.ID)
	h.until(small.ID, "delivery", in(store.Delivered))
	h.holds(small.ID + ".pdf")
}

func TestAFolderReplacedUnderTheAgentPausesIt(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	before, during := h.reporter.Add(sandbox.Report{}), h.reporter.Add(sandbox.Report{})
	h.work()
	h.event("e-1", hub.ReportFinished, before.ID)
	h.until(before.ID, "delivery", in(store.Delivered))

	away := h.dir + ".away"
	if err := os.Rename(h.dir, away); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(h.dir, 0o755); err != nil { // as the mount point of a share that is not mounted
		t.Fatal(err)
	}
	h.event("e-2", hub.ReportFinished, during.ID)
	h.eventually("downloads are paused", func() bool {
		s, err := h.Status(t.Context())
		return err == nil && s.Folder != ""
	}, func() string { return "" })
	if s, _ := h.Status(t.Context()); true {
		readable(t, s.Folder, h.dir)
	}
	if left, _ := os.ReadDir(h.dir); len(left) > 0 {
		t.Errorf("written into a folder that is not ours: %v", left)
	}
	if visible, staged := filesIn(t, away); len(visible) != 1 || len(staged) > 0 {
		t.Errorf("written unseen into the old folder: %q, staged %q", visible, staged)
	}
	if r := h.receipt(during.ID); r.State != store.Pending || r.Attempts != 0 || r.Due.IsZero() {
		t.Errorf("without its folder:\n%s", describeReceipt(r))
	}
	if err := os.Remove(h.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, h.dir); err != nil {
		t.Fatal(err)
	}
	h.until(during.ID, "delivery once the folder is back", in(store.Delivered))
	h.sound(during.ID)
	h.holds(before.ID+".pdf", during.ID+".pdf")
}

func TestAForeignFileAtTheFinalNameIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, revise := range []string{downloads.Keep, downloads.Replace} {
		t.Run(revise, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, func(p *plan) { p.downloads.OnRevision = revise })
			report, same := h.reporter.Add(sandbox.Report{}), h.reporter.Add(sandbox.Report{})
			const theirs = "somebody's notes"
			if err := os.WriteFile(filepath.Join(h.dir, report.ID+".pdf"), []byte(theirs), 0o600); err != nil {
				t.Fatal(err)
			}
			h.work()
			h.event("e-1", hub.ReportFinished, report.ID)
			r := h.until(report.ID, "delivery", in(store.Delivered))
			h.sound(report.ID)
			if data, err := os.ReadFile(filepath.Join(h.dir, report.ID+".pdf")); err != nil || string(data) != theirs {
				t.Errorf("the foreign file: %q, %v", data, err)
			}
			if f := r.Newest(); f.Name != report.ID+"-r2.pdf" || f.Revision != 1 || notes(r, report.ID+".pdf is a file that is not ours") != 1 {
				t.Errorf("%s, revision %d\n%s", f.Name, f.Revision, describeReceipt(r))
			}
			h.event("e-2", hub.ReportFinished, same.ID)
			h.until(same.ID, "delivery", in(store.Delivered))
			h.holds(report.ID+".pdf", report.ID+"-r2.pdf", same.ID+".pdf")
		})
	}
}

// TestAnObstacleInTheFolderIsNotDownloadedAgainstForEver: what stands in the way of one report's folder is trouble of this
// machine. It spends no budget, and it is told and tried again with a back-off that holds no worker.
func TestAnObstacleInTheFolderIsNotDownloadedAgainstForEver(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(p *plan) {
		p.downloads.Layout = "{template}/{id}.{ext}"
		p.agent.Backoff = setting.Range{Min: time.Minute, Max: time.Hour}
	})
	report := h.reporter.Add(sandbox.Report{})
	obstacle := filepath.Join(h.dir, report.TemplateID)
	if err := os.WriteFile(obstacle, []byte("a file where a folder has to be"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.work()
	h.event("e-1", hub.ReportFinished, report.ID)
	r := h.until(report.ID, "told what is in the way", func(r *store.Receipt) bool { return r.Reason != "" })
	if r.State != store.Pending || r.Attempts != 0 || !r.Due.After(time.Now()) {
		t.Errorf("with an obstacle in the way:\n%s", describeReceipt(r))
	}
	readable(t, r.Reason, report.TemplateID)
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Retry(t.Context(), []store.Key{keyOf(report.ID)}); err != nil {
		t.Fatal(err)
	}
	h.until(report.ID, "delivery once the way is free", in(store.Delivered))
	h.sound(report.ID)
}

func TestAFileWithTheRightBytesIsTakenOver(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	report := h.reporter.Add(sandbox.Report{})
	file, err := os.Create(filepath.Join(h.dir, report.ID+".pdf"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.ReadFrom(h.reporter.Content(report.ID)); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	h.work()
	h.event("e-1", hub.ReportFinished, report.ID)
	r := h.until(report.ID, "delivery", in(store.Delivered))
	h.sound(report.ID)
	h.holds(report.ID + ".pdf")
	if notes(r, "taken over") != 1 {
		t.Errorf("not said to be taken over:\n%s", describeReceipt(r))
	}
}
