package command

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/urfave/cli/v2"

	"recibo/agent"
	"recibo/config"
	"recibo/setting"
	"recibo/store"
)

func (a *app) runCommand() *cli.Command {
	return a.command(cli.Command{
		Name:  "run",
		Usage: "the agent: receive events and bring reports home, until SIGTERM or SIGINT (a second one stops at once)",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "for", Usage: "stop after `DURATION`"},
			&cli.StringFlag{Name: "until-idle", Usage: "stop once nothing was left to do for `DURATION`"},
			&cli.BoolFlag{Name: "take-over", Usage: "take folder and subscription from the agent of another ledger, which must be gone for good"},
		},
		Action: a.run,
	})
}

func (a *app) run(c *cli.Context) error {
	loaded, err := a.load(c)
	if err != nil {
		return err
	}
	limit, err := durationFlag(c, "for")
	if err != nil {
		return err
	}
	idle, err := durationFlag(c, "until-idle")
	if err != nil {
		return err
	}
	if err := a.withoutMasterKey(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(c.Context)
	defer stop()
	if limit > 0 {
		// The end of a trial is a stop like any other, not a deadline for what the agent is waiting for.
		defer time.AfterFunc(limit, stop).Stop()
	}
	w := wish{create: true, work: true, intake: true, takeOver: c.Bool("take-over"), log: a.logger(loaded.Config.Log, false)}
	if w.config = loaded.Path; w.config == "" {
		w.config = "none; the defaults hold"
	}
	return a.runAgent(ctx, &loaded.Config, w, idle)
}

// withoutMasterKey refuses to work beside Fetcher's master key.
func (a *app) withoutMasterKey() error {
	if !slices.ContainsFunc(a.env, func(v string) bool { return strings.HasPrefix(v, masterKeyVariable+"=") }) {
		return nil
	}
	return usage("APP_ENC_KEY is in the environment: the master key opens database credentials and has no place here").
		with("derive the keys that are needed with recibo keys on Fetcher's side, and unset APP_ENC_KEY")
}

// runAgent is the daemon from its first to its last step.
func (a *app) runAgent(ctx context.Context, c *config.Config, w wish, idle time.Duration) error {
	o, err := ownPatiently(ctx, c, w)
	if err != nil {
		return err
	}
	asked := "none"
	if c.Reporter.Enabled {
		asked = c.Reporter.URL
	}
	w.log.Info("recibo runs", "version", version(), "config", w.config, "ledger", c.Store.Path, "downloads", c.Downloads.Dir,
		"subscriptions", len(o.agent.Subscriptions)+len(o.agent.JobSubscriptions), "reporter", asked, "fetcher", c.Fetcher.On())
	running, stop := context.WithCancel(ctx)
	defer stop()
	if idle > 0 {
		go stopWhenIdle(running, o, idle, stop)
	}
	go func() {
		<-o.agent.Started()
		_, _ = daemon.SdNotify(false, daemon.SdNotifyReady) // no systemd, nobody to tell
		<-running.Done()
		_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	}()
	err = o.agent.Run(running)
	stop()
	if err == nil {
		w.log.Info("recibo stops; what is due stays due")
	}
	return errors.Join(err, o.close(time.Second))
}

// ownPatiently waits a little for another process, such as a poll from cron, to let go of the ledger.
func ownPatiently(ctx context.Context, c *config.Config, w wish) (*owner, error) {
	for deadline := time.Now().Add(patience); ; {
		o, err := own(c, w)
		var owned *store.OwnedError
		if err == nil || !errors.As(err, &owned) || time.Now().After(deadline) {
			return o, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// settling bounds how long a trial that stops when idle waits for its subscription and its first sweep.
const settling = 20 * time.Second

// stopWhenIdle stops a trial once there was nothing left to do and no event for the time given.
func stopWhenIdle(ctx context.Context, o *owner, idle time.Duration, stop context.CancelFunc) {
	begun := time.Now()
	settled := false // nothing to do means little before events can come and Reporter has been asked
	last, since := intake{}, begun
	tick := time.NewTicker(min(idle, 100*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := o.agent.Status(ctx)
		if err != nil {
			continue
		}
		settled = settled || o.settled(now, begun) || time.Since(begun) > settling
		came, waiting := o.intake(now)
		if busy := !settled || waiting || o.busy(ctx, now, idle); busy || came != last {
			last, since = came, time.Now()
			continue
		}
		if time.Since(since) >= idle {
			stop()
			return
		}
	}
}

// intake is how many messages came, and of them how many events were new or repeated.
type intake struct{ received, admitted, repeated uint64 }

// intake also tells whether a subscription had more messages waiting when it was bound than have come.
func (o *owner) intake(now agent.Status) (came intake, waiting bool) {
	came.admitted, came.repeated = now.Admitted, now.Repeated
	for _, s := range slices.Concat(o.agent.Subscriptions, o.agent.JobSubscriptions) {
		h := s.Health()
		came.received += h.Received
		waiting = waiting || h.Healthy && h.Backlog > h.Received
	}
	return came, waiting
}

// settled tells whether the subscriptions are bound and, where there are sweeps, one has been completed since begun.
func (o *owner) settled(now agent.Status, begun time.Time) bool {
	for _, s := range slices.Concat(o.agent.Subscriptions, o.agent.JobSubscriptions) {
		if !s.Health().Healthy {
			return false
		}
	}
	c := o.agent.Config
	if o.reporter == nil || c.PollEvery == 0 && c.PollHealthy == 0 {
		return true
	}
	return now.LastSweep != nil && !now.LastSweep.Start.Before(begun)
}

// busy tells whether something is in work, is still to be brought home, or will be due within the time given.
func (o *owner) busy(ctx context.Context, now agent.Status, within time.Duration) bool {
	stats, err := o.ledger.Stats(ctx)
	if err != nil || stats.Count(store.Pending) > 0 || now.Active > 0 {
		return true
	}
	look, err := o.ledger.Due(ctx, now.At.Add(within), store.Mark{}, 1, nil)
	return err != nil || len(look.Due) > 0
}

// durationFlag reads a duration in the form that the configuration takes.
func durationFlag(c *cli.Context, name string) (time.Duration, error) {
	text := c.String(name)
	if text == "" {
		return 0, nil
	}
	d, err := setting.ParseDuration(text)
	if err != nil {
		return 0, usage("--%s: %v", name, err)
	}
	if d <= 0 {
		return 0, usage("--%s: must be longer than 0", name)
	}
	return d, nil
}
