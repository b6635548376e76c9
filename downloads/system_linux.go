package downloads

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// rename moves a file between two open folders. Without replace it fails with EEXIST when the new name is taken, in
// one step with the rename itself (renameat2(2), RENAME_NOREPLACE).
func rename(from *os.File, oldName string, to *os.File, newName string, replace bool) error {
	if replace {
		return plainRename(from, oldName, to, newName)
	}
	err := retry(func() error {
		return unix.Renameat2(int(from.Fd()), oldName, int(to.Fd()), newName, unix.RENAME_NOREPLACE)
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return lookAndRename(from, oldName, to, newName)
	}
	return wrapRename(oldName, newName, err)
}

func room(folder *os.File) (int64, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(int(folder.Fd()), &st) }); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	if st.Blocks == 0 { // some FUSE file systems can't say
		return math.MaxInt64, nil
	}
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	return int64(st.Bavail) * int64(unit), nil
}

// flush begins to write out a range of a file (sync_file_range(2)). It proves nothing; it spares fsync the wait.
func flush(file *os.File, from, n int64) error {
	return retry(func() error { return unix.SyncFileRange(int(file.Fd()), from, n, unix.SYNC_FILE_RANGE_WRITE) })
}
