//go:build !linux

package downloads

import (
	"os"

	"golang.org/x/sys/unix"
)

func rename(from *os.File, oldName string, to *os.File, newName string, replace bool) error {
	if replace {
		return plainRename(from, oldName, to, newName)
	}
	return lookAndRename(from, oldName, to, newName)
}

func room(folder *os.File) (int64, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(int(folder.Fd()), &st) }); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

func flush(*os.File, int64, int64) error { return nil }
