package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"recibo/store"
)

// What people and programs see of a receipt. A terminal gets a table that fits its width; everything else gets the same
// columns without decoration; --json gets one object per line.

// receiptJSON is the documented form of a receipt: list --json prints one per line.
type receiptJSON struct {
	Kind          store.Kind      `json:"kind"`
	ID            string          `json:"id"`
	State         store.State     `json:"state"`
	File          string          `json:"file"`          // relative to dir
	Dir           string          `json:"dir,omitempty"` // empty: downloads.dir
	Size          int64           `json:"size"`
	SHA256        string          `json:"sha256"`
	Revision      int             `json:"revision"`
	Completed     string          `json:"completed"`
	FailedSources []failedSource  `json:"failed_sources"`
	SourcesKnown  bool            `json:"sources_known"`
	Reason        string          `json:"reason"`
	Attempts      int             `json:"attempts"`
	Events        []string        `json:"events"`
	FoundBy       string          `json:"found_by"`
	Stale         bool            `json:"stale"`
	Dismissed     bool            `json:"dismissed,omitempty"` // failed by a person's word
	Undescribed   bool            `json:"undescribed"`
	Template      string          `json:"template,omitempty"`
	Tenant        string          `json:"tenant,omitempty"`
	Source        string          `json:"source,omitempty"`
	Authority     string          `json:"authority,omitempty"` // of a job: "signed event" or "fetcher"
	Rows          int64           `json:"rows,omitempty"`      // of a job's result
	HMAC          string          `json:"hmac,omitempty"`      // of a job's result
	Metadata      json.RawMessage `json:"metadata"`
	Created       time.Time       `json:"created"`
	Updated       time.Time       `json:"updated"`
}

// failedSource is a data source that failed; where upstream gives no code it is empty.
type failedSource struct {
	Name string `json:"name"`
	Code string `json:"code"`
}

func viewOf(r *store.Receipt) receiptJSON {
	v := receiptJSON{
		Kind: r.Kind, ID: r.ID, State: r.State, Completed: r.CompletedAt, FailedSources: []failedSource{},
		SourcesKnown: r.SourcesKnown, Reason: r.Reason, Attempts: r.Attempts, Events: r.Events, FoundBy: r.FoundBy,
		Stale: r.Stale, Dismissed: r.Dismissed, Undescribed: r.Undescribed, Template: r.TemplateID, Tenant: r.Tenant, Source: r.Source, Authority: r.Authority, Metadata: r.Metadata, Created: r.Created, Updated: r.Updated,
	}
	if f := r.Newest(); f != nil {
		v.File, v.Dir, v.Size, v.SHA256, v.Revision, v.Rows, v.HMAC = f.Name, f.Dir, f.Size, f.SHA256, f.Revision, f.Rows, f.HMAC
	}
	for _, s := range r.FailedSources {
		v.FailedSources = append(v.FailedSources, failedSource(s))
	}
	if v.Events == nil {
		v.Events = []string{}
	}
	return v
}

// printJSON writes one document on one line.
func (a *app) printJSON(v any) error {
	encoder := json.NewEncoder(a.out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// decode is for items of calls.
func decode[T any](m json.RawMessage) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(m, v); err != nil {
		return nil, fmt.Errorf("the agent's answer can't be read: %w", err)
	}
	return v, nil
}

// isTerminal tells whether a stream is a terminal, with a person at it.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// newTable returns a table for w: framed by spaces only, so that it can be read and cut alike.
func newTable(w io.Writer, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatUpper
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	if isTerminal(w) {
		if width, _, err := term.GetSize(int(w.(*os.File).Fd())); err == nil {
			t.SetAllowedRowLength(width)
		}
	}
	t.AppendHeader(header)
	return t
}

// receiptRow is one line of a table of receipts.
func receiptRow(r *store.Receipt) table.Row {
	file, size := "", ""
	if f := r.Newest(); f != nil {
		file, size = f.Name, humanize.IBytes(uint64(f.Size))
	}
	return table.Row{r.ID, string(r.State) + stale(r), r.FoundBy, size, file, r.Updated.Local().Format(time.DateTime), because(r)}
}

func stale(r *store.Receipt) string {
	if r.Stale {
		return " (stale)"
	}
	return ""
}

var receiptHeader = []any{"id", "state", "found by", "size", "file", "changed", "reason"}

// because says in one line why a receipt is as it is.
func because(r *store.Receipt) string {
	if r.Stale && r.Reason == "" && r.Status != "" {
		return oneLine("upstream still says " + r.Status)
	}
	if r.State != store.Partial {
		// The id stands beside it, and so does the address for whoever asks show.
		short := strings.NewReplacer(" report "+r.ID, "", " of job "+r.ID, "", " job "+r.ID, "").Replace(r.Reason)
		reason, _, _ := strings.Cut(short, " at http")
		return oneLine(reason)
	}
	var names []string
	for _, s := range r.FailedSources {
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		return oneLine(r.Reason)
	}
	return "failed: " + strings.Join(names, ", ")
}

// oneLine keeps what upstream wrote from breaking the layout or the terminal.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 {
			return ' '
		}
		return c
	}, s)
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return humanize.Time(t)
}
