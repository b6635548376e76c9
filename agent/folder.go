package agent

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"recibo/downloads"
)

// trouble is a gate of this machine's own: while the download folder can't be used, no download starts, and nobody's
// budget is spent.
type trouble struct {
	mu     sync.Mutex
	reason string
	since  time.Time
}

const (
	troubleFirst = time.Second
	troubleCap   = 15 * time.Second
)

// wait returns once usable says nil, or with ctx's error.
func (t *trouble) wait(ctx context.Context, usable func() error) error {
	for n := 0; ; n++ {
		err := usable()
		t.set(err)
		if err == nil {
			return nil
		}
		if !sleep(ctx, doubled(troubleFirst, troubleCap, n)) {
			return ctx.Err()
		}
	}
}

func (t *trouble) set(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.reason = ""
	case t.reason == "":
		t.since = time.Now()
		fallthrough
	default:
		t.reason = err.Error()
	}
}

func (t *trouble) state() (reason string, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reason, t.since
}

// folderUsable says why no download may start. What can't be put on record must not be downloaded.
func (a *Agent) folderUsable() error {
	if err := a.Ledger.Healthy(); err != nil {
		return err
	}
	if err := a.discardOrphans(); err != nil {
		return err
	}
	err := a.Folder.Check()
	if errors.Is(err, downloads.ErrGone) {
		err = a.Folder.Reopen() // a share may have been mounted again
	}
	if err == nil {
		var release func()
		if release, err = a.Folder.Reserve(0); err == nil {
			release()
		}
	}
	if reason, _ := a.folder.state(); err != nil && reason == "" {
		a.Log.Error("downloads are paused", "reason", err)
	} else if err == nil && reason != "" {
		a.Log.Info("downloads go on")
	}
	return err
}

// discardOrphans removes staged files whose announcement failed, once the ledger says that it holds no such intent.
func (a *Agent) discardOrphans() error {
	a.mu.Lock()
	orphans := maps.Clone(a.orphans)
	a.mu.Unlock()
	for name, k := range orphans {
		r, err := a.Ledger.Get(context.Background(), k)
		if err != nil {
			return err
		}
		if r.Intent == nil || r.Intent.Staged != name {
			if err := a.Folder.DiscardStaged(name); err != nil {
				return err
			}
		}
		a.mu.Lock()
		delete(a.orphans, name)
		a.mu.Unlock()
	}
	return nil
}

// onlyAPersonCanHelp tells errors that the next attempt would meet again.
func onlyAPersonCanHelp(err error) bool {
	var large *downloads.TooLargeError
	return errors.As(err, &large)
}
