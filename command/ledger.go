package command

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"recibo/console"
	"recibo/store"
)

// The commands about the ledger's file itself: backup, restore, compact.

func (a *app) backupCommand() *cli.Command {
	return a.command(cli.Command{
		Name: "backup", Usage: "copy the ledger while it is in use", ArgsUsage: "FILE", Action: a.backup,
	})
}

func (a *app) backup(c *cli.Context) error {
	file, err := oneFile(c)
	if err != nil {
		return err
	}
	loaded, err := a.loadBeside(c)
	if err != nil {
		return err
	}
	return a.call(c.Context, &loaded.Config, wish{}, console.CallBackup, file, console.Handlers{}, nil)
}

func (a *app) restoreCommand() *cli.Command {
	return a.command(cli.Command{
		Name: "restore", Usage: "put a backup in the ledger's place", ArgsUsage: "FILE",
		Description: "No agent may be running. The ledger that was there is kept beside it as <store.path>.before-restore.\n" +
			"The next sweep reaches back to the backup's time.",
		Action: a.restore,
	})
}

func (a *app) restore(c *cli.Context) error {
	file, err := oneFile(c)
	if err != nil {
		return err
	}
	return a.withLock(c, func(path string) error {
		when, err := store.Restore(c.Context, file, path)
		var damaged *store.DamagedError
		if errors.As(err, &damaged) {
			return &failure{exitDamaged, fmt.Errorf("the backup can't be used: %w", err), []string{"the ledger was left as it is; try another backup"}}
		}
		if err == nil {
			a.tell("restored the ledger of %s; the next poll or run sweeps from then on", when.UTC().Format(time.RFC3339))
		}
		return err
	})
}

func (a *app) compactCommand() *cli.Command {
	return a.command(cli.Command{Name: "compact", Usage: "make the ledger's file small again; no agent may be running", Action: a.compact})
}

func (a *app) compact(c *cli.Context) error {
	return a.withLock(c, func(path string) error {
		if err := exists(path); err != nil {
			return err
		}
		before, after, err := store.Compact(c.Context, path)
		if err == nil {
			a.tell("%s: %s before, %s now", path, humanize.IBytes(uint64(before)), humanize.IBytes(uint64(after)))
		}
		return err
	})
}

// withLock runs f while nobody owns the ledger.
func (a *app) withLock(c *cli.Context, f func(path string) error) error {
	loaded, err := a.load(c)
	if err != nil {
		return err
	}
	path := loaded.Config.Store.Path
	lock, err := store.Acquire(path)
	if err != nil {
		return err
	}
	return errors.Join(f(path), lock.Release())
}

// oneFile returns the one argument as an absolute path, for the agent has a working folder of its own.
func oneFile(c *cli.Context) (string, error) {
	if c.NArg() != 1 {
		return "", usage("%s takes one file", c.Command.Name)
	}
	return absolute(c.Args().First())
}

func absolute(file string) (string, error) {
	if strings.HasPrefix(file, "/") {
		return file, nil
	}
	wd, err := os.Getwd()
	return wd + "/" + file, err
}
