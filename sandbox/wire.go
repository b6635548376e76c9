package sandbox

import (
	"net/http"
	"time"
)

// Era is a generation of Reporter versions, as the contract tells them apart.
type Era int

// The eras.
const (
	V1    Era = iota // v1.1: TPL codes, 400 for refusals, /ready
	V2026            // 2026: bare digits, 422 and 503, /readyz, two more fields of a report
)

// String names the era.
func (e Era) String() string {
	if e == V2026 {
		return "2026"
	}
	return "v1.1"
}

// refusalKind is a reason not to give what was asked for.
type refusalKind int

const (
	notReady refusalKind = iota
	missingFile
	notFound
	limitTooHigh
	tooMany
)

// refusals by kind. Where the contract names no code the sandbox gives the HTTP status as one.
var refusals = [...]struct {
	byEra          [2]statusCode
	title, message string
}{
	notReady: {
		[2]statusCode{V1: {http.StatusBadRequest, "TPL-0029"}, V2026: {http.StatusUnprocessableEntity, "0260"}},
		"Report Not Finished", "The report is not finished and can't be downloaded.",
	},
	missingFile: {
		[2]statusCode{V1: {http.StatusBadRequest, "TPL-0034"}, V2026: {http.StatusServiceUnavailable, "0265"}},
		"File Not Available", "The file of the report can't be read from the storage.",
	},
	notFound: {
		[2]statusCode{V1: {http.StatusNotFound, "TPL-0011"}, V2026: {http.StatusNotFound, "404"}},
		"Entity Not Found", "No entity was found for the given id.",
	},
	limitTooHigh: {
		[2]statusCode{V1: {http.StatusNotFound, "404"}, V2026: {http.StatusBadRequest, "400"}},
		"Limit Exceeded", "The limit is above the maximum of 100 items per page.",
	},
	tooMany: {
		[2]statusCode{V1: {http.StatusTooManyRequests, "429"}, V2026: {http.StatusTooManyRequests, "429"}},
		"Too Many Requests", "The rate limit is used up.",
	},
}

// statusCode is an HTTP status with the API's own code.
type statusCode struct {
	http int
	code string
}

// refusal is the answer of an era.
func (e Era) refusal(kind refusalKind) *answer {
	r := refusals[kind]
	s := r.byEra[e]
	return jsonAnswer(s.http, map[string]string{"code": s.code, "title": r.title, "message": r.message})
}

// Layouts of a report's times: their precision differs between the calls, as the contract warns.
const (
	listTimes = "2006-01-02T15:04:05.999999Z"
	getTimes  = "2006-01-02T15:04:05.000Z"
)

// wireReport is a report as JSON shows it.
type wireReport struct {
	ID          string  `json:"id"`
	TemplateID  string  `json:"templateId"`
	Filters     any     `json:"filters"`
	Status      string  `json:"status"`
	Metadata    any     `json:"metadata"`
	CompletedAt *string `json:"completedAt"`
	CreatedAt   string  `json:"createdAt"`
	UpdatedAt   string  `json:"updatedAt"`
	DeletedAt   *string `json:"deletedAt"`

	TemplateOutputFormat string `json:"templateOutputFormat,omitempty"`
	TemplateDescription  string `json:"templateDescription,omitempty"`
}

func (e Era) report(r *Report, layout string) wireReport {
	created := r.CreatedAt.UTC().Format(layout)
	wire := wireReport{
		ID: r.ID, TemplateID: r.TemplateID, Status: r.Status, Metadata: r.Metadata,
		CreatedAt: created, UpdatedAt: created, // updatedAt never changes
	}
	if !r.CompletedAt.IsZero() {
		completed := r.CompletedAt.UTC().Format(layout)
		wire.CompletedAt = &completed
	}
	if e == V2026 {
		wire.TemplateOutputFormat, wire.TemplateDescription = r.Format, "Sandbox template"
	}
	return wire
}

// wirePage is a page of the list. Total is the number of items on this page, not of all.
type wirePage struct {
	Items []wireReport `json:"items"`
	Page  int          `json:"page"`
	Limit int          `json:"limit"`
	Total int          `json:"total"`
}

// day reads the createdAt filter, which selects one UTC day.
func day(text string) (from, to time.Time, ok bool) {
	from, err := time.Parse(time.DateOnly, text)
	return from, from.AddDate(0, 0, 1), err == nil
}
