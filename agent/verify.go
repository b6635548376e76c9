package agent

import (
	"context"
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"

	"recibo/downloads"
	"recibo/store"
)

// Verification is what reading one delivered file again has shown.
type Verification struct {
	Kind     store.Kind `json:"kind"`
	ID       string     `json:"id"`
	File     string     `json:"file"`
	Revision int        `json:"revision"`
	Size     int64      `json:"size"`
	Verdict  string     `json:"verdict"` // sound, damaged, collected
}

// Verify reads every delivered file again and hands each verdict to each. Files on record whose name a later revision
// took are not looked for. progress, which may be nil, is told of bytes as they are read.
func (a *Agent) Verify(ctx context.Context, each func(Verification) error, progress func(int64)) error {
	if progress == nil {
		progress = func(int64) {}
	}
	for r, err := range a.Ledger.All(ctx, store.Query{States: []store.State{store.Delivered, store.Encrypted}}) {
		if err != nil {
			return err
		}
		for _, f := range r.Files {
			if f.Replaced {
				continue
			}
			verdict, err := a.outletOf(r).folder.Verify(ctx, f.Name, f.Size, f.SHA256, progress)
			if err != nil {
				return err
			}
			if err := each(Verification{r.Kind, r.ID, f.Name, f.Revision, f.Size, verdict.String()}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Sound reports whether the newest file of a receipt is in the folder with the bytes on record.
func (a *Agent) Sound(ctx context.Context, r *store.Receipt) (bool, error) {
	f := r.Newest()
	if f == nil {
		return false, nil
	}
	verdict, err := a.outletOf(r).folder.Verify(ctx, f.Name, f.Size, f.SHA256, nil)
	return verdict == downloads.Sound, err
}

// Unrecorded returns what the folders hold files of that are not on record as home.
func (a *Agent) Unrecorded(ctx context.Context) ([]store.Key, error) {
	var keys []store.Key
	for _, o := range a.outlets {
		err := o.folder.Names(ctx, func(name string) error {
			k, ok := a.named(path.Base(name))
			if !ok {
				return nil
			}
			r, err := a.Ledger.Get(ctx, k)
			if errors.Is(err, store.ErrNotFound) || err == nil && r.Newest() == nil {
				keys, err = append(keys, k), nil
			}
			return err
		})
		if err != nil {
			return keys, err
		}
	}
	return slices.Compact(keys), nil
}

// named reads what a file is of from its name. Reporter has no reports in JSON, and Fetcher no other results.
func (a *Agent) named(file string) (store.Key, bool) {
	k := store.Key{Kind: store.Report, ID: strings.ToLower(fileID.FindString(file))}
	if strings.HasSuffix(file, "."+extResult) || strings.HasSuffix(file, "."+extEncrypted) {
		k.Kind = store.Job
	}
	return k, k.ID != "" && !strings.HasSuffix(file, manifestSuffix) && a.works(k.Kind)
}

// fileID is the report's id at the start of a file name: Reporter's ids are UUIDs.
var fileID = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)

// manifestSuffix marks files that speak of a report and are none.
const manifestSuffix = ".receipt.json"
