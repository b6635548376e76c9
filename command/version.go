package command

import (
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// release is the version of this source tree; the build adds the revision it was made from.
const release = "0.1.0"

// version names the release and, where the build knows it, the revision.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = "+" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ".modified"
		}
	}
	return release + revision + dirty
}

func userAgent() string { return "recibo/" + release }

func (a *app) versionCommand() *cli.Command {
	return a.command(cli.Command{
		Name: "version", Usage: "which recibo this is", Flags: []cli.Flag{jsonFlag()},
		Action: a.printVersion,
	})
}

func (a *app) printVersion(c *cli.Context) error {
	goVersion := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
	}
	if c.Bool("json") {
		return a.printJSON(map[string]string{"version": version(), "go": goVersion})
	}
	a.print("recibo %s %s", version(), goVersion)
	return nil
}

func (a *app) completionCommand() *cli.Command {
	return a.command(cli.Command{
		Name: "completion", Usage: "completion for a shell: bash, zsh or fish", ArgsUsage: "bash|zsh|fish",
		Action: func(c *cli.Context) error {
			switch c.Args().First() {
			case "bash":
				a.print("%s", bashCompletion)
			case "zsh":
				a.print("%s", zshCompletion)
			case "fish":
				script, err := a.root().ToFishCompletion()
				if err != nil {
					return err
				}
				a.print("%s", script)
			default:
				return usage("completion takes bash, zsh or fish, got %q", c.Args().First())
			}
			return nil
		},
	})
}

// The shells ask the program itself what may follow.
const (
	bashCompletion = `_recibo() {
  local current="${COMP_WORDS[COMP_CWORD]}" words
  words=$("${COMP_WORDS[@]:0:$COMP_CWORD}" --generate-bash-completion 2>/dev/null | cut -d: -f1)
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _recibo recibo`
	zshCompletion = `#compdef recibo
_recibo() {
  local -a words
  words=("${(@f)$(${words[@]:0:$((CURRENT-1))} --generate-bash-completion 2>/dev/null)}")
  _describe 'recibo' words
}
compdef _recibo recibo`
)
