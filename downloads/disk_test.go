//go:build linux

package downloads

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
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

func TestStagingOnAnotherFileSystemIsRefused(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	mount := f.FullPath(stagingDir)
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("can't mount here: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	var said *Error
	if _, err := Open(f.config, Options{Owner: owner}); !errors.As(err, &said) || said.Remedy == "" {
		t.Errorf("got %v", err)
	}
	if err := f.Check(); !errors.Is(err, ErrGone) {
		t.Errorf("the folder that is open: %v", err)
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

func TestAFolderThatCannotBeWrittenIsToldAtTheStart(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs to become another user for a moment")
	}
	dir := filepath.Join(t.TempDir(), "downloads")
	f, err := Open(configAt(dir), Options{Owner: owner, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for p := dir; p != filepath.Dir(os.TempDir()); p = filepath.Dir(p) {
		if info, err := os.Stat(p); err == nil && info.Mode().Perm()&0o005 != 0o005 && p != os.TempDir() {
			if err := os.Chmod(p, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its changed identity
		_ = unix.Setfsuid(65534)
		_, err := Open(configAt(dir), Options{Owner: owner})
		result <- err
	}()
	var said *Error
	if err := <-result; !errors.As(err, &said) || !errors.Is(err, os.ErrPermission) || !strings.Contains(said.Remedy, "let the agent's user") {
		t.Errorf("got %v", err)
	}
}

func TestAFullDiskIsNoReasonNotToStart(t *testing.T) {
	t.Parallel()
	small := tinyDisk(t)
	dir := filepath.Join(small, "downloads")
	f, err := Open(configAt(dir), Options{Owner: owner, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, small)
	f, err = Open(configAt(dir), Options{Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var none *NoRoomError
	if _, err := f.Reserve(64 << 10); !errors.As(err, &none) {
		t.Errorf("Reserve: %v", err)
	}
}

func TestARealFullDiskIsNoRoom(t *testing.T) {
	t.Parallel()
	c := configAt(filepath.Join(tinyDisk(t), "downloads"))
	f, err := Open(c, Options{Owner: owner, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := f.Stage("i")
	if err != nil {
		t.Fatal(err)
	}
	n, err := s.Write(make([]byte, 1<<20))
	if !errors.Is(err, ErrNoRoom) || int64(n) != s.Size() {
		t.Errorf("wrote %d, size %d, %v", n, s.Size(), err)
	}
	if err := s.Discard(); err != nil {
		t.Error(err)
	}
}
