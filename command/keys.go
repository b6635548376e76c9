package command

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"recibo/fetcher"
)

// masterKeyVariable holds Fetcher's master key on Fetcher's side. run refuses to start with it.
const masterKeyVariable = "APP_ENC_KEY"

func (a *app) keysCommand() *cli.Command {
	return a.command(cli.Command{
		Name:      "keys",
		Usage:     "for the holder of Fetcher's master key: derive the keys that a consumer needs",
		ArgsUsage: "< FILE",
		Description: "It reads APP_ENC_KEY from the environment, or else the key from standard input, never from an argument.\n" +
			"Run it on Fetcher's side and hand over only what it prints: the master key also opens database credentials.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "storage", Usage: "print the key of result objects too"},
			jsonFlag(),
		},
		Action: a.keys,
	})
}

func (a *app) keys(c *cli.Context) error {
	if c.Args().Present() {
		return usage("keys takes no argument: every process can see it; a key that was given there is no secret any more")
	}
	master, err := a.masterKey()
	if err != nil {
		return err
	}
	external, storage, err := fetcher.DeriveKeys(master)
	if err != nil {
		return usage("%w", err).with(masterKeyVariable + " is the padded standard base64 of 32 bytes or more; give the value alone, without a name before it")
	}
	if _, err := hex.DecodeString(master); err == nil {
		a.tell("recibo: the master key looks like hex; " + masterKeyVariable + " is base64, and hex happens to be that too: is it the right value?")
	}
	keys := map[string]string{"external_hmac_key": hex.EncodeToString(external[:])}
	if c.Bool("storage") {
		keys["storage_key"] = hex.EncodeToString(storage[:])
	}
	if c.Bool("json") {
		return a.printJSON(keys)
	}
	for _, name := range []string{"external_hmac_key", "storage_key"} {
		if key, ok := keys[name]; ok {
			a.print("%s: %s", name, key)
		}
	}
	return nil
}

// maxMasterKey bounds what is read from standard input, in bytes.
const maxMasterKey = 64 << 10

func (a *app) masterKey() (string, error) {
	for _, v := range a.env {
		if key, found := strings.CutPrefix(v, masterKeyVariable+"="); found && key != "" {
			return key, nil
		}
	}
	if isTerminal(a.in) {
		a.tell("reading the master key from standard input; end it with Ctrl-D")
	}
	data, err := io.ReadAll(io.LimitReader(a.in, maxMasterKey))
	if err != nil {
		return "", fmt.Errorf("standard input: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}
