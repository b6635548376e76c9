package downloads

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrInUse: a running process holds the folder. The marker does not tell a ledger from its copy, such as one restored on
// a standby host; the lock does, as far as the file system takes locks.
var ErrInUse = errors.New("the download folder is in use by another running recibo")

// takeLock locks the folder for as long as the returned file is open. Some shares take no locks: there the marker alone
// has to do.
func (f *Folder) takeLock(root *os.Root) (*os.File, error) {
	file, err := root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, f.problem("its lock can't be made", err)
	}
	if held, err := f.heldAlready(file); held != nil || err != nil {
		return held, errors.Join(err, file.Close())
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		return file, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(fmt.Errorf("downloads.dir %s: %w", f.dir, ErrInUse), file.Close())
	case errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EINVAL):
		f.log.Warn("the file system takes no locks: nothing but the marker keeps a second agent out", "dir", f.dir)
		return nil, file.Close()
	}
	return nil, errors.Join(f.problem("it can't be locked", err), file.Close())
}

// heldAlready returns the lock once more where the mount in use holds it, as when the same folder is opened again.
func (f *Folder) heldAlready(file *os.File) (*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at == nil || f.at.lock == nil {
		return nil, nil
	}
	ours, err := f.at.lock.Stat()
	if err != nil {
		return nil, err
	}
	now, err := file.Stat()
	if err != nil || !os.SameFile(ours, now) {
		return nil, err
	}
	fd, err := unix.Dup(int(f.at.lock.Fd()))
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), file.Name()), nil
}
