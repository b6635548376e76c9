package store

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// refuseNetwork fails with ErrNetworkFS where a lock may not exclude other machines, or a sync may not reach a disk.
func refuseNetwork(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if name := networkFS(uint32(st.Type)); name != "" {
		return fmt.Errorf("%s is on %s: %w", path, name, ErrNetworkFS)
	}
	return nil
}

// networkFS names a network file system by its magic number (statfs(2)), empty for any other. FUSE counts as one: what is
// behind it can't be told.
func networkFS(magic uint32) string {
	switch magic {
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.SMB_SUPER_MAGIC:
		return "smb"
	case unix.CIFS_SUPER_MAGIC:
		return "cifs"
	case unix.SMB2_SUPER_MAGIC:
		return "smb2"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "afs"
	case unix.CODA_SUPER_MAGIC:
		return "coda"
	case unix.CEPH_SUPER_MAGIC:
		return "ceph"
	case unix.NCP_SUPER_MAGIC:
		return "ncp"
	case 0x0BD00BD0: // not in unix
		return "lustre"
	}
	return ""
}

// freeBytes is the room that this process may use on the file system of path.
func freeBytes(path string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// forgetCached drops the file's clean pages from the page cache. After a failed sync those may hold what never reached
// the disk, and a ledger opened on them would take for done what a power cut takes away again.
func forgetCached(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil && err != syscall.ENOSYS {
		return fmt.Errorf("%s: drop cached pages: %w", path, err)
	}
	return nil
}
