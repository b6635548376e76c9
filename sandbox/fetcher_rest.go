package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
)

// wireJob is a job as the REST API shows it.
type wireJob struct {
	ID           string         `json:"id"`
	Status       string         `json:"status"`
	MappedFields any            `json:"mappedFields"`
	Metadata     map[string]any `json:"metadata,omitempty"`
	ResultPath   string         `json:"resultPath,omitempty"`
	ResultHMAC   string         `json:"resultHmac,omitempty"`
	RequestHash  string         `json:"requestHash,omitempty"`
	CreatedAt    string         `json:"createdAt"`
	CompletedAt  string         `json:"completedAt,omitempty"`
}

// ServeHTTP is the REST API: GET /v1/fetcher/{id}, and there is no list. The token endpoint and /health are beside it.
func (f *Fetcher) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("X-Request-Id", newID())
	id, ok := strings.CutPrefix(req.URL.Path, "/v1/fetcher/")
	switch {
	case req.URL.Path == "/v1/login/oauth/access_token" && req.Method == http.MethodPost:
		f.access.issue(req).plainly(w)
		return
	case req.URL.Path == "/health":
		plain(w, http.StatusOK, "healthy")
		return
	case !ok || id == "" || strings.Contains(id, "/"):
		plain(w, http.StatusNotFound, "Not Found")
		return
	case req.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		plain(w, http.StatusMethodNotAllowed, "Method Not Allowed")
		return
	}
	record, refusal := f.arrive(id)
	status, text := f.access.check(req.Header)
	if refusal != 0 {
		status, text = refusal, http.StatusText(refusal)
	}
	if status != http.StatusOK {
		plain(w, status, text)
		return
	}
	f.describe(id, record).plainly(w)
}

// arrive counts a request and looks its job up.
func (f *Fetcher) arrive(id string) (record *jobRecord, refusal int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[id]++
	return f.jobs[id], f.refusal
}

// describe is the answer without any fault.
func (f *Fetcher) describe(id string, record *jobRecord) *answer {
	refusal := func(status int, code, title, message string) *answer {
		return jsonAnswer(status, map[string]string{"code": code, "title": title, "message": message})
	}
	switch {
	case record == nil && uuid.Validate(id) != nil:
		return refusal(http.StatusBadRequest, "FET-0404", "Invalid Path Parameter", "The id is not a UUID.")
	case record == nil:
		return refusal(http.StatusNotFound, "FET-1001", "Entity Not Found", "No job was found for the given id.")
	}
	request := sha256.Sum256([]byte(id))
	job := wireJob{
		ID: id, Status: record.Status, MappedFields: jobFields, Metadata: record.Metadata,
		RequestHash: hex.EncodeToString(request[:]), CreatedAt: record.CreatedAt.UTC().Format(time.RFC3339Nano),
	}
	if !record.CompletedAt.IsZero() {
		job.CompletedAt = record.CompletedAt.UTC().Format(time.RFC3339Nano)
	}
	switch record.Status {
	case JobCompleted:
		job.ResultPath, job.ResultHMAC = f.path(id), record.sums().hmac
	case JobFailed: // here the error is a plain string; in the event it is an object
		job.Metadata = map[string]any{}
		maps.Copy(job.Metadata, record.Metadata)
		job.Metadata["error"] = record.Error
	}
	return jsonAnswer(http.StatusOK, job)
}

// plainly sends an answer that meets no fault.
func (a *answer) plainly(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = a.body.copyTo(w, 0, a.body.length()) // a client that went away is none of our business
}

// Requests returns how often each job was asked for at the REST API, unknown ids and refused requests included.
func (f *Fetcher) Requests() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return clone(f.asked)
}

// Refuse answers every request for a job with a status in plain text, such as 403 or 503, token or not; 0 ends it.
func (f *Fetcher) Refuse(status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal = status
}

// Down resets every connection to the REST API, open ones at once, until it is called with false.
func (f *Fetcher) Down(down bool) { f.rest.gate.refuse(down) }
