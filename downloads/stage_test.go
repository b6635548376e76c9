package downloads

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestStagedKeepsHashSizeAndBothEnds(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	r := rand.New(rand.NewPCG(1, 2))
	for name, sizes := range map[string][]int{
		"empty":           {},
		"nothing written": {0, 0},
		"one byte":        {1},
		"small writes":    {1000, 1000, 1000, 1000, 1000, 7},
		"exactly an edge": {4096},
		"edge and one":    {4096, 1},
		"one and edge":    {1, 4096},
		"large":           {300 << 10, 256 << 10, 5},
		"many":            {4095, 4095, 4095, 4095, 4095, 1, 70 << 10, 4095, 4095},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := f.Stage("i")
			if err != nil {
				t.Fatal(err)
			}
			var all []byte
			for _, n := range sizes {
				p := make([]byte, n)
				for i := range p {
					p[i] = byte(r.Uint32())
				}
				all = append(all, p...)
				if got, err := s.Write(p); got != n || err != nil {
					t.Fatal(got, err)
				}
				clear(p) // the caller reuses its buffer
			}
			if !bytes.Equal(s.Head(), all[:min(len(all), 4096)]) || !bytes.Equal(s.Tail(), all[max(0, len(all)-4096):]) {
				t.Errorf("head %d bytes, tail %d bytes, or not the right ones", len(s.Head()), len(s.Tail()))
			}
			if s.Size() != int64(len(all)) || s.Sum() != sum(string(all)) {
				t.Errorf("size %d, sum so far %s", s.Size(), s.Sum())
			}
			got, err := s.Finish(t.Context())
			if err != nil || got != sum(string(all)) {
				t.Errorf("got %s, %v", got, err)
			}
			if data, err := os.ReadFile(f.FullPath(stagingDir + "/" + s.Name())); err != nil || !bytes.Equal(data, all) {
				t.Errorf("the file differs: %v", err)
			}
			if err := errors.Join(s.Discard(), s.Discard()); err != nil {
				t.Error(err)
			}
		})
	}
	if left := staged(t, f); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestResetBeginsAnew(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	s, err := f.Stage("i")
	if err != nil {
		t.Fatal(err)
	}
	_, first := s.Write([]byte("half of the bo"))
	reset := s.Reset()
	_, second := s.Write([]byte("the body"))
	if err := errors.Join(first, reset, second); err != nil {
		t.Fatal(err)
	}
	if string(s.Head()) != "the body" || string(s.Tail()) != "the body" || s.Size() != 8 {
		t.Errorf("head %q, tail %q, size %d", s.Head(), s.Tail(), s.Size())
	}
	if got, err := s.Finish(t.Context()); err != nil || got != sum("the body") {
		t.Errorf("got %s, %v", got, err)
	}
	expectFile(t, f, stagingDir+"/"+s.Name(), "the body")
}

func TestStagedNamesAreUnique(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	a, b := finished(t, f, "i", "x"), finished(t, f, "i", "x")
	if a.Name() == b.Name() || !strings.HasPrefix(a.Name(), "i.") || !strings.HasSuffix(a.Name(), ".part") {
		t.Errorf("%s and %s", a.Name(), b.Name())
	}
}

func TestABodyBeyondMaxSizeIsCutOffBeforeItIsWritten(t *testing.T) {
	t.Parallel()
	f := folderOf(t, func(c *Config) { c.MaxSize = 10 })
	s, err := f.Stage("i")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("0123456789")); err != nil {
		t.Fatal("exactly the limit must pass:", err)
	}
	var large *TooLargeError
	if n, err := s.Write([]byte("x")); n != 0 || !errors.As(err, &large) || large.Limit != 10 {
		t.Errorf("got %d, %v", n, err)
	}
	if s.Size() != 10 || s.Sum() != sum("0123456789") {
		t.Errorf("size %d", s.Size())
	}
}

func TestWritingGoesOnOnceAFullDiskHasRoom(t *testing.T) {
	t.Parallel()
	for name, chunk := range map[string]int{"small writes": 1000, "large writes": 100 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folderOf(t, nil)
			full := true
			f.sys.write = func(file *os.File, p []byte) (int, error) {
				if !full {
					return file.Write(p)
				}
				n, err := file.Write(p[:len(p)/3])
				return n, errors.Join(err, &os.PathError{Op: "write", Path: file.Name(), Err: syscall.ENOSPC})
			}
			body := []byte(strings.Repeat("body", chunk/4))
			s, err := f.Stage("i")
			if err != nil {
				t.Fatal(err)
			}
			n, err := s.Write(body)
			if !errors.Is(err, ErrNoRoom) || n != len(body)/3 || s.Size() != int64(n) || s.Sum() != sum(string(body[:n])) {
				t.Fatalf("wrote %d, size %d, %v", n, s.Size(), err)
			}
			full = false
			if _, err := s.Write(body[n:]); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Finish(t.Context()); err != nil || got != sum(string(body)) {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}

// Once fsync has failed, the kernel may report success for pages that it dropped.
func TestAFailedSyncThrowsTheFileAwayAndIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failAt int // 1: the file, 2: the staging folder
		cause  error
	}{
		"file":           {1, syscall.EIO},
		"file, no room":  {1, syscall.ENOSPC},
		"file, quota":    {1, syscall.EDQUOT},
		"staging folder": {2, syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folderOf(t, nil)
			s, err := f.Stage("i")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write([]byte("body")); err != nil {
				t.Fatal(err)
			}
			calls := 0
			f.sys.sync = func(*os.File) error {
				if calls++; calls == c.failAt {
					return c.cause
				}
				return nil
			}
			if got, err := s.Finish(t.Context()); !errors.Is(err, c.cause) || got != "" {
				t.Fatalf("got %q, %v", got, err)
			} else if errors.Is(err, ErrNoRoom) != (c.cause != syscall.EIO) {
				t.Errorf("no room or not: %v", err)
			}
			if _, err := s.Finish(t.Context()); err == nil || calls != c.failAt {
				t.Errorf("synced %d times, second Finish: %v", calls, err)
			}
			if left := staged(t, f); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if _, err := f.Prepare(t.Context(), Place{ID: "i", Ext: "txt"}, s); err == nil {
				t.Error("a file that is not on disk got a name")
			}
		})
	}
}

func TestAFileSystemThatCannotSyncFoldersIsTolerated(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	f.sys.sync = func(file *os.File) error {
		if info, err := file.Stat(); err != nil || info.IsDir() {
			return errors.Join(err, &os.PathError{Op: "sync", Path: file.Name(), Err: syscall.EINVAL})
		}
		return file.Sync()
	}
	held := publish(t, f, Place{ID: "i", Ext: "txt"}, "body")
	expectFile(t, f, held.Name, "body")
}

func TestFinishLeavesTheFileWhenItsContextHasEnded(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	s, err := f.Stage("i")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Finish(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Finish(t.Context()); err != nil {
		t.Errorf("a second try: %v", err)
	}
}

func TestModeAndGroupAreSetBeforePublishing(t *testing.T) {
	t.Parallel()
	group := os.Getgid()
	if os.Getuid() == 0 {
		group = 54321
	}
	for name, c := range map[string]struct {
		mode, group string
		want        os.FileMode
		gid         int
	}{
		"default":        {"0640", "", 0o640, os.Getgid()},
		"beyond umask":   {"0666", "", 0o666, os.Getgid()},
		"with group":     {"0640", itoa(group), 0o640, group},
		"inherit":        {Inherit, "", 0o666 &^ umask(), os.Getgid()},
		"inherit, group": {Inherit, itoa(group), 0o666 &^ umask(), os.Getgid()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folderOf(t, func(conf *Config) { conf.Mode, conf.Group = c.mode, c.group })
			s := finished(t, f, "i", "body")
			info, err := os.Stat(f.FullPath(stagingDir + "/" + s.Name()))
			if err != nil || info.Mode().Perm() != c.want {
				t.Errorf("mode %v, %v; want %v", info.Mode(), err, c.want)
			}
			if gid := info.Sys().(*syscall.Stat_t).Gid; int(gid) != c.gid {
				t.Errorf("group %d, want %d", gid, c.gid)
			}
		})
	}
}

func TestFoldersOfTheLayoutGetModeAndGroup(t *testing.T) {
	t.Parallel()
	f := folderOf(t, func(c *Config) { c.Layout, c.DirMode = "{tenant}/{template}/{id}.{ext}", "0775" })
	if err := os.Chmod(f.Dir(), 0o2750|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	publish(t, f, Place{ID: "i", Ext: "txt", Tenant: "acme", Template: "t"}, "body")
	for _, name := range []string{"acme", "acme/t"} {
		info, err := os.Stat(f.FullPath(name))
		if err != nil || info.Mode().Perm() != 0o775 || info.Mode()&os.ModeSetgid == 0 {
			t.Errorf("%s: %v, %v; want 0775 and the set-group-id bit of the folder above", name, info.Mode(), err)
		}
	}
}

func TestLargeFilesAreWrittenOutAlongTheWay(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	var upTo int64
	f.sys.flush = func(_ *os.File, from, n int64) error {
		if from != upTo {
			t.Errorf("flushed from %d, want %d", from, upTo)
		}
		upTo = from + n
		return syscall.ENOSYS // only fsync counts
	}
	s, err := f.Stage("i")
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 1<<20)
	for range 20 {
		if _, err := s.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if upTo != 16<<20 {
		t.Errorf("flushed up to %d", upTo)
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	for upTo = 0; s.Size() < 8<<20; {
		if _, err := s.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if upTo != 8<<20 {
		t.Errorf("after Reset flushed up to %d", upTo)
	}
}
