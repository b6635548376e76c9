package downloads

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
)

// Recovery is what became of a publication that was announced before a crash.
type Recovery int

// The recoveries.
const (
	Settled   Recovery = iota + 1 // the staged file is gone: it had been published, whether or not the final one is still there
	Published                     // the staged file was still there, and is published now
	Broken                        // the staged file is there with other bytes: nothing was published; DiscardStaged, and download again
)

// String names the recovery.
func (r Recovery) String() string {
	switch r {
	case Settled:
		return "settled"
	case Published:
		return "published"
	case Broken:
		return "broken"
	}
	return "unknown"
}

// Recover finishes an announced publication after a crash, so that no importer sees a file twice and none is lost. What
// is in the staging folder decides, not what is under the final name: an importer may have collected that already.
// The folders are synced in any case, since the crash may have come before that. It fails as Publish does.
//
// After a restore of the ledger an old intent proves nothing: there only Verify of the final file does.
func (f *Folder) Recover(ctx context.Context, p Publication) (Recovery, error) {
	if err := p.check(); err != nil {
		return 0, err
	}
	m, err := f.check()
	if err != nil {
		return 0, err
	}
	if !strings.Contains(p.Staged, "."+m.id+".") {
		return recoverElsewhere(ctx, m, p)
	}
	staged, err := compare(ctx, m.staging, p.Staged, Bytes{p.Size, p.SHA256}, nil)
	switch {
	case err != nil:
		return 0, err
	case staged == Collected:
		return Settled, f.syncFolders(m, path.Dir(p.Name))
	case staged == Damaged:
		return Broken, f.syncFolders(m, path.Dir(p.Name))
	}
	err = f.Publish(ctx, p)
	var occupied *OccupiedError
	if errors.As(err, &occupied) {
		return f.recoverOccupied(ctx, m, p, occupied)
	}
	if err != nil {
		return 0, err
	}
	return Published, nil
}

// recoverElsewhere judges a publication that was announced in another folder, whose staging folder can't be asked: only a
// sound file under the final name proves it.
func recoverElsewhere(ctx context.Context, m *mount, p Publication) (Recovery, error) {
	final, err := compare(ctx, m.root, p.Name, Bytes{p.Size, p.SHA256}, nil)
	if err != nil || final == Sound {
		return Settled, err
	}
	return Broken, nil
}

// recoverOccupied takes over a file with the right bytes that holds the final name beside the staged one: a file system
// that does not rename in one step, or an operator who helped.
func (f *Folder) recoverOccupied(ctx context.Context, m *mount, p Publication, occupied error) (Recovery, error) {
	final, err := compare(ctx, m.root, p.Name, Bytes{p.Size, p.SHA256}, nil)
	if err != nil || final != Sound {
		return 0, errors.Join(occupied, err)
	}
	if err := f.DiscardStaged(p.Staged); err != nil {
		return 0, err
	}
	return Settled, f.syncFolders(m, path.Dir(p.Name))
}

// syncFolders syncs the staging folder and that of a final name, as far as an importer has left it there.
func (f *Folder) syncFolders(m *mount, dir string) error {
	target, err := f.enter(m, dir, false)
	if err == nil {
		err = errors.Join(f.syncFolder(target), target.Close())
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, f.syncPath(m.staging, "."))
}
