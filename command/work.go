package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/urfave/cli/v2"

	"recibo/config"
	"recibo/console"
	"recibo/store"
)

// The commands that bring reports home or ask for it: poll, fetch, watch, retry; and dismiss, which no longer does.

func (a *app) pollCommand() *cli.Command {
	return a.command(cli.Command{
		Name:  "poll",
		Usage: "one sweep for cron: ask Reporter (and Fetcher for watched jobs), bring home what is missing, exit; quiet unless something is wrong",
		Description: "Beside a running agent it asks that agent and waits; a second poll joins the first.\n" +
			"Without --since it looks back to the last complete sweep less agent.poll_look_back.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "since", Usage: "look back `DURATION`, whatever agent.start_at says"},
			&cli.StringFlag{Name: "max-time", Usage: "stop after `DURATION`; the rest stays due", Value: "10m"},
			&cli.BoolFlag{Name: "events", Usage: "also receive what the subscription holds"},
			&cli.BoolFlag{Name: "dry-run", Usage: "only say what would be brought home"},
			&cli.BoolFlag{Name: "strict", Usage: "partial reports count as failure"},
			&cli.BoolFlag{Name: "take-over", Usage: "take folder and subscription from the agent of another ledger"},
			jsonFlag(),
		},
		Action: a.poll,
	})
}

func (a *app) poll(c *cli.Context) error {
	req := console.PollRequest{DryRun: c.Bool("dry-run"), Events: c.Bool("events")}
	var err error
	if req.Since, err = durationFlag(c, "since"); err != nil {
		return err
	}
	if req.MaxTime, err = durationFlag(c, "max-time"); err != nil {
		return err
	}
	loaded, err := a.load(c)
	if err != nil {
		return err
	}
	if err := a.withoutMasterKey(); err != nil {
		return err
	}
	w := wish{create: true, work: true, intake: req.Events, takeOver: c.Bool("take-over")}
	if req.DryRun {
		w = wish{}
		forget, err := withoutLedger(&loaded.Config, &w)
		if err != nil {
			return err
		}
		defer forget()
	}
	var res console.PollResult
	troubles := false
	bars := newBars(a.err)
	err = a.call(c.Context, &loaded.Config, w, console.CallPoll, req, console.Handlers{
		Item: func(m json.RawMessage) error {
			trouble, err := a.tellTrouble(m, c.Bool("strict"))
			troubles = troubles || trouble
			return err
		}, Progress: bars.progress,
	}, &res)
	bars.finish()
	if err == nil {
		err = a.pollEnd(c, res)
	}
	if err == nil && (troubles || res.Quarantined > 0) {
		err = silent(exitFailed)
	}
	return err
}

// withoutLedger lets a look work where there is no ledger yet, with one that is thrown away: looking makes nothing.
func withoutLedger(c *config.Config, w *wish) (forget func(), err error) {
	if _, err := os.Stat(c.Store.Path); !errors.Is(err, os.ErrNotExist) {
		return func() {}, err
	}
	dir, err := os.MkdirTemp("", "recibo-look-")
	if err != nil {
		return nil, err
	}
	c.Store.Path, c.Console.Socket, c.Downloads.Dir = filepath.Join(dir, "recibo.db"), "", filepath.Join(dir, "downloads")
	w.create = true
	return func() { _ = os.RemoveAll(dir) }, nil // a temporary folder of this process
}

// tellTrouble names each receipt whose file did not come home, and reports whether that counts as failure. A poll that
// found nothing wrong says nothing.
func (a *app) tellTrouble(m json.RawMessage, strict bool) (failed bool, err error) {
	r, err := decode[store.Receipt](m)
	if err != nil {
		return false, err
	}
	// What is home and was asked for anew may have failed to come.
	failed = wrong(r.State, strict) || r.Newest() != nil && r.Attempts > 0 && r.Due.IsZero()
	if failed || r.Stale {
		a.tell("recibo: %s %s is %s%s: %s", r.Kind, r.ID, r.State, stale(r), because(r))
	}
	return failed, nil
}

func wrong(s store.State, strict bool) bool {
	return s == store.Failed || s == store.Parked || strict && s == store.Partial
}

func (a *app) pollEnd(c *cli.Context, res console.PollResult) error {
	switch {
	case c.Bool("json"):
		if err := a.printJSON(res); err != nil {
			return err
		}
	case c.Bool("dry-run"):
		for _, id := range res.Sweep.Missing {
			a.print("%s", id)
		}
	}
	if res.Quarantined > 0 {
		a.tell("recibo: %s quarantined: recibo quarantine list says why", english.Plural(res.Quarantined, "event was", "events were"))
	}
	if res.StillDue > 0 {
		a.tell("recibo: %s still due; the next poll or a running agent goes on",
			english.Plural(res.StillDue, "receipt is", "receipts are"))
	}
	return nil
}

func (a *app) fetchCommand() *cli.Command {
	return a.command(cli.Command{
		Name: "fetch", Usage: "bring these reports, or results of jobs, home now, ahead of others", ArgsUsage: "ID…",
		Description: "An ID - reads ids from standard input, one a line.",
		Flags: []cli.Flag{
			jobFlag(), &cli.BoolFlag{Name: "force", Usage: "download again what is home already"}, jsonFlag(),
		},
		Action: a.fetch,
	})
}

func (a *app) fetch(c *cli.Context) error {
	return a.ask(c, console.CallFetch, wish{create: true, work: true}, console.IDs{Job: c.Bool("job"), Force: c.Bool("force")})
}

// jobFlag tells what ids are of, for those that are not on record and for one that a report has too.
func jobFlag() cli.Flag { return &cli.BoolFlag{Name: "job", Usage: "ids are of Fetcher's jobs"} }

func (a *app) watchCommand() *cli.Command {
	return a.command(cli.Command{
		Name: "watch", Usage: "these reports or jobs are expected: ask about them until they end", ArgsUsage: "ID…",
		Description: "An ID - reads ids from standard input, one a line. The asking is done by recibo run or recibo poll.",
		Flags:       []cli.Flag{jobFlag(), &cli.BoolFlag{Name: "wait", Usage: "return once all have ended"}, jsonFlag()},
		Action:      a.watch,
	})
}

func (a *app) watch(c *cli.Context) error {
	wait := c.Bool("wait")
	return a.ask(c, console.CallWatch, wish{create: true, work: wait}, console.IDs{Job: c.Bool("job"), Wait: wait})
}

func (a *app) retryCommand() *cli.Command {
	return a.command(cli.Command{
		Name: "retry", Usage: "make receipts due now", ArgsUsage: "ID… | --state STATE",
		Flags: []cli.Flag{
			jobFlag(), &cli.StringSliceFlag{Name: "state", Usage: "all receipts in `STATE`, such as parked"}, jsonFlag(),
		},
		Action: a.retry,
	})
}

func (a *app) retry(c *cli.Context) error {
	states, err := stateFlag(c)
	if err != nil {
		return err
	}
	if (len(states) > 0) == c.Args().Present() {
		return usage("retry takes either ids or --state")
	}
	return a.ask(c, console.CallRetry, wish{}, console.IDs{States: states, Job: c.Bool("job")})
}

func (a *app) dismissCommand() *cli.Command {
	return a.command(cli.Command{
		Name: "dismiss", Usage: "nobody waits for these any more: parked, pending or expected ones end as failed", ArgsUsage: "ID… | --state STATE",
		Description: "An ID - reads ids from standard input, one a line. An event, a sweep that finds news, fetch, watch and retry take them up again.",
		Flags: []cli.Flag{
			jobFlag(), &cli.StringSliceFlag{Name: "state", Usage: "all receipts in `STATE`, such as parked"},
			&cli.StringFlag{Name: "reason", Usage: "`TEXT` to keep on record"}, jsonFlag(),
		},
		Action: a.dismiss,
	})
}

func (a *app) dismiss(c *cli.Context) error {
	states, err := stateFlag(c)
	if err != nil {
		return err
	}
	reason := strings.TrimSpace(c.String("reason"))
	switch {
	case (len(states) > 0) == c.Args().Present():
		return usage("dismiss takes either ids or --state")
	case reason == "":
		return usage("dismiss needs a reason, which stays on record").with("recibo dismiss ID… --reason TEXT")
	}
	return a.ask(c, console.CallDismiss, wish{}, console.IDs{States: states, Job: c.Bool("job"), Reason: reason})
}

// ask makes a call about the reports named by the arguments and shows how they stand.
func (a *app) ask(c *cli.Context, call string, w wish, req console.IDs) error {
	var err error
	if len(req.States) == 0 {
		if req.IDs, err = a.ids(c); err != nil {
			return err
		}
	}
	loaded, err := a.loadBeside(c)
	if err != nil {
		return err
	}
	bars := newBars(a.err)
	show, finish := a.receiptLister(c.Bool("json"))
	var troubles []string
	item := func(m json.RawMessage) error {
		r, err := decode[store.Receipt](m)
		if err == nil && call != console.CallRetry && call != console.CallDismiss {
			troubles = append(troubles, notHome(r)...)
		}
		return errors.Join(err, show(m))
	}
	err = a.call(c.Context, &loaded.Config, w, call, req, console.Handlers{Item: item, Progress: bars.progress}, nil)
	bars.finish()
	finish()
	for _, t := range troubles {
		a.tell("recibo: %s", t)
	}
	if err == nil && len(troubles) > 0 {
		return silent(exitFailed)
	}
	return err
}

// notHome says what went wrong with a report that was asked for; nothing where nothing did.
func notHome(r *store.Receipt) []string {
	switch r.State {
	case store.Pending:
		tried := ""
		if r.Attempts > 0 {
			tried = " after " + english.Plural(r.Attempts, "attempt", "")
		}
		return []string{fmt.Sprintf("%s %s is not home%s and stays due: %s", r.Kind, r.ID, tried, because(r))}
	case store.Failed, store.Parked:
		return []string{fmt.Sprintf("%s %s is %s: %s", r.Kind, r.ID, r.State, because(r))}
	case store.Delivered, store.Encrypted:
		if r.Attempts > 0 {
			return []string{fmt.Sprintf("%s %s is home, and was not brought home anew: %s", r.Kind, r.ID, because(r))}
		}
	}
	return nil
}

// ids reads the arguments, and standard input for an argument -.
func (a *app) ids(c *cli.Context) ([]string, error) {
	var ids []string
	for _, arg := range c.Args().Slice() {
		if arg != "-" {
			ids = append(ids, arg)
			continue
		}
		data, err := io.ReadAll(io.LimitReader(a.in, 8<<20))
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			if !strings.HasPrefix(strings.TrimSpace(line), "#") {
				ids = append(ids, strings.Fields(line)...)
			}
		}
	}
	if len(ids) == 0 {
		return nil, usage("%s needs at least one id", c.Command.Name)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
