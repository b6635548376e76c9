package downloads

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// createPath makes the folder with the parents it lacks and syncs each of them and its parent.
func (f *Folder) createPath() error {
	var missing []string // deepest first
	for dir := f.dir; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return err
		}
		missing = append(missing, dir)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := os.Mkdir(missing[i], f.perm.initialFolder()); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := f.finishCreated(missing[i]); err != nil {
			return err
		}
	}
	return nil
}

func (f *Folder) finishCreated(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := f.perm.setFolder(folder); err != nil {
		return err
	}
	parent, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer parent.Close()
	return errors.Join(f.syncFolder(folder), f.syncFolder(parent))
}

// ensureOwn makes a folder of ours inside the root and syncs its parent. A symbolic link in its place is refused: it
// would let staged files lie on another file system or in the sight of importers.
func (f *Folder) ensureOwn(root *os.Root, name string, perm fs.FileMode) error {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := root.Mkdir(name, perm); err != nil && !errors.Is(err, fs.ErrExist) {
			return f.problem(name+" can't be created", err)
		}
		if err := f.syncPath(root, filepath.Dir(name)); err != nil {
			return f.problem(name+" can't be synced", err)
		}
		return nil
	case err != nil:
		return f.problem(name+" can't be read", err)
	case !info.IsDir():
		return &Error{f.dir, name + " is not a folder", "remove what is there: the agent makes its own", nil}
	}
	return nil
}

// syncPath syncs one folder by its name.
func (f *Folder) syncPath(root *os.Root, name string) error {
	folder, err := root.Open(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	return f.syncFolder(folder)
}

// syncFolder puts a folder's entries on disk. Some network file systems can't sync folders and say so with EINVAL;
// there is nothing stronger to be had from them.
func (f *Folder) syncFolder(folder *os.File) error {
	err := f.syncs.do(folder, f.sys.sync)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		f.told.Do(func() { f.log.Warn("the file system can't sync folders", "dir", f.dir) })
		return nil
	}
	if err != nil {
		return fmt.Errorf("syncing the folder %s: %w", folder.Name(), err)
	}
	return nil
}

// problem adds to an error of the file system what a person can do about it.
func (f *Folder) problem(what string, err error) error {
	if own := (*Error)(nil); errors.As(err, &own) {
		return err
	}
	remedy := "see the cause"
	switch {
	case errors.Is(err, fs.ErrPermission):
		remedy = fmt.Sprintf("let the agent's user (uid %d) read, write and enter it", os.Getuid())
	case errors.Is(err, syscall.EROFS):
		remedy = "mount it for writing"
	case errors.Is(err, syscall.ENOTDIR):
		remedy = "it is not a folder: move what is there, or choose another path"
	case errors.Is(err, ErrNoRoom), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		remedy = "make room on the disk"
	}
	return &Error{f.dir, what, remedy, err}
}

func sameDevice(a, b fs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, also := b.Sys().(*syscall.Stat_t)
	return !ok || !also || x.Dev == y.Dev
}
