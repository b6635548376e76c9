package downloads

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func plainRename(from *os.File, oldName string, to *os.File, newName string) error {
	return wrapRename(oldName, newName, retry(func() error {
		return unix.Renameat(int(from.Fd()), oldName, int(to.Fd()), newName)
	}))
}

// lookAndRename is for file systems that can't rename without replacing. A file that appears between the two steps is
// lost; link and unlink would close that gap, but a crash between them leaves the file under two names.
func lookAndRename(from *os.File, oldName string, to *os.File, newName string) error {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstatat(int(to.Fd()), newName, &st, unix.AT_SYMLINK_NOFOLLOW) })
	switch {
	case err == nil:
		return wrapRename(oldName, newName, unix.EEXIST)
	case !errors.Is(err, unix.ENOENT):
		return wrapRename(oldName, newName, err)
	}
	return plainRename(from, oldName, to, newName)
}

func wrapRename(oldName, newName string, err error) error {
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
}

// retry calls again what a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
