package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"recibo/config"
	"recibo/console"
	"recibo/store"
)

// patience is how long a command alternates between asking the ledger's owner and becoming it.
const patience = 5 * time.Second

// exists says where a ledger was looked for when there is none. Commands that only read never make one.
func exists(path string) error {
	_, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		f := &failure{code: exitFailed, err: fmt.Errorf("there is no ledger at %s yet", path)}
		return f.with("store.path names the place; recibo run or recibo poll makes the ledger")
	}
	return err
}

// call makes one call of the ledger's owner: of a running agent through its socket, or of this process, which then holds
// the ledger for the time of the call.
func (a *app) call(ctx context.Context, c *config.Config, w wish, name string, request any, h console.Handlers, result any) error {
	if w.log == nil {
		w.log = a.logger(c.Log, true)
	}
	socket := c.Console.Path(c.Store.Path)
	begun := false // something was shown already: then the call is not made a second time
	watched := console.Handlers{Item: marking(h.Item, &begun), Progress: h.Progress}
	for deadline := time.Now().Add(patience); ; {
		err := a.callOnce(ctx, c, w, socket, name, request, watched, result)
		var owned *store.OwnedError
		var e *console.Error
		busy := errors.As(err, &e) && e.Code == console.Busy
		again := errors.As(err, &owned) || busy || errors.Is(err, console.ErrCut) && !begun
		if !again || ctx.Err() != nil {
			return err
		}
		if time.Now().After(deadline) {
			if errors.Is(err, console.ErrCut) {
				return err
			}
			return &failure{exitOwned, fmt.Errorf("%w, and it does not answer on %s", err, socket),
				[]string{"one agent per ledger: wait for that process, or stop it"}}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func marking(f func(json.RawMessage) error, begun *bool) func(json.RawMessage) error {
	return func(m json.RawMessage) error {
		*begun = true
		if f == nil {
			return nil
		}
		return f(m)
	}
}

func (a *app) callOnce(ctx context.Context, c *config.Config, w wish, socket, name string, request any, h console.Handlers, result any) error {
	client, err := console.Dial(ctx, socket)
	if err == nil {
		defer client.Close()
		return client.Call(ctx, name, request, h, result)
	}
	if w.work {
		return a.callSelf(ctx, c, w, socket, name, request, h, result)
	}
	items, err := newSpool()
	if err != nil {
		return err
	}
	err = a.callSelf(ctx, c, w, socket, name, request, items.handlers(), result)
	return errors.Join(items.replay(h.Item), err)
}

// callSelf serves the call that this process came for, and those of others meanwhile.
func (a *app) callSelf(ctx context.Context, c *config.Config, w wish, socket, name string, request any, h console.Handlers, result any) error {
	w.once = true
	o, err := own(c, w)
	if err != nil {
		return err
	}
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var worked error
	if w.work {
		wg.Go(func() { worked = o.agent.Work(work) })
		select {
		case <-o.agent.Started():
		case <-ctx.Done():
		}
	}
	client, err := console.Dial(ctx, socket)
	if err == nil {
		err = client.Call(ctx, name, request, h, result)
		client.Close()
	}
	// Others that asked meanwhile get their answer while the agent still works.
	wait := patience
	if ctx.Err() != nil {
		wait = 0
	}
	drain, cancel := context.WithTimeout(context.Background(), wait)
	closed := o.server.Close(drain)
	cancel()
	o.server = nil
	stop()
	wg.Wait()
	if worked != nil {
		err = worked // why nothing was done
	}
	return errors.Join(err, closed, o.close(0))
}
