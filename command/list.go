package command

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"recibo/console"
	"recibo/store"
)

func (a *app) listCommand() *cli.Command {
	return a.command(cli.Command{
		Name:  "list",
		Usage: "receipts, newest first",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "state", Usage: "only `STATE`: expected, pending, delivered, encrypted, partial, failed, parked"},
			&cli.StringFlag{Name: "since", Usage: "only what changed within `DURATION`, or since a date (2026-11-29) or time (RFC 3339)"},
			&cli.StringFlag{Name: "kind", Usage: "only `KIND`: report or job"},
			&cli.StringSliceFlag{Name: "meta", Usage: "only with metadata `KEY=VALUE` (KEY may be a path: error.code)"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N`; 0: all"},
			jsonFlag(),
		},
		Action: a.list,
	})
}

func (a *app) list(c *cli.Context) error {
	req, err := listRequest(c)
	if err != nil {
		return err
	}
	loaded, err := a.loadBeside(c)
	if err != nil {
		return err
	}
	show, finish := a.receiptLister(c.Bool("json"))
	err = a.call(c.Context, &loaded.Config, wish{}, console.CallList, req, console.Handlers{Item: show}, nil)
	finish()
	return err
}

func listRequest(c *cli.Context) (req console.ListRequest, err error) {
	if req.States, err = stateFlag(c); err != nil {
		return req, err
	}
	switch kind := store.Kind(c.String("kind")); kind {
	case "", store.Report, store.Job:
		req.Kind = kind
	default:
		return req, usage("--kind: %q is neither report nor job", kind)
	}
	if req.Since, err = sinceFlag(c); err != nil {
		return req, err
	}
	for _, m := range c.StringSlice("meta") {
		key, value, ok := strings.Cut(m, "=")
		if !ok || key == "" {
			return req, usage("--meta: %q is not of the form key=value", m)
		}
		if req.Meta == nil {
			req.Meta = map[string]string{}
		}
		req.Meta[key] = value
	}
	if req.Limit = c.Int("limit"); req.Limit < 0 {
		return req, usage("--limit: %d is less than 0", req.Limit)
	}
	return req, nil
}

func stateFlag(c *cli.Context) ([]store.State, error) {
	var states []store.State
	for _, s := range c.StringSlice("state") {
		if !slices.Contains(store.States[:], store.State(s)) {
			return nil, usage("--state: there is no state %q", s).with("the states are expected, pending, delivered, encrypted, partial, failed, parked")
		}
		states = append(states, store.State(s))
	}
	return states, nil
}

// sinceFlag takes a length of time back from now, a day (UTC) or a moment.
func sinceFlag(c *cli.Context) (time.Time, error) {
	text := c.String("since")
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	d, err := durationFlag(c, "since")
	return time.Now().Add(-d), err
}

// receiptLister returns a handler that shows receipts as they come, and what ends the list.
func (a *app) receiptLister(asJSON bool) (show func(json.RawMessage) error, finish func()) {
	if asJSON {
		return func(m json.RawMessage) error {
			r, err := decode[store.Receipt](m)
			if err != nil {
				return err
			}
			return a.printJSON(viewOf(r))
		}, func() {}
	}
	t := newTable(a.out, receiptHeader...)
	return func(m json.RawMessage) error {
			r, err := decode[store.Receipt](m)
			if err == nil {
				t.AppendRow(receiptRow(r))
			}
			return err
		}, func() {
			if t.Length() > 0 {
				t.Render()
			}
		}
}

func (a *app) showCommand() *cli.Command {
	return a.command(cli.Command{
		Name: "show", Usage: "one receipt with its timeline, events, attempts, file and hash", ArgsUsage: "ID",
		Flags: []cli.Flag{jobFlag(), jsonFlag()}, Action: a.show,
	})
}

func (a *app) show(c *cli.Context) error {
	if c.NArg() != 1 {
		return usage("show takes one id")
	}
	loaded, err := a.loadBeside(c)
	if err != nil {
		return err
	}
	var res console.ShowResult
	err = a.call(c.Context, &loaded.Config, wish{}, console.CallShow, console.IDs{IDs: c.Args().Slice(), Job: c.Bool("job")}, console.Handlers{}, &res)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return a.printJSON(res)
	}
	a.showReceipt(res)
	return nil
}

func (a *app) showReceipt(res console.ShowResult) {
	r := res.Receipt
	field := func(name, value string) {
		if value != "" {
			a.print("%-15s %s", name, oneLine(value))
		}
	}
	a.print("%s %s", r.Kind, r.ID)
	field("state", string(r.State)+stale(r))
	field("reason", r.Reason)
	field("found by", r.FoundBy)
	field("upstream status", r.Status)
	field("completed", r.CompletedAt)
	field("template", r.TemplateID)
	field("tenant", r.Tenant)
	field("source", r.Source)
	if r.State != store.Expected && r.State != store.Pending {
		field("settled by", r.Authority)
	}
	if r.Contested {
		field("contested", "its events contradict each other; fetcher decides")
	}
	if r.Attempts > 0 {
		field("attempts", humanize.Comma(int64(r.Attempts)))
	}
	if !r.Due.IsZero() {
		field("due", r.Due.UTC().Format(time.RFC3339))
	}
	if r.Undescribed {
		field("undescribed", "reporter would not describe it; the download itself was tried")
	}
	for _, s := range r.FailedSources {
		field("failed source", strings.TrimSpace(s.Name+" "+s.Code))
	}
	for _, f := range r.Files {
		what := f.Name
		if f.Replaced {
			what += " (replaced)"
		}
		field("file", what)
		field("  in", f.Dir)
		field("  size", humanize.Comma(f.Size)+" bytes")
		field("  sha256", f.SHA256)
		field("  whole by", f.Proof)
		if f.Rows > 0 {
			field("  rows", humanize.Comma(f.Rows))
		}
		field("  hmac", f.HMAC)
		field("  published", f.Published.UTC().Format(time.RFC3339))
	}
	if len(r.Metadata) > 0 {
		field("metadata", string(r.Metadata))
	}
	for _, e := range res.Events {
		field("event", e.ID+" "+e.Name+" "+e.Transport+" "+e.Origin+" "+e.At.UTC().Format(time.RFC3339))
	}
	for _, e := range r.Timeline {
		field(e.At.UTC().Format("01-02T15:04:05Z"), e.What)
	}
}
