package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"recibo/agent"
	"recibo/config"
	"recibo/sandbox"
	"recibo/store"
)

func (a *app) demoCommand() *cli.Command {
	return a.command(cli.Command{
		Name: "demo",
		Usage: "the whole job with everything embedded: a Hub, a Reporter, repetitions, partial and failed reports, silence; " +
			"and a Fetcher where RabbitMQ is installed",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "reports", Value: 40, Usage: "how many reports, and jobs of Fetcher"},
			&cli.BoolFlag{Name: "faults", Usage: "with broken bodies, refusals, 429 and 5xx on the way"},
			&cli.StringFlag{Name: "dir", Usage: "work in `DIR`, which must be empty, and keep it"},
			&cli.BoolFlag{Name: "keep", Usage: "keep the temporary folder"},
			jsonFlag(),
		},
		Action: a.demo,
	})
}

// demoResult is what demo --json prints.
type demoResult struct {
	OK          bool      `json:"ok"`
	Reports     int       `json:"reports"`
	Events      uint64    `json:"events"`
	Repetitions uint64    `json:"repetitions"`
	Delivered   uint64    `json:"delivered"`
	Partial     uint64    `json:"partial"`
	Failed      uint64    `json:"failed"`
	ByPoll      int       `json:"by_poll"`
	Bytes       uint64    `json:"bytes"`
	Seconds     float64   `json:"seconds"`
	Dir         string    `json:"dir"`
	Jobs        *demoJobs `json:"jobs,omitempty"` // nil: rabbitmq-server is not installed
	Complaints  []string  `json:"complaints,omitempty"`
}

// demoTime bounds a demo that does not come to its end.
const demoTime = 10 * time.Minute

// demoRows is how many receipts the closing table shows.
const demoRows = 60

func (a *app) demo(c *cli.Context) error {
	n := c.Int("reports")
	if n < 1 || n > 1_000_000 {
		return usage("--reports: %d is outside 1 to 1000000", n)
	}
	dir, err := demoDir(c.String("dir"))
	if err != nil {
		return err
	}
	keep := c.Bool("keep") || c.String("dir") != ""
	if !keep {
		defer func() { _ = os.RemoveAll(dir) }() // a temporary folder of this process
	}
	ctx, cancel := context.WithTimeout(c.Context, demoTime)
	defer cancel()
	d := &demonstration{app: a, dir: dir, scenario: demoScenario(n, c.Bool("faults")), quiet: c.Bool("json")}
	if err := d.play(ctx); err != nil {
		return err
	}
	if c.Bool("json") {
		err = a.printJSON(d.result)
	} else {
		d.show(keep)
	}
	if err == nil && !d.result.OK {
		err = silent(exitFailed)
	}
	return err
}

func demoDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "recibo-demo-")
	}
	dir, err := absolute(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		return "", usage("--dir: %s is not empty", dir)
	}
	return dir, err
}

// demoScenario has something of everything even when it is short.
func demoScenario(reports int, faults bool) sandbox.Scenario {
	o := sandbox.ScenarioOptions{Reports: reports, Faults: faults, Noise: true, Seed: 1}
	if reports < 200 {
		o.PartialEvery, o.SilentEvery, o.ErrorEvery, o.LateEvery = 8, 10, 13, 17
	}
	return sandbox.NewScenario(o)
}

// demonstration is one run of the demo.
type demonstration struct {
	*app
	dir      string
	quiet    bool
	scenario sandbox.Scenario
	jobs     *jobs // nil without RabbitMQ
	work     sandbox.JobScenario
	receipts []*store.Receipt
	result   demoResult
}

func (d *demonstration) play(ctx context.Context) (err error) {
	sb, err := sandbox.Start(ctx, sandbox.Options{Dir: filepath.Join(d.dir, "hub")})
	if err != nil {
		return err
	}
	defer sb.Close()
	switch d.jobs, err = startJobs(ctx, d.dir, slog.New(slog.DiscardHandler)); {
	case err == nil:
		defer d.jobs.close()
		d.work = demoWork(len(d.scenario.Reports))
	case !errors.Is(err, sandbox.ErrNoRabbitMQ):
		return err
	}
	begun := time.Now() // the broker takes some seconds to start
	c, err := d.configure(sb)
	if err != nil {
		return err
	}
	o, err := own(c, wish{create: true, work: true, intake: true, log: d.logger(config.Log{Level: "error", Format: "auto"}, false)})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var ran error
	wg.Go(func() { ran = o.agent.Run(running) })
	err = d.follow(ctx, o, sb)
	if err == nil {
		err = d.judge(ctx, o, sb, c)
	}
	stop()
	wg.Wait()
	d.result.Seconds = time.Since(begun).Seconds()
	return errors.Join(err, ran, o.close(time.Second))
}

// configure writes the configuration that the demo runs with, for whoever keeps the folder.
func (d *demonstration) configure(sb *sandbox.Sandbox) (*config.Config, error) {
	file := filepath.Join(d.dir, "config.yaml")
	text := sandboxConfig(sb)
	if d.jobs != nil {
		text += d.jobs.config()
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	loaded, err := config.Load(file, nil)
	if err != nil {
		return nil, err
	}
	// The demo sweeps when the events are through, so that it shows which reports only a sweep finds.
	c := &loaded.Config
	c.Agent.PollEvery, c.Agent.PollHealthy, c.Agent.PollGrace = time.Hour, time.Hour, 0
	return c, nil
}

// follow plays the scenario and returns once every report is where it belongs.
func (d *demonstration) follow(ctx context.Context, o *owner, sb *sandbox.Sandbox) error {
	if err := firstSweep(ctx, o); err != nil {
		return err
	}
	played := make(chan error, 2)
	playing := 1
	go func() { played <- sb.Play(ctx, d.scenario) }()
	if d.jobs != nil {
		playing++
		go func() { played <- d.jobs.play(ctx, d.work) }()
	}
	var bar *mpb.Bar
	if !d.quiet && isTerminal(d.err) {
		progress := mpb.New(mpb.WithOutput(d.err), mpb.WithWidth(40))
		bar = progress.AddBar(int64(len(d.scenario.Reports)+len(d.work.Jobs)), mpb.PrependDecorators(decor.Name("home ")),
			mpb.AppendDecorators(decor.CountersNoUnit("%d / %d")))
		defer progress.Wait()
		defer bar.Abort(false)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for playing > 0 || !d.through(o) {
		select {
		case err := <-played:
			if err != nil {
				return err
			}
			playing--
		case <-ctx.Done():
			return fmt.Errorf("the demo did not come to its end: %w", ctx.Err())
		case <-tick.C:
		}
		stats, err := o.ledger.Stats(ctx)
		if err != nil {
			return err
		}
		home := stats.Count(store.Delivered) + stats.Count(store.Partial) + stats.Count(store.Failed)
		if bar != nil {
			bar.SetCurrent(int64(home))
		}
	}
	return d.sweep(ctx, o)
}

// through tells whether every event was taken and everything that they made due is done.
func (d *demonstration) through(o *owner) bool {
	taken := o.agent.Counts()
	return int(taken.Admitted+taken.Repeated+taken.Skipped+taken.Quarantined) >= len(d.scenario.Events)+len(d.work.Emissions) &&
		o.agent.Active() == 0
}

// sweep finds what no event announced, and returns once everything is home.
func (d *demonstration) sweep(ctx context.Context, o *owner) error {
	if d.jobs != nil {
		if err := errors.Join(o.agent.ExpectListed(ctx), o.agent.HurryJobs(ctx, 0)); err != nil {
			return err
		}
	}
	for {
		if _, err := o.agent.Sweep(ctx, agent.Sweep{}); err == nil {
			return o.agent.WaitIdle(ctx, time.Now().Add(demoTime))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the demo did not come to its end: %w", ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// firstSweep returns once the agent has bound its subscription and swept: from then on events come first.
func firstSweep(ctx context.Context, o *owner) error {
	for {
		_, swept, err := o.agent.LastSweep(ctx)
		if swept || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the agent did not start: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// judge compares what is in the folder and the ledger with what was played.
func (d *demonstration) judge(ctx context.Context, o *owner, sb *sandbox.Sandbox, c *config.Config) error {
	stats, err := o.ledger.Stats(ctx)
	if err != nil {
		return err
	}
	taken := o.agent.Counts()
	r := &d.result
	reports := stats.Receipts[store.Report]
	*r = demoResult{
		Reports: len(d.scenario.Reports), Delivered: uint64(reports[store.Delivered]), Partial: uint64(reports[store.Partial]),
		Failed: uint64(reports[store.Failed]), Dir: d.dir, Jobs: d.countJobs(stats.Receipts[store.Job]),
	}
	r.Complaints = d.compare(sb, c.Downloads.Dir)
	for row, err := range o.ledger.All(ctx, store.Query{}) {
		if err != nil {
			return err
		}
		d.count(row)
	}
	// The two feeds are counted together; what was played of jobs is known.
	r.Events = taken.Admitted + taken.Repeated - d.genuine()
	r.Repetitions = taken.Repeated - uint64(d.work.Repetitions)
	expect := func(what string, got, want int) {
		if got != want {
			r.Complaints = append(r.Complaints, fmt.Sprintf("%s: %d, expected %d", what, got, want))
		}
	}
	expect("delivered", int(r.Delivered), len(d.scenario.Finished))
	expect("partial", int(r.Partial), len(d.scenario.Partial))
	expect("failed", int(r.Failed), len(d.scenario.Error))
	expect("repetitions dropped", int(r.Repetitions), d.scenario.Repetitions)
	expect("quarantined", int(stats.Quarantined), d.work.Forgeries)
	if j := r.Jobs; j != nil {
		expect("jobs delivered", j.Delivered, len(d.work.Completed))
		expect("jobs failed", j.Failed, len(d.work.Failed))
		expect("jobs found by asking", j.ByAsking, len(d.work.Silent))
	}
	r.OK = len(r.Complaints) == 0
	return nil
}

func (d *demonstration) show(kept bool) {
	t := newTable(d.out, receiptHeader...)
	for _, r := range d.receipts {
		t.AppendRow(receiptRow(r))
	}
	t.Render()
	r := &d.result
	if more := r.Reports + len(d.work.Jobs) - len(d.receipts); more > 0 {
		d.print("… and %d more", more)
	}
	d.print("")
	d.print("%d events, %d of them repetitions, about %d reports: %d delivered (%s), %d partial, %d failed; %d found by polling; %.1f s",
		r.Events, r.Repetitions, r.Reports, r.Delivered, humanize.IBytes(r.Bytes), r.Partial, r.Failed, r.ByPoll, r.Seconds)
	d.showJobs()
	for _, c := range r.Complaints {
		d.print("wrong: %s", c)
	}
	if r.OK {
		d.print("everything is where it belongs, byte for byte")
	}
	if kept {
		d.print("everything is in %s", d.dir)
	}
}
