package downloads

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
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
		return fmt.Errorf("publishing %s: %w", p.Name, err)
	}
	defer target.Close()
	f.mark(p.Staged, false)
	// The new name first: should only one of the two reach the disk, the file must not be without a name.
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
		if verdict == Damaged {
			return &OccupiedError{p.Name}
		}
		replace = verdict == Sound
	}
	err := f.sys.rename(staging, p.Staged, target, path.Base(p.Name), replace)
	if errors.Is(err, fs.ErrExist) {
		return &OccupiedError{p.Name}
	}
	return full(err)
}

// renamedAnyway sees through an NFS server that renamed, lost its answer, and failed the repetition.
func (f *Folder) renamedAnyway(m *mount, p Publication, staged fs.FileInfo) bool {
	now, err := m.root.Lstat(p.Name)
	return err == nil && os.SameFile(now, staged)
}

// enter opens the folder of a final name. With create it makes what is missing. Every folder above is synced, also one
// that was there: a crash may have come between its making and its sync.
func (f *Folder) enter(m *mount, dir string, create bool) (*os.File, error) {
	at, err := m.root.Open(".")
	if err != nil || dir == "." {
		return at, err
	}
	name := ""
	for segment := range strings.SplitSeq(dir, "/") {
		name = path.Join(name, segment)
		next, err := f.step(m, name, create)
		if err == nil {
			if err = f.syncFolder(at); err != nil {
				_ = next.Close() // only read from
			}
		}
		_ = at.Close() // only read from
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// step opens one folder of the layout. Symbolic links are refused, wherever they lead: files would land where neither
// Check nor an operator looks for them.
func (f *Folder) step(m *mount, name string, create bool) (*os.File, error) {
	made := false
	info, err := m.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err := m.root.Mkdir(name, f.perm.initialFolder()); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, f.problem("the folder "+name+" can't be created", full(err))
		} else if err == nil {
			made = true
		}
		info, err = m.root.Lstat(name)
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &Error{f.dir, name + " is not a folder (symbolic links are not followed)", "move what is there, or change downloads.layout", nil}
	}
	if !sameDevice(info, m.rootInfo) {
		return nil, &Error{f.dir, name + " is on another file system", "files can only be renamed within one: mount the volume at downloads.dir", nil}
	}
	folder, err := m.root.Open(name)
	if err != nil {
		return nil, err
	}
	if now, err := folder.Stat(); err != nil || !os.SameFile(now, info) {
		return nil, errors.Join(fmt.Errorf("%s was changed in this moment", name), err, folder.Close())
	}
	if made {
		if err := f.perm.setFolder(folder); err != nil {
			return nil, errors.Join(err, folder.Close())
		}
		f.log.Debug("folder created", "name", name)
	}
	return folder, nil
}
