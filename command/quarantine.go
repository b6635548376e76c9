package command

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"recibo/console"
	"recibo/store"
)

func (a *app) quarantineCommand() *cli.Command {
	all := &cli.BoolFlag{Name: "all", Usage: "also those released or dropped"}
	list := func(c *cli.Context) error { return a.quarantineList(c) }
	return a.command(cli.Command{
		Name: "quarantine", Usage: "events that could not be processed: list, show, release, drop",
		Flags: []cli.Flag{all, jsonFlag()},
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); name != "" {
				return noSubcommand(c, name)
			}
			return list(c)
		},
		Subcommands: []*cli.Command{
			a.command(cli.Command{Name: "list", Usage: "the open ones", Flags: []cli.Flag{all, jsonFlag()}, Action: list}),
			a.command(cli.Command{Name: "show", Usage: "one with its headers and bytes", ArgsUsage: "N",
				Flags: []cli.Flag{jsonFlag()}, Action: a.quarantineShow}),
			a.command(cli.Command{Name: "release", Usage: "admit them after all", ArgsUsage: "N… | --verified",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "report", Usage: "the `ID` of the report they are about, where the event does not say"},
					&cli.BoolFlag{Name: "verified", Usage: "all whose signature could not be verified and now can, as after a key was added"},
				},
				Action: a.quarantineRelease}),
			a.command(cli.Command{Name: "drop", Usage: "throw their bytes away; a note with the reason stays", ArgsUsage: "N…",
				Flags: []cli.Flag{&cli.StringFlag{Name: "reason", Usage: "`TEXT` to keep on record"}}, Action: a.quarantineDrop}),
		},
	})
}

func (a *app) quarantineList(c *cli.Context) error {
	loaded, err := a.loadBeside(c)
	if err != nil {
		return err
	}
	t := newTable(a.out, "n", "since", "times", "event", "origin", "reason")
	show := func(m json.RawMessage) error {
		if c.Bool("json") {
			_, err := a.out.Write(append(m, '\n'))
			return err
		}
		q, err := decode[store.Quarantined](m)
		if err == nil {
			t.AppendRow(table.Row{q.ID, ago(q.At), q.Times, oneLine(q.EventName + " " + q.EventID), oneLine(q.Origin), oneLine(whyKept(q))})
		}
		return err
	}
	req := console.EntryRequest{Dropped: c.Bool("all")}
	err = a.call(c.Context, &loaded.Config, wish{}, console.CallQuarantine, req, console.Handlers{Item: show}, nil)
	if t.Length() > 0 {
		t.Render()
	}
	return err
}

// whyKept says what became of an entry, and why it was kept.
func whyKept(q *store.Quarantined) string {
	if closed := q.Closed(); closed != "" {
		return closed + "; " + q.Reason
	}
	return q.Reason
}

func (a *app) quarantineShow(c *cli.Context) error {
	var q store.Quarantined
	if c.NArg() != 1 {
		return usage("quarantine show takes the number of one event").with(seeNumbers)
	}
	if err := a.entries(c, console.CallEntry, console.EntryRequest{}, nil, &q); err != nil {
		return err
	}
	if c.Bool("json") {
		return a.printJSON(q)
	}
	a.print("event       %s %s", oneLine(q.EventName), oneLine(q.EventID))
	a.print("reason      %s", oneLine(q.Reason))
	a.print("origin      %s %s", oneLine(q.Transport), oneLine(q.Origin))
	a.print("since       %s, %d times", q.At.UTC().Format(time.RFC3339), q.Times)
	if closed := q.Closed(); closed != "" {
		a.print("closed      %s", oneLine(closed))
	}
	for _, name := range slices.Sorted(maps.Keys(q.Headers)) {
		a.print("%s: %s", oneLine(headerName(q.Feed, name)), oneLine(q.Headers[name]))
	}
	if q.Open() {
		a.print("%s", strconv.QuoteToGraphic(string(q.Data)))
	}
	return nil
}

// headerName is what a header is called upstream. The attributes of CloudEvents are kept without their prefix; Fetcher has
// others beside them, and the route is part of what it signs.
func headerName(feed, name string) string {
	if feed == store.Jobs {
		switch name {
		case "t", "signature-version", "x-tenant-id", "x-message-signature", "traceparent", "exchange", "routing-key":
			return name
		}
	}
	return "ce-" + name
}

func (a *app) quarantineRelease(c *cli.Context) error {
	if c.Bool("verified") {
		return a.releaseVerified(c)
	}
	tell := func(m json.RawMessage) error {
		r, err := decode[console.Released](m)
		switch {
		case err != nil:
			return err
		case r.Admitted:
			a.tell("event %d is released; %s is due", r.Entry, r.Key)
		default:
			a.tell("event %d is released; the same event of %s was admitted before, so nothing is due", r.Entry, r.Key)
		}
		return nil
	}
	return a.entries(c, console.CallRelease, console.EntryRequest{Report: c.String("report")}, tell, nil)
}

func (a *app) releaseVerified(c *cli.Context) error {
	if c.NArg() > 0 || c.IsSet("report") {
		return usage("quarantine release takes either numbers or --verified")
	}
	loaded, err := a.loadBeside(c)
	if err != nil {
		return err
	}
	var res console.ReleasedVerified
	err = a.call(c.Context, &loaded.Config, wish{}, console.CallRelease, console.EntryRequest{Verified: true}, console.Handlers{}, &res)
	if err != nil {
		return err
	}
	a.tell("%s released; %d more were admitted before; %d are still not verified",
		english.Plural(res.Admitted, "event is", "events are"), res.Repeated, res.Left)
	for _, n := range res.Disputed {
		a.tell("event %d contradicts one that was admitted: recibo quarantine release %d says that it counts", n, n)
	}
	if res.Admitted+res.Repeated == 0 && res.Left+len(res.Disputed) > 0 {
		return silent(exitFailed)
	}
	return nil
}

func (a *app) quarantineDrop(c *cli.Context) error {
	reason := strings.TrimSpace(c.String("reason"))
	if reason == "" {
		return usage("quarantine drop needs a reason, which stays on record").with("recibo quarantine drop N --reason TEXT")
	}
	err := a.entries(c, console.CallDrop, console.EntryRequest{Reason: reason}, nil, nil)
	if err == nil {
		a.tell("%s dropped", english.PluralWord(c.NArg(), "the event is", "the events are"))
	}
	return err
}

const seeNumbers = "recibo quarantine list shows the numbers"

// entries makes a call about the quarantined events whose numbers are the arguments.
func (a *app) entries(c *cli.Context, call string, req console.EntryRequest, item func(json.RawMessage) error, result any) error {
	for _, arg := range c.Args().Slice() {
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil {
			return usage("quarantine %s: %q is no number of an event", c.Command.Name, arg).with(seeNumbers)
		}
		req.IDs = append(req.IDs, n)
	}
	if len(req.IDs) == 0 {
		return usage("quarantine %s takes the number of an event", c.Command.Name).with(seeNumbers)
	}
	slices.Sort(req.IDs)
	req.IDs = slices.Compact(req.IDs)
	loaded, err := a.loadBeside(c)
	if err != nil {
		return err
	}
	return a.call(c.Context, &loaded.Config, wish{}, call, req, console.Handlers{Item: item}, result)
}
