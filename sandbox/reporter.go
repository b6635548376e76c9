package sandbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// The statuses of a report.
const (
	Processing        = "Processing"
	PendingExtraction = "PendingExtraction"
	Finished          = "Finished"
	Partial           = "Partial"
	Failed            = "Error"
)

// Report is one report at the Reporter, with what its file holds and which faults its requests meet.
type Report struct {
	ID         string // default: a new UUIDv7
	TemplateID string // default: a template that reports share
	Format     string // pdf, xml, html, csv or txt; default pdf
	Size       int64  // of the file in bytes; 0: DefaultSize, and never below MinSize
	Seed       uint64 // of the file's bytes: another seed, another file; default: drawn from the id
	Status     string // default Finished

	// Metadata is what the description holds: anything encoding/json can write, such as a json.RawMessage; nil is null.
	Metadata any

	CreatedAt   time.Time // default: now
	CompletedAt time.Time // default where the status is Finished, Partial or Error: CreatedAt, after Set now; otherwise null

	Faults []Fault // consumed in order, one by each request of the fault's class that would have succeeded
	Sticky bool    // the last fault stays for ever
	Ranges bool    // a strong ETag is sent and Range honoured, which no known Reporter does but a gateway may
}

// Reporter is an embedded Reporter. Its methods may be called from several goroutines.
type Reporter struct {
	options ReporterOptions
	url     string
	printed *printed
	access  *access
	limits  *limits

	server   *http.Server
	listener *gateListener
	counted  counters
	ended    chan struct{} // closed by close: every wait ends
	served   sync.WaitGroup

	down    atomic.Int32
	changed atomic.Pointer[chan struct{}] // closed and replaced by Down

	mu      sync.Mutex // guards what follows
	closed  bool
	reports map[string]*record
	order   []*record // by CreatedAt, oldest first, once sorted is true
	sorted  bool
	faults  map[string][]classFault
	denied  map[string]bool
}

// record is a report with its file.
type record struct {
	Report
	content *content

	sumOnce sync.Once
	sum     string
}

func startReporter(ctx context.Context, o ReporterOptions, seed uint64, log *slog.Logger) (*Reporter, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.TokenTTL == 0 {
		o.TokenTTL = time.Hour
	}
	if o.Window == 0 {
		o.Window = time.Minute
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, err
	}
	r := &Reporter{
		options: o,
		url:     "http://" + listener.Addr().String(),
		printed: newPrinted(seed),
		access:  newAccess(o),
		limits:  newLimits(o),
		ended:   make(chan struct{}),
		reports: map[string]*record{},
		faults:  map[string][]classFault{},
		denied:  map[string]bool{},
	}
	changed := make(chan struct{})
	r.changed.Store(&changed)
	r.listener = newGateListener(listener, &r.counted.whileDown)
	r.server = &http.Server{Handler: r, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), ReadHeaderTimeout: time.Minute}
	r.served.Go(func() { _ = r.server.Serve(r.listener) }) // ends with close
	return r, nil
}

// URL is the base address.
func (r *Reporter) URL() string { return r.url }

// Add makes a report known, or replaces the one with its id, and returns it with the defaults filled in. What was
// counted stays.
func (r *Reporter) Add(report Report) Report {
	record := r.newRecord(report)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(record)
	return record.Report
}

// Set changes a report in place, such as one that completes late or is generated again, and reports whether it is
// known. Downloads in progress go on with the old file.
func (r *Reporter) Set(id string, change func(*Report)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.reports[id]
	if old == nil {
		return false
	}
	report := copied(old.Report)
	change(&report)
	report.ID = id
	if report.ended() && report.CompletedAt.IsZero() {
		report.CompletedAt = time.Now()
	}
	r.put(r.newRecord(report))
	return true
}

// Remove makes the Reporter forget a report: its requests are answered 404.
func (r *Reporter) Remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.reports[id]; old != nil {
		delete(r.reports, id)
		r.order = slices.DeleteFunc(r.order, func(other *record) bool { return other == old })
	}
}

// Get returns a report as it is now, with the faults that are left.
func (r *Reporter) Get(id string) (Report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if record := r.reports[id]; record != nil {
		return copied(record.Report), true
	}
	return Report{}, false
}

// All returns every report, newest created first.
func (r *Reporter) All() []Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sort()
	all := make([]Report, 0, len(r.order))
	for _, record := range slices.Backward(r.order) {
		all = append(all, copied(record.Report))
	}
	return all
}

// Content streams the bytes that a whole download of the report gives; an unknown report has none.
func (r *Reporter) Content(id string) io.Reader {
	record := r.find(id)
	if record == nil {
		return bytes.NewReader(nil)
	}
	return &contentReader{record.content, 0, record.content.size}
}

// Sum is the size of the report's file and its SHA-256 in lower-case hex; -1 and nothing for an unknown report.
func (r *Reporter) Sum(id string) (size int64, sha256 string) {
	record := r.find(id)
	if record == nil {
		return -1, ""
	}
	return record.content.size, record.hash()
}

func (r *Reporter) find(id string) *record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reports[id]
}

// hash is computed once: a changed report is another record.
func (r *record) hash() string {
	r.sumOnce.Do(func() { r.sum = r.content.sum() })
	return r.sum
}

// newRecord fills in the defaults.
func (r *Reporter) newRecord(report Report) *record {
	report = copied(report)
	if report.ID == "" {
		report.ID = newID()
	}
	if report.TemplateID == "" {
		report.TemplateID = "01890000-0000-7000-8000-000000000001"
	}
	if report.Format == "" {
		report.Format = "pdf"
	}
	if report.Size == 0 {
		report.Size = DefaultSize
	}
	report.Size = max(report.Size, MinSize)
	if report.Seed == 0 {
		report.Seed = seedOf(report.ID)
	}
	if report.Status == "" {
		report.Status = Finished
	}
	if report.CreatedAt.IsZero() {
		report.CreatedAt = time.Now()
	}
	if report.ended() && report.CompletedAt.IsZero() {
		report.CompletedAt = report.CreatedAt
	}
	return &record{Report: report, content: r.printed.content(report.Format, report.Seed, report.Size)}
}

// put needs the lock.
func (r *Reporter) put(record *record) {
	old := r.reports[record.ID]
	r.reports[record.ID] = record
	if old != nil {
		r.order[slices.Index(r.order, old)] = record
		r.sorted = r.sorted && old.CreatedAt.Equal(record.CreatedAt)
		return
	}
	last := len(r.order) - 1
	r.sorted = last < 0 || r.sorted && !record.CreatedAt.Before(r.order[last].CreatedAt)
	r.order = append(r.order, record)
}

// sort needs the lock. Reports of the same instant keep an order of their own, so that pages do not overlap.
func (r *Reporter) sort() {
	if r.sorted {
		return
	}
	slices.SortStableFunc(r.order, func(a, b *record) int { return a.CreatedAt.Compare(b.CreatedAt) })
	r.sorted = true
}

func (r *Report) ended() bool {
	return r.Status == Finished || r.Status == Partial || r.Status == Failed
}

func copied(report Report) Report {
	report.Faults = slices.Clone(report.Faults)
	return report
}

// seedOf draws a seed from an id.
func seedOf(id string) uint64 {
	seed := uint64(len(id))
	for word := range slices.Chunk([]byte(id), 8) {
		seed = mix(seed ^ binary.LittleEndian.Uint64(append(slices.Clone(word), make([]byte, 8)...)))
	}
	return seed
}

// newID is a UUIDv7.
func newID() string {
	return uuid.Must(uuid.NewV7()).String()
}
