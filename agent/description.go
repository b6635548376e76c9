package agent

import (
	"encoding/json"

	"recibo/fetcher"
	"recibo/reporter"
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
	r.Metadata = boundedMetadata(d.metadata)
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
