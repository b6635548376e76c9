package command

import (
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"recibo/console"
	"recibo/store"
)

func (a *app) statusCommand() *cli.Command {
	return a.command(cli.Command{
		Name: "status", Usage: "the ledger and, if one runs, the agent at a glance", Flags: []cli.Flag{jsonFlag()}, Action: a.status,
	})
}

func (a *app) status(c *cli.Context) error {
	loaded, err := a.loadBeside(c)
	if err != nil {
		return err
	}
	var s console.StatusResult
	if err := a.call(c.Context, &loaded.Config, wish{}, console.CallStatus, nil, console.Handlers{}, &s); err != nil {
		return err
	}
	if c.Bool("json") {
		return a.printJSON(s)
	}
	a.showStatus(&s)
	return nil
}

func (a *app) showStatus(s *console.StatusResult) {
	if s.Agent.Working {
		a.print("agent          runs as process %d, version %s", s.PID, s.Version)
	} else {
		a.print("agent          none runs")
	}
	for _, state := range store.States {
		a.print("%-14s %s", state, humanize.Comma(int64(s.Ledger.Count(state))))
	}
	a.print("quarantined    %s", humanize.Comma(int64(s.Ledger.Quarantined)))
	a.print("ledger         %s, instance %s", humanize.IBytes(uint64(s.Ledger.FileSize)), s.Instance)
	if s.LedgerTrouble != "" {
		a.print("               can't be written: %s", oneLine(s.LedgerTrouble))
	}
	if last := s.Agent.LastSweep; last != nil {
		a.print("last sweep     %s: %d listed, %d found, %d never announced", ago(last.End), last.Listed, last.Found, last.Unannounced)
	} else {
		a.print("last sweep     never")
	}
	if s.Agent.Silent {
		a.print("silent         the last sweep found reports that no event had announced, and none has come since")
	}
	if !s.Agent.Working {
		return
	}
	for _, h := range s.Subscriptions {
		state := "healthy"
		if !h.Healthy {
			state = "down: " + oneLine(h.Detail)
		}
		a.print("subscription   %s %s; last event %s", h.Transport, state, ago(h.LastEvent))
	}
	for _, g := range s.Gates {
		if !g.Open {
			a.print("%-14s %s held since %s: %s; next probe %s", g.Service, g.Class, g.Since.UTC().Format(time.RFC3339), oneLine(g.Reason),
				g.ProbeAt.UTC().Format(time.RFC3339))
		}
	}
	if s.Agent.Folder != "" {
		a.print("downloads      paused: %s", oneLine(s.Agent.Folder))
	}
	if s.Agent.Keys != "" {
		a.print("keys           those from before are in force: %s", oneLine(s.Agent.Keys))
	}
	a.print("in work        %d, of which %d wait for a download", s.Agent.Active, s.Agent.Ready)
}
