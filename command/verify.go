package command

import (
	"encoding/json"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"recibo/console"
)

func (a *app) verifyCommand() *cli.Command {
	return a.command(cli.Command{
		Name:  "verify",
		Usage: "read delivered files again: sound, damaged, or collected (gone, which is no damage)",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "repair", Usage: "download damaged files again"},
			&cli.BoolFlag{Name: "missing", Usage: "download collected files again too"},
			&cli.BoolFlag{Name: "adopt", Usage: "take over files with the right bytes that are not on record"},
			jsonFlag(),
		},
		Action: a.verify,
	})
}

func (a *app) verify(c *cli.Context) error {
	loaded, err := a.loadBeside(c)
	if err != nil {
		return err
	}
	req := console.VerifyRequest{Repair: c.Bool("repair"), Missing: c.Bool("missing"), Adopt: c.Bool("adopt")}
	w := wish{work: true}
	bars := newBars(a.err)
	var res console.VerifyResult
	err = a.call(c.Context, &loaded.Config, w, console.CallVerify, req, console.Handlers{
		Item: func(m json.RawMessage) error { return a.tellVerdict(m, c.Bool("json")) }, Progress: bars.progress,
	}, &res)
	bars.finish()
	if err != nil {
		return err
	}
	if !c.Bool("json") {
		a.print("%d sound, %d damaged, %d collected, %d downloaded again, %d taken over; %s read",
			res.Sound, res.Damaged, res.Collected, res.Repaired, res.Adopted, humanize.IBytes(uint64(res.Bytes)))
	}
	if res.Left > 0 {
		return silent(exitFailed)
	}
	return nil
}

// tellVerdict shows damage, and with --json every verdict.
func (a *app) tellVerdict(m json.RawMessage, asJSON bool) error {
	if asJSON {
		_, err := a.out.Write(append(m, '\n'))
		return err
	}
	v, err := decode[struct{ ID, File, Verdict string }](m)
	if err == nil && v.Verdict == "damaged" {
		a.print("damaged: %s (%s)", v.File, v.ID)
	}
	return err
}
