package command

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"recibo/config"
)

func (a *app) configCommand() *cli.Command {
	return a.command(cli.Command{
		Name: "config", Usage: "validate, print or describe the configuration",
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); name != "" {
				return noSubcommand(c, name)
			}
			return usage("config needs one of validate, print, schema")
		},
		Subcommands: []*cli.Command{
			a.command(cli.Command{Name: "validate", Usage: "say what is wrong with it", Action: a.configValidate}),
			a.command(cli.Command{Name: "print", Usage: "the effective values, secrets hidden, and where each came from",
				Flags: []cli.Flag{jsonFlag()}, Action: a.configPrint}),
			a.command(cli.Command{Name: "schema", Usage: "a JSON Schema for editors", Action: a.configSchema}),
		},
	})
}

func (a *app) configValidate(c *cli.Context) error {
	loaded, err := a.load(c)
	if err != nil {
		return err
	}
	if loaded.Path == "" {
		a.tell("no configuration file; the defaults hold")
		return nil
	}
	a.tell("%s is sound", loaded.Path)
	return nil
}

func (a *app) configPrint(c *cli.Context) error {
	loaded, err := a.load(c)
	if err != nil {
		return err
	}
	return loaded.Print(a.out, c.Bool("json"))
}

func (a *app) configSchema(*cli.Context) error {
	schema, err := config.Schema()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.out, string(schema))
	return err
}
