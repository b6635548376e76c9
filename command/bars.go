package command

import (
	"encoding/json"
	"io"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"recibo/console"
)

// bars shows what is being downloaded or read, on a terminal; anywhere else it shows nothing.
type bars struct {
	container *mpb.Progress // nil: not a terminal
	byID      map[string]*mpb.Bar
	read      *mpb.Bar
}

func newBars(w io.Writer) *bars {
	b := &bars{byID: map[string]*mpb.Bar{}}
	if isTerminal(w) {
		b.container = mpb.New(mpb.WithOutput(w), mpb.WithWidth(40))
	}
	return b
}

// progress is the handler of a call's progress.
func (b *bars) progress(m json.RawMessage) error {
	if b.container == nil {
		return nil
	}
	p, err := decode[console.Progress](m)
	if err != nil {
		return err
	}
	if p.Bytes > 0 {
		if b.read == nil {
			b.read = b.container.New(0, mpb.SpinnerStyle(), mpb.PrependDecorators(decor.Name("reading ")),
				mpb.AppendDecorators(decor.CurrentKibiByte("% .1f"), decor.AverageSpeed(decor.SizeB1024(0), " % .1f")))
		}
		b.read.IncrInt64(p.Bytes)
	}
	seen := map[string]bool{}
	for _, t := range p.Transfers {
		seen[t.ID] = true
		bar := b.byID[t.ID]
		if bar == nil {
			bar = b.container.New(max(t.Total, 0), mpb.BarStyle(), mpb.BarRemoveOnComplete(),
				mpb.PrependDecorators(decor.Name(t.ID+" ")),
				mpb.AppendDecorators(decor.Counters(decor.SizeB1024(0), "% .1f / % .1f")))
			b.byID[t.ID] = bar
		}
		bar.SetTotal(max(t.Total, t.Done), false)
		bar.SetCurrent(t.Done)
	}
	for id, bar := range b.byID {
		if !seen[id] {
			bar.Abort(true)
			delete(b.byID, id)
		}
	}
	return nil
}

// finish leaves the terminal as it was.
func (b *bars) finish() {
	if b.container == nil {
		return
	}
	for _, bar := range b.byID {
		bar.Abort(true)
	}
	if b.read != nil {
		b.read.Abort(true)
	}
	b.container.Wait()
}
