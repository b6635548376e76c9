package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"recibo/downloads"
	"recibo/store"
)

// recoverIntents settles the publications that a crash left open, and then removes the staged files that nothing claims.
// What can't be settled now, since the folder is not there, stays due and is settled first by the next attempt.
func (a *Agent) recoverIntents(ctx context.Context) error {
	if a.Folder == nil {
		return nil
	}
	claimed := map[string]bool{}    // names of staged files differ between folders
	var damaged *store.DamagedError // of rows whose claims are unknown
	var after store.Key
	for {
		open, err := a.Ledger.Intents(ctx, after, askPage)
		if err != nil && (!errors.As(err, &damaged) || damaged.Row == "") {
			return err
		}
		if len(open) == 0 {
			break
		}
		for _, r := range open {
			after = r.Key()
			if err := a.settleIntent(ctx, r); err != nil {
				a.Log.Warn("an open publication could not be settled", string(r.Kind), r.ID, "error", err)
				claimed[r.Intent.Staged] = true
			}
		}
	}
	if damaged != nil {
		a.Log.Error("a receipt can't be read; staged leftovers stay", "error", damaged)
		return nil
	}
	for _, o := range a.outlets {
		removed, err := o.folder.Sweep(func(name string) bool { return claimed[name] })
		if removed > 0 {
			a.Log.Info("staged leftovers removed", "folder", o.folder.Dir(), "files", removed)
		}
		if err != nil && !errors.Is(err, downloads.ErrGone) { // nothing to sweep; the lane of downloads waits for the folder
			return err
		}
	}
	return nil
}

// settleIntent finishes one announced publication: published or not, the receipt has no intent afterwards. On an error
// nothing was concluded.
func (a *Agent) settleIntent(ctx context.Context, r *store.Receipt) error {
	intent := r.Intent
	published, err := a.wasPublished(ctx, r)
	if err != nil {
		return err
	}
	if published {
		t := &transfer{key: r.Key(), generation: intent.Generation, outlet: a.outletOf(r)}
		a.settleAnnounced(ctx, t, intent)
		return nil
	}
	err = a.Ledger.Change(ctx, []store.Key{r.Key()}, func(r *store.Receipt, _ bool) bool {
		r.Intent = nil
		r.Due = a.Now()
		r.Note(a.Now(), "the announced publication of "+intent.File.Name+" came to nothing; due again")
		return true
	})
	if err != nil {
		return err
	}
	return a.outletOf(r).folder.DiscardStaged(intent.Staged)
}

var errNoSource = errors.New("its source is not in the configuration, so its folder is not known")

// wasPublished publishes what is still staged. Staged and gone means published, even if an importer has collected the
// final file already. After a restore that proves nothing: there only a final file with the right bytes does.
func (a *Agent) wasPublished(ctx context.Context, r *store.Receipt) (bool, error) {
	intent := r.Intent
	if a.Folder == nil {
		return false, errors.New("the download folder is not open")
	}
	if r.Kind == store.Job && a.sourceOf(r) < 0 {
		return false, errNoSource
	}
	folder := a.outletOf(r).folder
	restored, err := a.restoredAt(ctx)
	if err != nil {
		return false, err
	}
	if intent.At.Before(restored) {
		verdict, err := folder.Verify(ctx, intent.File.Name, intent.File.Size, intent.File.SHA256, nil)
		return verdict == downloads.Sound, err
	}
	p := downloads.Publication{Staged: intent.Staged, Name: intent.File.Name, Size: intent.File.Size, SHA256: intent.File.SHA256}
	if intent.Previous != nil {
		p.Replaces = true
		p.Previous = downloads.Bytes{Size: intent.Previous.Size, SHA256: intent.Previous.SHA256}
	}
	recovery, err := folder.Recover(ctx, p)
	var occupied *downloads.OccupiedError
	if errors.As(err, &occupied) {
		return false, nil
	}
	return recovery == downloads.Settled || recovery == downloads.Published, err
}

// restoredAt is when this ledger was put in place from a backup; zero if it never was.
func (a *Agent) restoredAt(ctx context.Context) (time.Time, error) {
	data, err := a.Ledger.Fact(ctx, store.RestoredAt)
	if err != nil || data == nil {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339Nano, string(data))
	if err != nil {
		return t, fmt.Errorf("the ledger's note of its restore: %w", err)
	}
	return t, nil
}
