//go:build linux

package downloads

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// tinyDisk mounts a file system of 256 KiB and 16 inodes, or skips the test where that may not be done.
func tinyDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,nr_inodes=16"); err != nil {
		t.Skip("can't mount a small file system here: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// fill uses up all bytes and inodes.
func fill(t *testing.T, dir string) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	for i := 0; errors.Is(err, unix.ENOSPC); i++ {
		var more *os.File
		if more, err = os.CreateTemp(dir, "filler"); err != nil {
			return
		}
		err = errors.Join(more.Close(), unix.ENOSPC)
	}
	t.Fatal(err)
}

func TestPublishAcrossFileSystemsIsRefusedWithARemedy(t *testing.T) {
	t.Parallel()
	f := folderOf(t, func(c *Config) { c.Layout = "{tenant}/{id}.{ext}" })
	mount := f.FullPath("acme")
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("can't mount here: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	p := prepared(t, f, Place{ID: "i", Ext: "txt", Tenant: "acme"}, "body")
	var said *Error
	if err := f.Publish(t.Context(), p.Publication); !errors.As(err, &said) || said.Remedy == "" {
		t.Errorf("got %v", err)
	}
	if left := staged(t, f); len(left) != 1 {
		t.Errorf("staged: %v", left)
	}
}

func TestAVolumeMountedOverTheFolderIsNoticed(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	if err := unix.Mount("tmpfs", f.Dir(), "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("can't mount here: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(f.Dir(), unix.MNT_DETACH) })
	if err := f.Check(); !errors.Is(err, ErrGone) {
		t.Errorf("got %v", err)
	}
	if err := unix.Unmount(f.Dir(), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Check(); err != nil {
		t.Errorf("after unmounting it again: %v", err)
	}
}
