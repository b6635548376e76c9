package fetcher

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Announced is the body of a job's event.
type Announced struct {
	JobID           string
	Status          string          // completed or failed
	Metadata        json.RawMessage // the requester's own, verbatim; nil for null
	Error           string          // of a failed job: metadata.error, sensitive, for operators and no third party
	Result          *Result         // of a completed one
	CompletedAt     string          // as written, RFC 3339 with nanoseconds
	ExecutionTimeMS int64
}

// Result is where a job's result is, and what tells that it is whole.
type Result struct {
	Path      string // below the bucket and its prefix
	SizeBytes int64  // of the plaintext; SizeUnknown where nobody said
	RowCount  int64
	Format    string
	HMAC      string // of the plaintext, 64 lower-case hex digits
	Legacy    bool   // announced by Fetcher 1.x, without integrity and protection
}

// SizeUnknown is the size of a result that is known from a description only.
const SizeUnknown = -1

// What a completed event must say of its result.
const (
	integrityAlgorithm = "HMAC-SHA256"
	protectionMode     = "adapter-managed"
)

// ParseAnnounced reads the body of a job's event that was verified before. Its errors say which rule of the contract is
// broken: those of a completed event without a result, a failed one with it, or a result that does not say how it is
// protected. Fetcher 1.x said nothing of that, see Result.Legacy.
func ParseAnnounced(body []byte) (*Announced, error) {
	top, err := readBody(body)
	if err != nil {
		return nil, err
	}
	return top.announced()
}

func (top body) announced() (*Announced, error) {
	a := &Announced{JobID: top.jobID, Status: top.status}
	if top.has("metadata") {
		a.Metadata = top.object["metadata"]
	}
	var errs [3]error
	a.CompletedAt, errs[0] = top.text("completedAt")
	a.ExecutionTimeMS, errs[1] = top.count("executionTimeMs")
	switch {
	case a.Status == Completed && !top.has("result"):
		errs[2] = errors.New("completed without a result")
	case a.Status == Completed:
		a.Result, errs[2] = readResult(top.object["result"])
	case a.Status == Failed && top.has("result"):
		errs[2] = errors.New("failed with a result")
	case a.Status == Failed:
		a.Error = errorText(a.Metadata)
	default:
		errs[2] = fmt.Errorf("status %s is neither completed nor failed", shown(a.Status))
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return a, nil
}

// body is a message's body with the two members that decide what it is about.
type body struct {
	object
	jobID, status string
}

func readBody(raw []byte) (body, error) {
	members, err := readObject(raw, "jobId", "status", "metadata", "result", "completedAt", "executionTimeMs")
	if err != nil {
		return body{}, err
	}
	b := body{object: members}
	if b.jobID, err = members.text("jobId"); err != nil {
		return body{}, err
	}
	if !PlainID(b.jobID) {
		return body{}, fmt.Errorf("jobId %s is no UUID", shown(b.jobID))
	}
	b.status, err = members.text("status")
	return b, err
}

func readResult(raw []byte) (*Result, error) {
	o, err := readObject(raw, "path", "sizeBytes", "rowCount", "format", "hmac", "integrity", "protection")
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	r := &Result{Legacy: !o.has("integrity") && !o.has("protection")}
	var errs [7]error
	r.Path, errs[0] = o.text("path")
	r.Format, errs[1] = o.text("format")
	r.HMAC, errs[2] = o.text("hmac")
	r.SizeBytes, errs[3] = o.count("sizeBytes")
	r.RowCount, errs[4] = o.count("rowCount")
	if errs[5] = errors.Join(errs[:5]...); errs[5] != nil {
		return nil, fmt.Errorf("result: %w", errs[5])
	}
	if errs[0] = cleanPath(r.Path); errs[0] != nil {
		errs[0] = fmt.Errorf("path: %w", errs[0])
	}
	if !o.has("sizeBytes") {
		errs[1] = errors.New("sizeBytes: missing")
	}
	if !isHMAC(r.HMAC) {
		errs[2] = errors.New("hmac: not 64 lower-case hex digits")
	}
	if !r.Legacy {
		errs[3], errs[4] = checkIntegrity(o["integrity"], r.HMAC), checkProtection(o["protection"])
	}
	if err := errors.Join(errs[:5]...); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	return r, nil
}

func checkIntegrity(raw []byte, hmac string) error {
	o, err := readObject(raw, "algorithm", "signature")
	if err != nil {
		return fmt.Errorf("integrity: %w", err)
	}
	if algorithm, _ := o.text("algorithm"); algorithm != integrityAlgorithm {
		return fmt.Errorf("integrity.algorithm: %s is not %s", shown(algorithm), integrityAlgorithm)
	}
	if signature, _ := o.text("signature"); signature != hmac {
		return errors.New("integrity.signature: not the same as hmac")
	}
	return nil
}

func checkProtection(raw []byte) error {
	o, err := readObject(raw, "encrypted", "mode")
	if err != nil {
		return fmt.Errorf("protection: %w", err)
	}
	if string(o["encrypted"]) != "true" {
		return errors.New("protection.encrypted: not true")
	}
	if mode, _ := o.text("mode"); mode != protectionMode {
		return fmt.Errorf("protection.mode: %s is not %s", shown(mode), protectionMode)
	}
	return nil
}

// cleanPath refuses a path that is not the plain one to where it leads, so that a result can't be another's.
func cleanPath(p string) error {
	const longest = 1024 // S3's own limit for keys
	switch {
	case p == "":
		return errors.New("missing")
	case len(p) > longest:
		return fmt.Errorf("%d bytes are more than %d", len(p), longest)
	case !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl):
		return fmt.Errorf("%s holds control characters or is not text", shown(p))
	case strings.HasPrefix(p, "/") || p == "." || p == ".." || strings.HasPrefix(p, "../") || path.Clean(p) != p || strings.Contains(p, `\`):
		return fmt.Errorf("%s is not a plain path", shown(p))
	}
	return nil
}

func isHMAC(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == 64 && text == strings.ToLower(text)
}

// shown quotes a value for a reason, cut short: whoever sends a message decides what is in it.
func shown(value string) string {
	const most = 64
	if len(value) > most {
		return fmt.Sprintf("%q...", value[:most])
	}
	return fmt.Sprintf("%q", value)
}
