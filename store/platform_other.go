//go:build !linux

package store

import "golang.org/x/sys/unix"

// refuseNetwork can't tell file systems apart here.
func refuseNetwork(string) error { return nil }

// freeBytes is the room that this process may use on the file system of path.
func freeBytes(path string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, err
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}

// forgetCached has no portable form.
func forgetCached(string) error { return nil }
