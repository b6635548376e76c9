package command

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"recibo/config"
	"recibo/console"
	"recibo/sandbox"
	"recibo/store"
)

// TestAPollTellsOfWhatWasSettledBeforeItWasAsked has a report that is parked as soon as the process works, which is before
// its own call reaches it.
func TestAPollTellsOfWhatWasSettledBeforeItWasAsked(t *testing.T) {
	t.Parallel()
	sb, err := sandbox.Start(t.Context(), sandbox.Options{NoHub: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sb.Close)
	dir := t.TempDir()
	c := config.Default()
	c.Hub.Enabled, c.Reporter.URL, c.Agent.Attempts = false, sb.ReporterURL(), 1
	c.Store.Path, c.Store.MinFree = filepath.Join(dir, "recibo.db"), 0
	c.Downloads.Dir, c.Downloads.MinFree = filepath.Join(dir, "downloads"), 0
	unknown := store.Key{Kind: store.Report, ID: "aaaaaaaa-0000-7000-8000-000000000001"}
	w := wish{create: true, work: true, once: true, log: slog.New(slog.DiscardHandler)}

	o, err := own(&c, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.close(0); err != nil {
			t.Error(err)
		}
	})
	if _, err := o.agent.Fetch(t.Context(), []store.Key{unknown}, false); err != nil {
		t.Fatal(err)
	}
	work, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.agent.Work(work) }()
	defer func() { stop(); <-ended }()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if r, err := o.ledger.Get(t.Context(), unknown); err == nil && r.State == store.Parked {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("not parked in time")
		}
	}

	client, err := console.Dial(t.Context(), c.Console.Path(c.Store.Path))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var told []store.State
	item := func(m json.RawMessage) error {
		r, err := decode[store.Receipt](m)
		if err == nil {
			told = append(told, r.State)
		}
		return err
	}
	if err := client.Call(t.Context(), console.CallPoll, console.PollRequest{MaxTime: patience}, console.Handlers{Item: item}, nil); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || told[0] != store.Parked {
		t.Errorf("the poll told of %v, want what was parked", told)
	}
}
