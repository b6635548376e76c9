package store

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestNetworkFileSystemsAreToldFromLocalOnes(t *testing.T) {
	t.Parallel()
	for magic, want := range map[uint32]bool{
		unix.NFS_SUPER_MAGIC: true, unix.CIFS_SUPER_MAGIC: true, unix.SMB2_SUPER_MAGIC: true, unix.SMB_SUPER_MAGIC: true,
		unix.FUSE_SUPER_MAGIC: true, unix.CEPH_SUPER_MAGIC: true, unix.AFS_SUPER_MAGIC: true,
		unix.EXT4_SUPER_MAGIC: false, unix.XFS_SUPER_MAGIC: false, unix.BTRFS_SUPER_MAGIC: false,
		unix.TMPFS_MAGIC: false, unix.OVERLAYFS_SUPER_MAGIC: false, unix.V9FS_MAGIC: false,
	} {
		if got := networkFS(magic) != ""; got != want {
			t.Errorf("%#x: %v", magic, got)
		}
	}
}
