// Package command is the command line. Results go to standard output, everything else to standard error; --json gives
// one JSON document, or one line per item; errors say what failed, on what, why, and what to do.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/lmittmann/tint"
	"github.com/urfave/cli/v2"

	"recibo/config"
	"recibo/console"
	"recibo/setting"
)

// app is one invocation: where it reads and writes, and what it was given.
type app struct {
	in       io.Reader
	out, err io.Writer
	env      []string
	stop     context.CancelFunc
}

// Main runs one command line and returns the exit code of the process. env is in the form of os.Environ.
func Main(args, env []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{in: in, out: out, err: errOut, env: env, stop: stop}
	// The first signal asks for an orderly stop; from then on a second one has its usual effect and stops at once.
	go func() { <-ctx.Done(); stop() }()
	root := a.root()
	return a.report(root.RunContext(ctx, interspersed(root, args)))
}

func (a *app) root() *cli.App {
	return &cli.App{
		Name:                   "recibo",
		Usage:                  "brings every finished report home, exactly once",
		UsageText:              "recibo [--config FILE] COMMAND",
		Description:            description,
		Writer:                 a.out,
		ErrWriter:              a.err,
		HideVersion:            true,
		EnableBashCompletion:   true,
		UseShortOptionHandling: false,
		Flags:                  []cli.Flag{configFlag(), &cli.BoolFlag{Name: "version", Usage: "like the command version", DisableDefaultText: true}},
		ExitErrHandler:         func(*cli.Context, error) {},
		OnUsageError:           usageError,
		CommandNotFound:        nil,
		Action:                 a.noCommand,
		Commands: []*cli.Command{
			a.runCommand(), a.pollCommand(), a.fetchCommand(), a.watchCommand(), a.listCommand(), a.showCommand(),
			a.retryCommand(), a.dismissCommand(), a.quarantineCommand(), a.verifyCommand(), a.checkCommand(), a.statusCommand(), a.configCommand(), a.keysCommand(),
			a.demoCommand(), a.sandboxCommand(), a.backupCommand(), a.restoreCommand(), a.compactCommand(), a.versionCommand(),
			a.completionCommand(),
		},
	}
}

const description = `recibo holds an institution's subscription on Lerian's Streaming Hub, downloads every finished report
into a local folder exactly once, records what failed in partial ones, and asks Reporter itself when no event comes.

Without a configuration file the defaults hold: NATS on 127.0.0.1:4222, Reporter on 127.0.0.1:4005, everything in ./data.

Exit codes: 0 done; 1 some work failed, or damage was found; 2 wrong usage or configuration; 3 the ledger, folder or
subscription belongs to another agent; 4 something needed can't be reached; 5 the ledger is damaged, or
of a newer version.`

func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config", Usage: "configuration `FILE` (default: $RECIBO_CONFIG, ./config.yaml, /etc/recibo/config.yaml)"}
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON"}
}

// command fills in what all commands share. One that shows neither arguments nor commands in its usage
// takes none.
func (a *app) command(c cli.Command) *cli.Command {
	if action := c.Action; c.ArgsUsage == "" && len(c.Subcommands) == 0 {
		c.Action = func(ctx *cli.Context) error {
			if err := noArguments(ctx); err != nil {
				return err
			}
			return action(ctx)
		}
	}
	c.Flags = append(c.Flags, configFlag())
	for _, f := range c.Flags {
		if b, ok := f.(*cli.BoolFlag); ok {
			b.DisableDefaultText = true // nobody has to be told that it is off
		}
	}
	c.OnUsageError = usageError
	c.HideHelpCommand = true
	return &c
}

func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return usage("%s takes no argument, got %q", c.Command.FullName(), c.Args().First())
	}
	return nil
}

// usageError says in our words what the library found wrong with a flag.
func usageError(c *cli.Context, err error, _ bool) error {
	text := strings.TrimSuffix(err.Error(), ": parse error")
	for theirs, ours := range map[string]string{
		"flag provided but not defined: -": "there is no flag --",
		"flag needs an argument: -":        "a value is missing behind --",
		" for flag -":                      " for flag --",
	} {
		text = strings.ReplaceAll(text, theirs, ours)
	}
	return usage("%s", text).with(cmp.Or(c.Command.HelpName, "recibo") + " --help lists the flags")
}

func (a *app) noCommand(c *cli.Context) error {
	if name := c.Args().First(); name != "" {
		return usage("there is no command %q", name).with("recibo --help lists them")
	}
	if c.Bool("version") {
		return a.printVersion(c)
	}
	return cli.ShowAppHelp(c)
}

func noSubcommand(c *cli.Context, name string) error {
	return usage("there is no command %q", c.Command.Name+" "+name).with("recibo " + c.Command.Name + " --help lists them")
}

// load reads the configuration and tells its warnings.
func (a *app) load(c *cli.Context) (*config.Loaded, error) {
	path := ""
	for _, ctx := range c.Lineage() {
		if p := ctx.String("config"); p != "" && path == "" {
			path = p
		}
	}
	loaded, err := config.Load(path, a.env)
	if err != nil {
		f := &failure{code: exitUsage, err: err}
		if !errors.Is(err, fs.ErrNotExist) {
			f.hints = []string{"recibo config schema describes every key"}
		}
		return nil, f
	}
	if err := fits(&loaded.Config); err != nil {
		return nil, err
	}
	for _, w := range loaded.Warnings {
		a.tell("warning: %s", w)
	}
	return loaded, nil
}

// loadBeside is load for commands that a running agent answers. What is wrong in sections that finding it does not need, a
// file of keys say, must keep nobody from asking how it does.
func (a *app) loadBeside(c *cli.Context) (*config.Loaded, error) {
	loaded, err := a.load(c)
	var wrong *config.Error
	if !errors.As(err, &wrong) || !wrong.Spares("store", "console") {
		return loaded, err
	}
	rest := wrong.Rest
	ctx, cancel := context.WithTimeout(c.Context, time.Second)
	defer cancel()
	agent, missing := console.Dial(ctx, rest.Config.Console.Path(rest.Config.Store.Path))
	if missing != nil {
		return nil, err
	}
	agent.Close()
	for _, p := range wrong.Problems {
		a.tell("warning: the agent that runs could not start again with this: %s", p)
	}
	return rest, nil
}

// fits checks what sections ask of each other.
func fits(c *config.Config) error {
	keep, longest := c.Store.Retention, max(c.Agent.PollLookBack, c.Agent.StaleAfter)
	if keep > 0 && keep <= longest {
		return usage("store.retention: %s must be longer than agent.poll_look_back and agent.stale_after, or a report would come home twice",
			setting.FormatDuration(keep))
	}
	return nil
}

// tell writes one line for people to standard error.
func (a *app) tell(format string, args ...any) { _, _ = fmt.Fprintf(a.err, format+"\n", args...) }

// print writes one line of a result to standard output.
func (a *app) print(format string, args ...any) { _, _ = fmt.Fprintf(a.out, format+"\n", args...) }

// logger writes to standard error: text with colours on a terminal, JSON elsewhere, unless the configuration says so.
func (a *app) logger(c config.Log, quiet bool) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // the configuration has checked it
	if quiet {
		level = max(level, slog.LevelError)
	}
	text := c.Format == "text" || c.Format == "auto" && isTerminal(a.err)
	if text {
		return slog.New(tint.NewTextHandler(a.err, &tint.Options{Level: level, NoColor: !isTerminal(a.err)}))
	}
	return slog.New(slog.NewJSONHandler(a.err, &slog.HandlerOptions{Level: level}))
}

// interspersed moves flags before arguments, so that `recibo show ID --json` means what it says: the library stops
// looking for flags at the first argument. Everything after -- stays an argument.
func interspersed(root *cli.App, args []string) []string {
	if len(args) == 0 {
		return args
	}
	head := []string{args[0]}
	flags := root.Flags
	commands := root.Commands
	var options, operands []string
	for rest := args[1:]; len(rest) > 0; rest = rest[1:] {
		arg := rest[0]
		switch {
		case arg == "--":
			operands = append(operands, rest...)
			return append(append(head, options...), operands...)
		case strings.HasPrefix(arg, "-") && arg != "-":
			options = append(options, arg)
			if takesValue(flags, arg) && len(rest) > 1 {
				options, rest = append(options, rest[1]), rest[1:]
			}
		default:
			sub := find(commands, arg)
			if sub == nil || len(operands) > 0 {
				operands = append(operands, arg)
				continue
			}
			head = append(append(head, options...), arg)
			options, flags, commands = nil, sub.Flags, sub.Subcommands
		}
	}
	return append(append(head, options...), operands...)
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

func takesValue(flags []cli.Flag, arg string) bool {
	name := strings.TrimLeft(arg, "-")
	if strings.Contains(name, "=") {
		return false
	}
	for _, f := range flags {
		for _, n := range f.Names() {
			if n == name {
				doc, ok := f.(cli.DocGenerationFlag)
				return ok && doc.TakesValue()
			}
		}
	}
	return false
}

// errSilent ends a command with a code after it has said everything itself.
var errSilent = errors.New("")
