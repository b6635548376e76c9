package agent

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"recibo/downloads"
	"recibo/fetcher"
	"recibo/store"
)

// trouble is a gate of this machine's own: while a folder can't be used, no download starts, and nobody's
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

// outlet is a folder that files go into, with its gate.
type outlet struct {
	folder  *downloads.Folder
	trouble trouble
	// orphans are staged files of announcements that failed, guarded by Agent.mu: whether the ledger holds them shows when it
	// can be read again.
	orphans map[string]store.Key
}

// newOutlets gives each distinct folder its outlet. The first is that of reports, and of jobs without one of their own.
func (a *Agent) newOutlets() {
	if a.Folder == nil {
		return
	}
	at := map[*downloads.Folder]*outlet{}
	add := func(f *downloads.Folder) *outlet {
		if at[f] == nil {
			at[f] = &outlet{folder: f, orphans: map[string]store.Key{}}
			a.outlets = append(a.outlets, at[f])
		}
		return at[f]
	}
	home := add(a.Folder)
	for i := range a.fetching {
		a.fetching[i].outlet = home
		if i < len(a.JobFolders) && a.JobFolders[i] != nil {
			a.fetching[i].outlet = add(a.JobFolders[i])
		}
	}
}

// outletOf is where the files of a receipt are.
func (a *Agent) outletOf(r *store.Receipt) *outlet {
	if r.Kind == store.Job {
		if i := a.sourceOf(r); i >= 0 {
			return a.fetching[i].outlet
		}
	}
	return a.outlets[0]
}

// usable says why no download into an outlet may start. What can't be put on record must not be downloaded.
func (a *Agent) usable(o *outlet) error {
	if err := a.Ledger.Healthy(); err != nil {
		return err
	}
	if err := a.discardOrphans(o); err != nil {
		return err
	}
	err := o.folder.Check()
	if errors.Is(err, downloads.ErrGone) {
		err = o.folder.Reopen() // a share may have been mounted again
	}
	if err == nil {
		var release func()
		if release, err = o.folder.Reserve(0); err == nil {
			release()
		}
	}
	if reason, _ := o.trouble.state(); err != nil && reason == "" {
		a.Log.Error("downloads are paused", "folder", o.folder.Dir(), "reason", err)
	} else if err == nil && reason != "" {
		a.Log.Info("downloads go on", "folder", o.folder.Dir())
	}
	return err
}

// waitFor returns once files may go into an outlet, or with ctx's error.
func (a *Agent) waitFor(ctx context.Context, o *outlet) error {
	return o.trouble.wait(ctx, func() error { return a.usable(o) })
}

// discardOrphans removes staged files whose announcement failed, once the ledger says that it holds no such intent.
func (a *Agent) discardOrphans(o *outlet) error {
	a.mu.Lock()
	orphans := maps.Clone(o.orphans)
	a.mu.Unlock()
	for name, k := range orphans {
		r, err := a.Ledger.Get(context.Background(), k)
		if err != nil {
			return err
		}
		if r.Intent == nil || r.Intent.Staged != name {
			if err := o.folder.DiscardStaged(name); err != nil {
				return err
			}
		}
		a.mu.Lock()
		delete(o.orphans, name)
		a.mu.Unlock()
	}
	return nil
}

// onlyAPersonCanHelp tells errors that the next attempt would meet again.
func onlyAPersonCanHelp(err error) bool {
	var large *downloads.TooLargeError
	var result *fetcher.ResultError
	return errors.As(err, &large) || errors.As(err, &result) && result.Hopeless()
}
