package store

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestLockExcludesOthersInThisProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "deep", "data", "recibo.db")
	lock, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Dir(path))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", info, err)
	}
	var owned *OwnedError
	if _, err := Acquire(path); !errors.As(err, &owned) || owned.PID != os.Getpid() || owned.Lock != path+".lock" {
		t.Errorf("second: %v", err)
	}
	for range 2 {
		if err := lock.Release(); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	again, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Release(); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(path + ".lock"); err != nil || len(data) != 0 {
		t.Errorf("a released lock names %q, %v", data, err)
	}
}

func TestLockOfAnotherProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "recibo.db")
	child := exec.Command(os.Args[0], path)
	child.Env = append(os.Environ(), childVariable+"=hold")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if l := lines(out); !l.Scan() || l.Text() != "held" {
		t.Fatalf("the child says %q", l.Text())
	}
	var owned *OwnedError
	if _, err := Acquire(path); !errors.As(err, &owned) || owned.PID != child.Process.Pid {
		t.Errorf("while the child holds it: %v", err)
	}
	_ = in
	_ = child.Process.Kill() // the kernel gives the lock back, whatever the end
	_ = child.Wait()
	lock, err := Acquire(path)
	if err != nil {
		t.Fatalf("after the child's death: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

func TestLockInAFolderThatCanNotBe(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var bad *fs.PathError
	if _, err := Acquire(filepath.Join(file, "recibo.db")); !errors.As(err, &bad) {
		t.Errorf("error %v", err)
	}
}
