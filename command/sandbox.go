package command

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"recibo/config"
	"recibo/sandbox"
	"recibo/store"
)

func (a *app) sandboxCommand() *cli.Command {
	return a.command(cli.Command{
		Name:  "sandbox",
		Usage: "the embedded Hub, Reporter and Fetcher left running, with a configuration to try one's own settings against",
		Description: "It writes config.yaml into --dir and plays reports until it is stopped.\n" +
			"In another terminal: recibo --config DIR/config.yaml run",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Usage: "work in `DIR`", Value: "./sandbox-data"},
			&cli.IntFlag{Name: "reports", Value: 100, Usage: "how many reports at once"},
			&cli.IntFlag{Name: "jobs", Value: 100, Usage: "how many jobs of Fetcher at once, where RabbitMQ is installed"},
			&cli.StringFlag{Name: "every", Usage: "play as many again each `DURATION`"},
			&cli.BoolFlag{Name: "faults", Usage: "with broken bodies, refusals, 429 and 5xx on the way"},
			&cli.IntFlag{Name: "download-limit", Usage: "downloads a minute that the Reporter grants (v1.1 grants 10); 0: all"},
		},
		Action: a.sandbox,
	})
}

func (a *app) sandbox(c *cli.Context) error {
	every, err := durationFlag(c, "every")
	if err != nil {
		return err
	}
	for _, flag := range []string{"reports", "jobs"} {
		if n := c.Int(flag); n < 0 || n > 1_000_000 {
			return usage("--%s: %d is outside 0 to 1000000", flag, n)
		}
	}
	dir, err := absolute(c.String("dir"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := store.Acquire(filepath.Join(dir, "sandbox"))
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }() // the process ends
	sb, err := sandbox.Start(c.Context, sandbox.Options{
		Dir: filepath.Join(dir, "hub"), Log: a.logger(config.Log{Level: "info", Format: "auto"}, false),
		Reporter: sandbox.ReporterOptions{DownloadLimit: c.Int("download-limit")},
	})
	if err != nil {
		return err
	}
	defer sb.Close()
	text := sandboxConfig(sb)
	j, err := startJobs(c.Context, dir, slog.New(slog.DiscardHandler))
	switch {
	case err == nil:
		defer j.close()
		text += j.config()
	case errors.Is(err, sandbox.ErrNoRabbitMQ):
		a.tell("%s", noRabbitMQ)
	default:
		return err
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	a.tell("hub       %s", sb.NATSURL())
	a.tell("reporter  %s", sb.ReporterURL())
	if j != nil {
		a.tell("rabbitmq  %s", j.broker.URL())
		a.tell("fetcher   %s", j.fetcher.URL())
		a.tell("objects   %s, bucket %s", j.fetcher.ObjectsURL(), j.fetcher.Bucket())
	}
	a.tell("try       recibo --config %s run", file)
	return a.playOn(c, sb, j, every)
}

// sandboxConfig is an ordinary configuration for a sandbox.
func sandboxConfig(sb *sandbox.Sandbox) string {
	return fmt.Sprintf(`hub:
  nats:
    url: %s
reporter:
  url: %s
store:
  path: ./recibo.db
downloads:
  dir: ./downloads
  min_free: 64MiB
`, sb.NATSURL(), sb.ReporterURL())
}

// playOn plays one scenario, and more of them each interval, until it is stopped.
func (a *app) playOn(c *cli.Context, sb *sandbox.Sandbox, j *jobs, every time.Duration) error {
	for round := uint64(1); ; round++ {
		if n := c.Int("reports"); n > 0 {
			sc := sandbox.NewScenario(sandbox.ScenarioOptions{
				Reports: n, Faults: c.Bool("faults"), Noise: true, Seed: round ^ uint64(time.Now().UnixNano()),
			})
			if err := sb.Play(c.Context, sc); err != nil && c.Context.Err() == nil {
				return err
			}
			a.tell("played    %d reports: %d finished (%d without an event), %d partial, %d failed",
				n, len(sc.Finished), len(sc.NoEvent), len(sc.Partial), len(sc.Error))
		}
		if n := c.Int("jobs"); n > 0 && j != nil {
			sc := sandbox.NewJobScenario(sandbox.JobScenarioOptions{
				Jobs: n, SilentEvery: silentJobs, Seed: round ^ uint64(time.Now().UnixNano()),
			})
			if err := j.play(c.Context, sc); err != nil && c.Context.Err() == nil {
				return err
			}
			a.tell("played    %d jobs: %d completed (%d without an event), %d failed", n, len(sc.Completed), len(sc.Silent), len(sc.Failed))
		}
		wait := every
		if wait == 0 {
			<-c.Context.Done()
			return nil
		}
		select {
		case <-c.Context.Done():
			return nil
		case <-time.After(wait):
		}
	}
}
