package agent

import (
	"encoding/json"

	"recibo/fetcher"
	"recibo/reporter"
	"recibo/rest"
	"recibo/store"
)

// description is what upstream says about one report or job: Reporter's or Fetcher's own answer, or a job's signed event.
type description struct {
	status      string // as it is written upstream
	end         ending
	unknown     bool // the status means nothing to this version
	completedAt string
	createdAt   string
	templateID  string
	metadata    json.RawMessage
	failure     reporter.Failure // of one that ended partial or failed
	format      string           // of a report's file, where it is said

	// Of a job:
	result    *fetcher.Result // where its result is
	authority string          // whose word this is
	source    string          // which Fetcher knows it, where an answer shows that
	tenant    string
}

// ending is how a report or job has ended.
type ending int

const (
	open     ending = iota // it has not
	finished               // with its file
	partial                // with some of its data sources
	failed                 // with none
)

// ofReport reads Reporter's description.
func ofReport(r *reporter.Report) *description {
	d := &description{
		status: r.Status, completedAt: r.CompletedAt, createdAt: r.CreatedAt, templateID: r.TemplateID,
		metadata: r.Metadata, format: r.OutputFormat,
	}
	switch r.Status {
	case reporter.Finished:
		d.end = finished
	case reporter.Partial:
		d.end, d.failure = partial, r.Failure()
	case reporter.Failed:
		d.end, d.failure = failed, r.Failure()
	case reporter.Processing, reporter.PendingExtraction:
	default:
		d.unknown = true
	}
	return d
}

// ofEvent reads a signed event.
func ofEvent(said *fetcher.Announced) *description {
	d := &description{
		status: said.Status, completedAt: said.CompletedAt, metadata: said.Metadata, result: said.Result, authority: bySignedEvent,
	}
	if said.Status == fetcher.Completed {
		d.end = finished
	} else {
		d.end, d.failure = failed, jobFailure(said.Error)
	}
	return d
}

func jobFailure(message string) reporter.Failure {
	if message == "" {
		message = "fetcher gave no reason"
	}
	return reporter.Failure{Reason: rest.Harmless(message, maxJobReason)}
}

// maxJobReason bounds the text of a failed job, in bytes.
const maxJobReason = 2048

// ofJob reads Fetcher's answer. Where an event speaks of the same result, it knows more of it: size and rows.
func ofJob(j *fetcher.Job, said told) *description {
	d := &description{
		status: j.Status, completedAt: j.CompletedAt, createdAt: j.CreatedAt, metadata: j.Metadata, authority: byFetcher,
	}
	switch j.Status {
	case fetcher.Completed:
		result := j.Result()
		d.end, d.result = finished, &result
		if c := said.completed; c != nil && (result.HMAC == "" || result.HMAC == c.Result.HMAC) {
			d.result = c.Result
		}
	case fetcher.Failed:
		d.end, d.failure = failed, jobFailure(j.Error)
	case fetcher.Pending, fetcher.Processing:
	default:
		d.unknown = true
	}
	return d
}

// completion tells one completion from another: by its time, and for a job by its result, whose time is written with
// other digits in an event than in an answer.
func (d *description) completion() string {
	if d.result != nil && d.result.HMAC != "" {
		return "hmac " + d.result.HMAC
	}
	return d.completedAt
}

// describedOn copies what upstream says into the receipt.
func (t *transfer) describedOn(r *store.Receipt) {
	d := t.described
	if d == nil {
		return
	}
	r.Status, r.CompletedAt, r.CreatedAt, r.TemplateID = d.status, d.completedAt, d.createdAt, d.templateID
	r.Metadata = readableMetadata(d.metadata)
	if t.key.Kind != store.Job {
		return
	}
	r.Authority = d.authority
	if d.source != "" {
		r.Source = d.source
	}
	if d.tenant != "" {
		r.Tenant = d.tenant
	}
}
