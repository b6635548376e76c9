package reporter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"recibo/rest"
)

// The statuses that Reporter documents. Others may come and are to be taken for not ended.
const (
	Processing        = "Processing"
	PendingExtraction = "PendingExtraction"
	Finished          = "Finished"
	Partial           = "Partial"
	Failed            = "Error"
)

// Report is a description. Texts are as Reporter wrote them; what was null or absent is empty.
type Report struct {
	ID           string
	TemplateID   string
	Status       string
	Metadata     json.RawMessage // nil for null; not cleared when a report is generated again
	CompletedAt  string          // the one to trust: it changes with each generation
	CreatedAt    string
	UpdatedAt    string // never changes
	DeletedAt    string
	OutputFormat string // templateOutputFormat of newer versions, in lower case
	Description  string // templateDescription of newer versions
}

// UnmarshalJSON implements json.Unmarshaler. A report needs an id and a status; anything else may be missing.
func (r *Report) UnmarshalJSON(data []byte) error {
	var wire struct {
		ID, TemplateID, Status, CompletedAt, CreatedAt, UpdatedAt, DeletedAt string
		TemplateOutputFormat, TemplateDescription                            string
		Metadata                                                             json.RawMessage
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	if !plain(wire.ID) {
		return fmt.Errorf("%w: %q", ErrID, rest.Harmless(wire.ID, 64))
	}
	if wire.Status == "" {
		return errors.New("a report without a status")
	}
	if bytes.Equal(wire.Metadata, []byte("null")) {
		wire.Metadata = nil
	}
	*r = Report{
		ID: wire.ID, TemplateID: wire.TemplateID, Status: wire.Status, Metadata: wire.Metadata,
		CompletedAt: wire.CompletedAt, CreatedAt: wire.CreatedAt, UpdatedAt: wire.UpdatedAt, DeletedAt: wire.DeletedAt,
		OutputFormat: strings.ToLower(wire.TemplateOutputFormat), Description: wire.TemplateDescription,
	}
	return nil
}

// Report describes one report; the caller has acquired rest.Get. 403, 404, 405 and 501 leave the gate open, since some
// deployments grant only the download: see Undescribable.
func (c *Client) Report(ctx context.Context, id string) (*Report, error) {
	op := "get report " + rest.Harmless(id, 64)
	if err := c.check(rest.Get, op, id); err != nil {
		return nil, err
	}
	req := rest.Request{Path: "/v1/reports/" + url.PathEscape(id), Op: op, Tolerate: undescribable()}
	var report Report
	resp, err := c.JSON(ctx, rest.Get, req, &report)
	if err != nil {
		return nil, err
	}
	if !strings.EqualFold(report.ID, id) {
		return nil, c.Malformed(req, resp, fmt.Errorf("the answer describes %s", report.ID))
	}
	return &report, nil
}

// MaxPage is the largest page that Reporter gives; above it answers 404 or 400, by version.
const MaxPage = 100

// ListQuery narrows a list. Reporter takes Status verbatim and silently ignores a TemplateID or CreatedAt it can't read.
type ListQuery struct {
	Status     string
	TemplateID string
	CreatedAt  string // yyyy-mm-dd, one day in UTC
}

// Page returns one page of the list, newest createdAt first; the caller has acquired rest.Get. Pages count from 1, limit
// is 1 to MaxPage, and the list ends with a page of fewer than limit items. Items that can't be read are left out and
// named by their index in a Malformed error, which comes with the others of the page: the caller may use them, but must
// not take their number for the page's.
func (c *Client) Page(ctx context.Context, page, limit int, q ListQuery) ([]Report, error) {
	op := fmt.Sprintf("list reports, page %d", page)
	if page < 1 || limit < 1 || limit > MaxPage {
		c.Cancel(rest.Get)
		return nil, fmt.Errorf("%s: no page of %d items", op, limit)
	}
	query := url.Values{"page": {strconv.Itoa(page)}, "limit": {strconv.Itoa(limit)}}
	for name, value := range map[string]string{"status": q.Status, "templateId": q.TemplateID, "createdAt": q.CreatedAt} {
		if value != "" {
			query.Set(name, value)
		}
	}
	req := rest.Request{Path: "/v1/reports", Query: query, Op: op, Tolerate: undescribable()}
	var list struct{ Items *[]json.RawMessage }
	resp, err := c.JSON(ctx, rest.Get, req, &list)
	if err != nil {
		return nil, err
	}
	if list.Items == nil {
		return nil, c.Malformed(req, resp, errors.New("a list without items"))
	}
	reports, err := readItems(*list.Items)
	if err != nil {
		return reports, c.Malformed(req, resp, err)
	}
	return reports, nil
}

// readItems decodes one by one, so that one bad item costs no other.
func readItems(items []json.RawMessage) ([]Report, error) {
	reports := make([]Report, 0, len(items))
	var bad []error
	for i, item := range items {
		var report Report
		err := json.Unmarshal(item, &report)
		if err == nil && report.ID == "" { // null decodes without being looked at
			err = errors.New("no report")
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("item %d: %w", i, err))
			continue
		}
		reports = append(reports, report)
	}
	return reports, errors.Join(bad...)
}
