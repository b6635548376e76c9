package downloads

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

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

// step opens one folder of the layout, with create also one that is not there yet. A new one gets its mode and group
// before anything is in it.
func (f *Folder) step(m *mount, name string, create bool) (*os.File, error) {
	folder, err := f.openPlain(m, name)
	if !create || !errors.Is(err, fs.ErrNotExist) {
		return folder, err
	}
	err = m.root.Mkdir(name, f.perm.initialFolder())
	made := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) { // another download may have made it in this moment
		return nil, f.problem("the folder "+name+" can't be created", err)
	}
	if folder, err = f.openPlain(m, name); err != nil || !made {
		return folder, err
	}
	if err := f.perm.setFolder(folder); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	f.log.Debug("folder created", "name", name)
	return folder, nil
}

// openPlain opens a folder that is one. Symbolic links are refused, wherever they lead: files would land where neither
// Check nor an operator looks for them.
func (f *Folder) openPlain(m *mount, name string) (*os.File, error) {
	info, err := m.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &Error{f.dir, name + " is not a folder (symbolic links are not followed)",
			"move what is there, or change downloads.layout", nil}
	}
	if !sameDevice(info, m.rootInfo) {
		return nil, &Error{f.dir, name + " is on another file system",
			"files can only be renamed within one: mount the volume at downloads.dir", nil}
	}
	folder, err := m.root.Open(name)
	if err != nil {
		return nil, err
	}
	now, err := folder.Stat()
	if err == nil && !os.SameFile(now, info) {
		err = fmt.Errorf("%s was changed in this moment", name)
	}
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return folder, nil
}
