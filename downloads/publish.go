package downloads

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
)

// Publish gives a finished file its final name and puts that on disk. The intent that names it must be committed
// before. *OccupiedError says that a file which is not ours holds the name: nothing was changed, PrepareAgain finds
// another name. ErrGone and ErrNoRoom also mean that nothing was published. After any other error the outcome is
// unknown: keep the intent, and let Recover settle it.
func (f *Folder) Publish(ctx context.Context, p Publication) error {
	if err := p.check(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m, err := f.check()
	if err != nil {
		return err
	}
	staging, err := m.staging.Open(".")
	if err != nil {
		return err
	}
	defer staging.Close()
	target, err := f.place(ctx, m, staging, p)
	if err != nil {
		return fmt.Errorf("publishing %s: %w", p.Name, full(err))
	}
	defer target.Close()
	f.mark(p.Staged, false)
	// The new name first: should only one of the two reach the disk, the file must not be without a name. From here on
	// a full disk is no ErrNoRoom, which would say that nothing was published.
	return errors.Join(f.syncFolder(target), f.syncFolder(staging))
}

func (p Publication) check() error {
	if err := checkStaged(p.Staged); err != nil {
		return err
	}
	return checkName(p.Name)
}

// place renames the file into its folder and returns that, open. An importer that clears away empty folders may remove
// it between the two steps; then it is made again.
func (f *Folder) place(ctx context.Context, m *mount, staging *os.File, p Publication) (*os.File, error) {
	info, err := m.staging.Lstat(p.Staged)
	if err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		target, err := f.enter(m, path.Dir(p.Name), true)
		if err != nil {
			return nil, err
		}
		err = f.renameInto(ctx, m, staging, target, p)
		if err == nil || f.renamedAnyway(m, p, info) {
			return target, nil
		}
		_ = target.Close() // only read from
		if !errors.Is(err, fs.ErrNotExist) || tries == 3 {
			return nil, err
		}
		if _, gone := m.staging.Lstat(p.Staged); gone != nil {
			return nil, err
		}
	}
}

func (f *Folder) renameInto(ctx context.Context, m *mount, staging, target *os.File, p Publication) error {
	replace := false
	if p.Replaces {
		verdict, err := compare(ctx, m.root, p.Name, p.Previous, nil)
		if err != nil {
			return err
		}
		replace = verdict == Sound // else whatever holds the name now stays, and the rename fails
	}
	err := f.sys.rename(staging, p.Staged, target, path.Base(p.Name), replace)
	if errors.Is(err, fs.ErrExist) {
		return &OccupiedError{p.Name}
	}
	return err
}

// renamedAnyway sees through an NFS server that renamed, lost its answer, and failed the repetition.
func (f *Folder) renamedAnyway(m *mount, p Publication, staged fs.FileInfo) bool {
	now, err := m.root.Lstat(p.Name)
	return err == nil && os.SameFile(now, staged)
}
