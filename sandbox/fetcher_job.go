package sandbox

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"sync"
	"time"
)

// The statuses of a job.
const (
	JobPending    = "pending"
	JobProcessing = "processing"
	JobCompleted  = "completed"
	JobFailed     = "failed"
)

// Job is one extraction job.
type Job struct {
	ID       string         // default: a new UUIDv7
	Status   string         // default completed
	Size     int64          // of the result's plaintext in bytes; default DefaultSize; raised where the rows need more
	Rows     int64          // default: as many as Size has room for; below 0: none, and the result is {}
	Seed     uint64         // of the result's rows; default: drawn from the id
	Metadata map[string]any // the requester's own; default {"source":"reporter"}; an empty map is kept
	Error    string         // of a failed job; default: a connection that was refused

	CreatedAt   time.Time     // default: now, or Took before CompletedAt
	CompletedAt time.Time     // default where the job completed or failed: now
	Took        time.Duration // executionTimeMs, left out below a millisecond; default 42ms

	Legacy  bool // events in the form of Fetcher 1.x
	NoEvent bool // Run publishes nothing
}

func (j *Job) ended() bool { return j.Status == JobCompleted || j.Status == JobFailed }

// jobRecord is a job with its result. It never changes: a changed job is another record.
type jobRecord struct {
	Job
	content *jobContent
	key     []byte // of the result's HMAC

	once   sync.Once
	summed resultSums
}

// resultSums are of the plaintext, in lower-case hex.
type resultSums struct{ sha256, hmac string }

// sums reads the result once, however often it is asked.
func (r *jobRecord) sums() resultSums {
	r.once.Do(func() { r.summed = r.content.sums(r.key) })
	return r.summed
}

// sums reads the whole result.
func (c *jobContent) sums(key []byte) resultSums {
	sum, mac := sha256.New(), hmac.New(sha256.New, key)
	_ = c.writeTo(io.MultiWriter(sum, mac)) // hashes take everything
	return resultSums{hex.EncodeToString(sum.Sum(nil)), hex.EncodeToString(mac.Sum(nil))}
}

// newJob fills in the defaults.
func (f *Fetcher) newJob(job Job) *jobRecord {
	job = copiedJob(job)
	if job.ID == "" {
		job.ID = newID()
	}
	job.Status = cmp.Or(job.Status, JobCompleted)
	job.Seed = cmp.Or(job.Seed, seedOf(job.ID))
	job.Took = cmp.Or(job.Took, 42*time.Millisecond)
	if job.Metadata == nil {
		job.Metadata = map[string]any{"source": "reporter"}
	}
	if job.Status == JobFailed {
		job.Error = cmp.Or(job.Error, "dial tcp [redacted] connect: connection refused")
	}
	switch {
	case !job.ended():
		job.CompletedAt = time.Time{}
	case job.CompletedAt.IsZero():
		job.CompletedAt = time.Now()
	}
	if job.CreatedAt.IsZero() {
		job.CreatedAt = time.Now()
		if job.ended() {
			job.CreatedAt = job.CompletedAt.Add(-job.Took)
		}
	}
	content := newJobContent(job.Seed, job.Rows, cmp.Or(job.Size, DefaultSize))
	job.Size = content.size
	if job.Rows >= 0 {
		job.Rows = content.rows
	}
	return &jobRecord{Job: job, content: content, key: f.keys.external}
}

func copiedJob(job Job) Job {
	job.Metadata = maps.Clone(job.Metadata)
	return job
}

// wireJobEvent is the body of an event.
type wireJobEvent struct {
	JobID       string         `json:"jobId"`
	Metadata    map[string]any `json:"metadata"`
	Status      string         `json:"status"`
	Result      *wireResult    `json:"result,omitempty"`
	TookMs      int64          `json:"executionTimeMs,omitempty"`
	CompletedAt string         `json:"completedAt,omitempty"`
}

type wireResult struct {
	Path       string          `json:"path"`
	SizeBytes  int64           `json:"sizeBytes"`
	RowCount   int64           `json:"rowCount,omitempty"`
	Format     string          `json:"format"`
	HMAC       string          `json:"hmac"`
	Integrity  *wireIntegrity  `json:"integrity,omitempty"`
	Protection *wireProtection `json:"protection,omitempty"`
}

type wireIntegrity struct {
	Algorithm string `json:"algorithm"`
	Signature string `json:"signature"`
}

type wireProtection struct {
	Encrypted bool   `json:"encrypted"`
	Mode      string `json:"mode"`
	AppliedBy string `json:"appliedBy"`
}

// event is the body for a status; the result is read only where the event tells of it.
func (r *jobRecord) event(status, path string) ([]byte, error) {
	if status == JobFailed {
		return r.body(status, "", "")
	}
	return r.body(status, path, r.sums().hmac)
}

// body is the event's body for a status that ends the job. It is the same on every emission of one end.
func (j *Job) body(status, path, hmac string) ([]byte, error) {
	event := wireJobEvent{JobID: j.ID, Metadata: j.Metadata, Status: status}
	if status == JobFailed {
		event.Metadata = maps.Clone(j.Metadata)
		if event.Metadata == nil {
			event.Metadata = map[string]any{}
		}
		event.Metadata["error"] = map[string]string{"message": j.Error}
		return json.Marshal(event)
	}
	event.Result = &wireResult{Path: path, SizeBytes: j.Size, RowCount: max(j.Rows, 0), Format: "json", HMAC: hmac}
	if !j.Legacy {
		event.Result.Integrity = &wireIntegrity{"HMAC-SHA256", hmac}
		event.Result.Protection = &wireProtection{true, "adapter-managed", "adapter"}
	}
	event.TookMs = j.Took.Milliseconds()
	event.CompletedAt = j.CompletedAt.UTC().Format(time.RFC3339Nano)
	return json.Marshal(event)
}
