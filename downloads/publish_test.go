package downloads

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

var report = Place{ID: "i", Ext: "txt"}

func TestPublishMovesTheFileToItsName(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	held := publish(t, f, report, "body")
	expectFile(t, f, "i.txt", "body")
	if held.Name != "i.txt" || held.Size != 4 || held.SHA256 != sum("body") {
		t.Errorf("got %+v", held)
	}
	if left := staged(t, f); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPrepareChoosesTheName(t *testing.T) {
	t.Parallel()
	second := Place{ID: "i", Ext: "txt", Revision: 2}
	old := Held{"i.txt", 3, sum("old")}
	oldTwo := Held{"i-r2.txt", 3, sum("old")}
	for name, c := range map[string]struct {
		onRevision string
		files      map[string]string // what is there
		place      Place
		ours       []Held
		want       Prepared
	}{
		"free": {Keep, nil, report, nil,
			Prepared{Publication: Publication{Name: "i.txt"}, Revision: 1}},
		"second revision": {Keep, map[string]string{"i.txt": "old"}, second, []Held{old},
			Prepared{Publication: Publication{Name: "i-r2.txt"}, Revision: 2}},
		"the same bytes": {Keep, map[string]string{"i.txt": "new"}, report, nil,
			Prepared{Publication: Publication{Name: "i.txt"}, Revision: 1, Same: true}},
		"foreign": {Keep, map[string]string{"i.txt": "theirs"}, report, nil,
			Prepared{Publication: Publication{Name: "i-r2.txt"}, Revision: 2, Foreign: []string{"i.txt"}}},
		"foreign of the same size": {Keep, map[string]string{"i.txt": "abc"}, report, nil,
			Prepared{Publication: Publication{Name: "i-r2.txt"}, Revision: 2, Foreign: []string{"i.txt"}}},
		"two foreign": {Keep, map[string]string{"i.txt": "theirs", "i-r2.txt": "theirs"}, report, nil,
			Prepared{Publication: Publication{Name: "i-r3.txt"}, Revision: 3, Foreign: []string{"i.txt", "i-r2.txt"}}},
		"foreign, then the same bytes": {Keep, map[string]string{"i.txt": "theirs", "i-r2.txt": "new"}, report, nil,
			Prepared{Publication: Publication{Name: "i-r2.txt"}, Revision: 2, Same: true, Foreign: []string{"i.txt"}}},
		"ours under the first name is not foreign": {Keep, map[string]string{"i.txt": "old"}, report, []Held{old},
			Prepared{Publication: Publication{Name: "i-r2.txt"}, Revision: 2}},
		"replace": {Replace, map[string]string{"i.txt": "old"}, second, []Held{old},
			Prepared{Publication: Publication{Name: "i.txt", Replaces: true, Previous: Bytes{3, sum("old")}}, Revision: 1}},
		"replace, collected": {Replace, nil, second, []Held{old},
			Prepared{Publication: Publication{Name: "i.txt"}, Revision: 1}},
		"replace, changed by somebody": {Replace, map[string]string{"i.txt": "changed"}, second, []Held{old},
			Prepared{Publication: Publication{Name: "i-r2.txt"}, Revision: 2, Foreign: []string{"i.txt"}}},
		"replace, changed at the same size": {Replace, map[string]string{"i.txt": "odd"}, second, []Held{old},
			Prepared{Publication: Publication{Name: "i-r2.txt"}, Revision: 2, Foreign: []string{"i.txt"}}},
		"replace beside a foreign file": {Replace, map[string]string{"i.txt": "theirs", "i-r2.txt": "old"}, second, []Held{oldTwo},
			Prepared{Publication: Publication{Name: "i-r2.txt", Replaces: true, Previous: Bytes{3, sum("old")}}, Revision: 2, Foreign: []string{"i.txt"}}},
		"replace, the same bytes": {Replace, map[string]string{"i.txt": "new"}, second, []Held{old},
			Prepared{Publication: Publication{Name: "i.txt"}, Revision: 1, Same: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folderOf(t, func(conf *Config) { conf.OnRevision = c.onRevision })
			for file, body := range c.files {
				write(t, f, file, body)
			}
			s := finished(t, f, "i", "new")
			got, err := f.Prepare(t.Context(), c.place, s, c.ours...)
			if err != nil {
				t.Fatal(err)
			}
			c.want.Staged, c.want.Size, c.want.SHA256 = s.Name(), 3, sum("new")
			if got.Publication != c.want.Publication || got.Revision != c.want.Revision || got.Same != c.want.Same ||
				!slices.Equal(got.Foreign, c.want.Foreign) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if got.Same {
				return
			}
			if err := f.Publish(t.Context(), got.Publication); err != nil {
				t.Fatal(err)
			}
			expectFile(t, f, got.Name, "new")
			for file, body := range c.files {
				if file != got.Name {
					expectFile(t, f, file, body)
				}
			}
		})
	}
}

func TestWhatHoldsANameIsForeignWhateverItIs(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path string) error{
		"folder":        func(path string) error { return os.Mkdir(path, 0o755) },
		"dangling link": func(path string) error { return os.Symlink("nowhere", path) },
		"link out":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"pipe":          func(path string) error { return unix.Mkfifo(path, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folderOf(t, nil)
			before := prepared(t, f, report, "body")
			if err := put(f.FullPath("i.txt")); err != nil {
				t.Fatal(err)
			}
			p := prepared(t, f, report, "body")
			if p.Name != "i-r2.txt" || !slices.Equal(p.Foreign, []string{"i.txt"}) {
				t.Errorf("got %+v", p)
			}
			var occupied *OccupiedError
			if err := f.Publish(t.Context(), before.Publication); !errors.As(err, &occupied) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPublishNeverOverwritesWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	previous := Bytes{3, sum("old")}
	for name, c := range map[string]struct {
		there    string // what holds the name by the time of the rename; empty: nothing
		replaces bool
		occupied bool
	}{
		"free":                              {"", false, false},
		"foreign":                           {"theirs", false, true},
		"foreign with the very bytes":       {"new", false, true},
		"replaces ours":                     {"old", true, false},
		"replaces, collected by now":        {"", true, false},
		"replaces, changed by now":          {"theirs", true, true},
		"replaces, changed in place by now": {"odd", true, true},
	} {
		for _, system := range []string{"renameat2", "a file system without it"} {
			t.Run(name+" on "+system, func(t *testing.T) {
				t.Parallel()
				f := folderOf(t, func(conf *Config) { conf.Layout = "{tenant}/{id}.{ext}" })
				if system != "renameat2" {
					f.sys.rename = func(from *os.File, oldName string, to *os.File, newName string, replace bool) error {
						if replace {
							return plainRename(from, oldName, to, newName)
						}
						return lookAndRename(from, oldName, to, newName)
					}
				}
				p := prepared(t, f, report, "new").Publication
				p.Replaces = c.replaces
				if c.replaces {
					p.Previous = previous
				}
				if c.there != "" {
					write(t, f, p.Name, c.there)
				}
				err := f.Publish(t.Context(), p)
				var occupied *OccupiedError
				if errors.As(err, &occupied) != c.occupied || !c.occupied && err != nil {
					t.Fatalf("got %v", err)
				}
				if c.occupied {
					expectFile(t, f, p.Name, c.there)
					expectFile(t, f, stagingDir+"/"+p.Staged, "new")
					return
				}
				expectFile(t, f, p.Name, "new")
			})
		}
	}
}

func TestAnOccupiedFileGetsAnotherName(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	p := prepared(t, f, report, "new").Publication
	write(t, f, p.Name, "theirs")
	again, err := f.PrepareAgain(t.Context(), report, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Publish(t.Context(), again.Publication); err != nil {
		t.Fatal(err)
	}
	expectFile(t, f, "i-r2.txt", "new")
	expectFile(t, f, "i.txt", "theirs")
}

func TestSymbolicLinksLeadNowhere(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]func(f *Folder) string{
		"out":            func(f *Folder) string { return f.Dir() + "-outside" },
		"out, relative":  func(*Folder) string { return "../downloads-outside" },
		"to staging":     func(*Folder) string { return stagingDir },
		"to another one": func(*Folder) string { return "inside" },
		"to itself":      func(*Folder) string { return "acme" },
		"nowhere":        func(*Folder) string { return "missing" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folderOf(t, func(c *Config) { c.Layout = "{tenant}/{id}.{ext}" })
			place := Place{ID: "i", Ext: "txt", Tenant: "acme"}
			p := prepared(t, f, place, "body").Publication
			err := errors.Join(os.Mkdir(f.Dir()+"-outside", 0o755), os.Mkdir(f.FullPath("inside"), 0o755), os.Symlink(target(f), f.FullPath("acme")))
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Publish(t.Context(), p); err == nil {
				t.Error("published through a symbolic link")
			}
			if err := f.WriteManifest(p.Name, []byte("{}"), ""); err == nil {
				t.Error("manifest written through a symbolic link")
			}
			for _, dir := range []string{f.Dir() + "-outside", f.FullPath("inside")} {
				if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
					t.Errorf("%s holds %v, %v", dir, entries, err)
				}
			}
			expectFile(t, f, stagingDir+"/"+p.Staged, "body")
		})
	}
}

func TestAFileInPlaceOfALayoutFolderIsAnError(t *testing.T) {
	t.Parallel()
	f := folderOf(t, func(c *Config) { c.Layout = "{tenant}/{id}.{ext}" })
	p := prepared(t, f, Place{ID: "i", Ext: "txt", Tenant: "acme"}, "body").Publication
	write(t, f, "acme", "a file")
	var said *Error
	if err := f.Publish(t.Context(), p); !errors.As(err, &said) || !strings.Contains(said.Problem, "acme") {
		t.Errorf("got %v", err)
	}
}

func TestNamesFromALedgerCannotLeaveTheFolder(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	good := prepared(t, f, report, "body").Publication
	for _, name := range []string{"", ".", "..", "../x", "/etc/x", "a/../../x", "a//x", "./x", "a\x00b",
		".recibo/owner", ".RECIBO/owner", ".recibo/staging/x"} {
		bad := good
		bad.Name = name
		var refused *NameError
		if err := f.Publish(t.Context(), bad); !errors.As(err, &refused) {
			t.Errorf("Publish %q: %v", name, err)
		}
		if _, err := f.Recover(t.Context(), bad); !errors.As(err, &refused) {
			t.Errorf("Recover %q: %v", name, err)
		}
		if _, err := f.Verify(t.Context(), name, 0, "", nil); !errors.As(err, &refused) {
			t.Errorf("Verify %q: %v", name, err)
		}
		if _, err := f.Collected(name); !errors.As(err, &refused) {
			t.Errorf("Collected %q: %v", name, err)
		}
	}
	for _, name := range []string{"", "x", "../owner", "../../i.part", "a/b.part", ".."} {
		bad := good
		bad.Staged = name
		var refused *NameError
		if err := f.Publish(t.Context(), bad); !errors.As(err, &refused) {
			t.Errorf("Publish from %q: %v", name, err)
		}
		if err := f.DiscardStaged(name); !errors.As(err, &refused) {
			t.Errorf("DiscardStaged %q: %v", name, err)
		}
	}
}

func TestALayoutFolderThatVanishesIsMadeAgain(t *testing.T) {
	t.Parallel()
	f := folderOf(t, func(c *Config) { c.Layout = "{tenant}/{id}.{ext}" })
	p := prepared(t, f, Place{ID: "i", Ext: "txt", Tenant: "acme"}, "body").Publication
	calls := 0
	f.sys.rename = func(from *os.File, oldName string, to *os.File, newName string, replace bool) error {
		if calls++; calls == 1 { // an importer tidies up in just this moment
			if err := os.Remove(f.FullPath("acme")); err != nil {
				t.Error(err)
			}
		}
		return rename(from, oldName, to, newName, replace)
	}
	if err := f.Publish(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	expectFile(t, f, "acme/i.txt", "body")
}

// A repeated NFS RENAME finds the file gone and fails, though the first one did its work.
func TestARenameWhoseAnswerWasLostCounts(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]error{"missing": syscall.ENOENT, "there": syscall.EEXIST} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folderOf(t, nil)
			p := prepared(t, f, report, "body").Publication
			f.sys.rename = func(from *os.File, oldName string, to *os.File, newName string, replace bool) error {
				return errors.Join(rename(from, oldName, to, newName, replace), wrapRename(oldName, newName, code))
			}
			if err := f.Publish(t.Context(), p); err != nil {
				t.Error(err)
			}
			expectFile(t, f, "i.txt", "body")
		})
	}
}

func TestPublishOfAMissingStagedFileFails(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	p := prepared(t, f, report, "body").Publication
	if err := f.DiscardStaged(p.Staged); err != nil {
		t.Fatal(err)
	}
	if err := f.Publish(t.Context(), p); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestAnEndedContextPublishesNothing(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	p := prepared(t, f, report, "body").Publication
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Publish(ended, p); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if gone, err := f.Collected("i.txt"); !gone || err != nil {
		t.Errorf("published all the same: %v", err)
	}
}

// ErrNoRoom and ErrGone say that nothing was published, so a sync that fails behind the rename must not match them.
func TestAfterTheRenameAnErrorLeavesTheOutcomeOpen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failAt   int // which sync of Publish: 1 the folder above, 2 the target, 3 staging
		renamed  bool
		noRoom   bool
		recovery Recovery
	}{
		"folder above": {1, false, true, Published},
		"target":       {2, true, false, Settled},
		"staging":      {3, true, false, Settled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folderOf(t, func(conf *Config) { conf.Layout = "{tenant}/{id}.{ext}" })
			p := prepared(t, f, report, "body").Publication
			calls := 0
			f.sys.sync = func(file *os.File) error {
				if calls++; calls == c.failAt {
					return &os.PathError{Op: "sync", Path: file.Name(), Err: syscall.ENOSPC}
				}
				return file.Sync()
			}
			err := f.Publish(t.Context(), p)
			if err == nil || errors.Is(err, ErrNoRoom) != c.noRoom || errors.Is(err, ErrGone) {
				t.Errorf("got %v", err)
			}
			if gone, err := f.Collected(p.Name); gone == c.renamed || err != nil {
				t.Errorf("renamed: %v, %v", !gone, err)
			}
			if got, err := f.Recover(t.Context(), p); got != c.recovery || err != nil {
				t.Errorf("Recover: %v, %v", got, err)
			}
			expectFile(t, f, p.Name, "body")
		})
	}
}
