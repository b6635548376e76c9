package downloads

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func configAt(dir string) Config {
	c := DefaultConfig()
	c.Dir, c.MinFree = dir, 0
	return c
}

func TestANewFolderIsMadeWithItsParentsAndMarked(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b", "downloads")
	f, err := Open(configAt(dir), Options{Owner: owner, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	marker, err := os.ReadFile(filepath.Join(dir, ".recibo", "owner"))
	if first, rest, _ := strings.Cut(string(marker), "\n"); err != nil || first != owner || !strings.Contains(rest, "Please leave") {
		t.Errorf("marker %q, %v", marker, err)
	}
	for name, want := range map[string]os.FileMode{dir: 0o750, filepath.Join(dir, ".recibo", "staging"): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	if left := staged(t, f); len(left) > 0 {
		t.Errorf("the probe left %v", left)
	}
}

func TestOpenDecidesWhoseTheFolderIs(t *testing.T) {
	t.Parallel()
	missing := func(string) error { return nil }
	unmarked := func(dir string) error { return os.MkdirAll(dir, 0o755) }
	marked := func(text string) func(string) error {
		return func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, ".recibo"), 0o755),
				os.WriteFile(filepath.Join(dir, ".recibo", "owner"), []byte(text), 0o644))
		}
	}
	foreign := func(err error) bool {
		var e *ForeignOwnerError
		return errors.As(err, &e) && e.Owner == "ledger-2" && !errors.Is(err, ErrGone)
	}
	gone := func(err error) bool { return errors.Is(err, ErrGone) }
	fine := func(err error) bool { return err == nil }
	for name, c := range map[string]struct {
		before  func(dir string) error
		options Options
		want    func(error) bool
	}{
		"missing":                         {missing, Options{}, gone},
		"missing, create":                 {missing, Options{Create: true}, fine},
		"unmarked":                        {unmarked, Options{}, gone},
		"unmarked, take over":             {unmarked, Options{TakeOver: true}, gone}, // no one to take it from: unmounted
		"unmarked, create":                {unmarked, Options{Create: true}, fine},
		"ours":                            {marked(owner + "\nfor people\n"), Options{}, fine},
		"ours, written by hand":           {marked(owner + "\r\n"), Options{}, fine},
		"torn marker":                     {marked(""), Options{}, gone},
		"torn marker, create":             {marked(""), Options{Create: true}, fine},
		"another's":                       {marked("ledger-2\n"), Options{}, foreign},
		"another's, create":               {marked("ledger-2\n"), Options{Create: true}, foreign},
		"another's whose id begins alike": {marked(owner + "0\n"), Options{}, func(err error) bool { return err != nil }},
		"another's, take over":            {marked("ledger-2\n"), Options{TakeOver: true}, fine},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "downloads")
			if err := c.before(dir); err != nil {
				t.Fatal(err)
			}
			c.options.Owner = owner
			f, err := Open(configAt(dir), c.options)
			if !c.want(err) {
				t.Fatalf("got %v", err)
			}
			if err != nil {
				return
			}
			defer f.Close()
			if err := f.Check(); err != nil {
				t.Error(err)
			}
			if names, _ := filepath.Glob(filepath.Join(dir, ".recibo", "owner.*")); len(names) > 0 {
				t.Errorf("left behind: %v", names)
			}
		})
	}
}

func TestOpenSaysWhatIsWrongAndWhatHelps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(dir string) error
		want   string
	}{
		"a file": {func(dir string) error { return os.WriteFile(dir, nil, 0o644) }, "not a"},
		"own folder is a file": {func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(dir+"/.recibo", nil, 0o644))
		}, ".recibo"},
		"own folder leads out": {func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(dir+"-elsewhere", 0o755), os.Symlink(dir+"-elsewhere", dir+"/.recibo"))
		}, ".recibo"},
		"staging leads elsewhere": {func(dir string) error {
			return errors.Join(os.MkdirAll(dir+"/.recibo", 0o755), os.Mkdir(dir+"/other", 0o755), os.Symlink("../other", dir+"/.recibo/staging"))
		}, "staging"},
		"marker is a link": {func(dir string) error {
			return errors.Join(os.MkdirAll(dir+"/.recibo", 0o755), os.WriteFile(dir+"/other", []byte(owner), 0o644),
				os.Symlink("../other", dir+"/.recibo/owner"))
		}, "owner"},
		"marker is a pipe": {func(dir string) error {
			return errors.Join(os.MkdirAll(dir+"/.recibo", 0o755), unix.Mkfifo(dir+"/.recibo/owner", 0o644))
		}, "owner"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "downloads")
			if err := c.before(dir); err != nil {
				t.Fatal(err)
			}
			_, err := Open(configAt(dir), Options{Owner: owner, Create: true})
			var said *Error
			if !errors.As(err, &said) || said.Remedy == "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want an Error with a remedy that mentions %s", err, c.want)
			}
		})
	}
}

func TestOwnersMustBeOneLine(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "a\nb", " a", "a "} {
		if f, err := Open(configAt(t.TempDir()), Options{Owner: bad, Create: true}); err == nil {
			t.Errorf("%q was taken", bad)
			_ = f.Close()
		}
	}
}

func TestUnknownGroupIsRefused(t *testing.T) {
	t.Parallel()
	c := configAt(t.TempDir())
	c.Group = "no-such-group-here"
	if _, err := Open(c, Options{Owner: owner, Create: true}); err == nil || !strings.Contains(err.Error(), "downloads.group") {
		t.Errorf("got %v", err)
	}
}

func TestCheckNoticesThatTheFolderIsNotTheSameAnyMore(t *testing.T) {
	t.Parallel()
	away := func(dir string) error { return os.Rename(dir, dir+"-away") }
	for name, c := range map[string]struct {
		change func(dir string) error
		gone   bool
	}{
		"nothing":    {func(string) error { return nil }, false},
		"moved away": {away, true},
		"replaced":   {func(dir string) error { return errors.Join(away(dir), os.Mkdir(dir, 0o755)) }, true},
		"replaced by a copy": {func(dir string) error {
			return errors.Join(away(dir), os.CopyFS(dir, os.DirFS(dir+"-away")))
		}, true},
		"there and back": {func(dir string) error {
			return errors.Join(away(dir), os.Rename(dir+"-away", dir))
		}, false},
		"marker removed":  {func(dir string) error { return os.Remove(dir + "/.recibo/owner") }, true},
		"corner removed":  {func(dir string) error { return os.RemoveAll(dir + "/.recibo") }, true},
		"staging removed": {func(dir string) error { return os.RemoveAll(dir + "/.recibo/staging") }, true},
		"staging replaced": {func(dir string) error {
			return errors.Join(os.RemoveAll(dir+"/.recibo/staging"), os.Mkdir(dir+"/.recibo/staging", 0o700))
		}, true},
		"marker emptied": {func(dir string) error { return os.Truncate(dir+"/.recibo/owner", 0) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folderOf(t, nil)
			p := prepared(t, f, Place{ID: "i", Ext: "txt"}, "body")
			if err := c.change(f.Dir()); err != nil {
				t.Fatal(err)
			}
			if err := f.Check(); errors.Is(err, ErrGone) != c.gone || !c.gone && err != nil {
				t.Fatalf("Check: %v", err)
			}
			if !c.gone {
				return
			}
			// Nothing is written, and nothing is concluded from what is not there.
			calls := map[string]error{"Publish": f.Publish(t.Context(), p.Publication), "WriteManifest": f.WriteManifest(p.Name, []byte("{}"), "")}
			_, calls["Recover"] = f.Recover(t.Context(), p.Publication)
			_, calls["Verify"] = f.Verify(t.Context(), p.Name, p.Size, p.SHA256, nil)
			_, calls["Collected"] = f.Collected(p.Name)
			_, calls["Stage"] = f.Stage("j")
			_, calls["Sweep"] = f.Sweep(nil)
			for call, err := range calls {
				if !errors.Is(err, ErrGone) {
					t.Errorf("%s: %v; want ErrGone", call, err)
				}
			}
			for _, dir := range []string{f.Dir(), f.Dir() + "-away"} {
				if _, err := os.Stat(filepath.Join(dir, p.Name)); err == nil {
					t.Errorf("published into %s", dir)
				}
			}
		})
	}
}

func TestCheckNoticesAnotherOwner(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	other, err := Open(configAt(f.Dir()), Options{Owner: "ledger-2", TakeOver: true})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var foreign *ForeignOwnerError
	if err := f.Check(); !errors.As(err, &foreign) || foreign.Owner != "ledger-2" {
		t.Errorf("got %v", err)
	}
}

func TestReopenFindsTheVolumeThatCameBack(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	away := f.Dir() + "-away"
	if err := errors.Join(os.Rename(f.Dir(), away), os.Mkdir(f.Dir(), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := f.Reopen(); !errors.Is(err, ErrGone) {
		t.Fatalf("an empty mount point was taken: %v", err)
	}
	// The same contents under another inode, as after mounting a share anew.
	if err := errors.Join(os.Remove(f.Dir()), os.CopyFS(f.Dir(), os.DirFS(away))); err != nil {
		t.Fatal(err)
	}
	if err := f.Reopen(); err != nil {
		t.Fatal(err)
	}
	held := publish(t, f, Place{ID: "i", Ext: "txt"}, "body")
	expectFile(t, f, held.Name, "body")
}

func TestAClosedFolderSaysSo(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	_, room := f.Room()
	for call, err := range map[string]error{"Check": f.Check(), "Reopen": f.Reopen(), "Room": room} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", call, err)
		}
	}
}
