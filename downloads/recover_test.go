package downloads

import (
	"errors"
	"os"
	"testing"
)

func TestRecoverFinishesWhatACrashInterrupted(t *testing.T) {
	t.Parallel()
	stagedPath := func(f *Folder, p Publication) string { return f.FullPath(stagingDir + "/" + p.Staged) }
	move := func(f *Folder, p Publication) error {
		return errors.Join(os.MkdirAll(f.FullPath("acme"), 0o755), os.Rename(stagedPath(f, p), f.FullPath(p.Name)))
	}
	moveAndCollect := func(f *Folder, p Publication) error { return errors.Join(move(f, p), os.Remove(f.FullPath(p.Name))) }
	moveAndTidy := func(f *Folder, p Publication) error { return errors.Join(move(f, p), os.RemoveAll(f.FullPath("acme"))) }
	damage := func(f *Folder, p Publication) error { return os.WriteFile(stagedPath(f, p), []byte("b0dy"), 0o644) }
	for name, c := range map[string]struct {
		crash func(f *Folder, p Publication) error // what the crash, and others since, left
		want  Recovery
		final string // what must be under the final name; empty: nothing
		left  int    // staged files
	}{
		"before the rename":                    {func(*Folder, Publication) error { return nil }, Published, "body", 0},
		"after the rename":                     {move, Settled, "body", 0},
		"after the rename, collected":          {moveAndCollect, Settled, "", 0},
		"after the rename, folder tidied away": {moveAndTidy, Settled, "", 0},
		"other bytes of that size":             {damage, Broken, "", 1},
		"cut":                                  {func(f *Folder, p Publication) error { return os.Truncate(stagedPath(f, p), 2) }, Broken, "", 1},
		"both names hold the bytes": {func(f *Folder, p Publication) error {
			return errors.Join(os.MkdirAll(f.FullPath("acme"), 0o755), os.WriteFile(f.FullPath(p.Name), []byte("body"), 0o644))
		}, Settled, "body", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folderOf(t, func(conf *Config) { conf.Layout = "{tenant}/{id}.{ext}" })
			p := prepared(t, f, Place{ID: "i", Ext: "txt", Tenant: "acme"}, "body").Publication
			if err := errors.Join(c.crash(f, p), f.Close()); err != nil {
				t.Fatal(err)
			}
			f, err := Open(f.config, Options{Owner: owner})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, err := f.Recover(t.Context(), p)
			if got != c.want || err != nil {
				t.Fatalf("got %v, %v; want %v", got, err, c.want)
			}
			if c.final != "" {
				expectFile(t, f, p.Name, c.final)
			} else if gone, err := f.Collected(p.Name); !gone || err != nil {
				t.Errorf("something is under the final name: %v", err)
			}
			if left := staged(t, f); len(left) != c.left {
				t.Errorf("staged: %v", left)
			}
			if c.want == Broken {
				return
			}
			if again, err := f.Recover(t.Context(), p); again != Settled || err != nil {
				t.Errorf("a second time: %v, %v", again, err)
			}
		})
	}
}

func TestRecoverLeavesAForeignFileAlone(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	p := prepared(t, f, report, "body").Publication
	write(t, f, p.Name, "theirs")
	var occupied *OccupiedError
	if got, err := f.Recover(t.Context(), p); got != 0 || !errors.As(err, &occupied) {
		t.Errorf("got %v, %v", got, err)
	}
	expectFile(t, f, p.Name, "theirs")
	expectFile(t, f, stagingDir+"/"+p.Staged, "body")
}

func TestRecoverReplacesOnlyOurPreviousBytes(t *testing.T) {
	t.Parallel()
	f := folderOf(t, func(c *Config) { c.OnRevision = Replace })
	old := publish(t, f, report, "old")
	p := prepared(t, f, Place{ID: "i", Ext: "txt", Revision: 2}, "new", old).Publication
	if got, err := f.Recover(t.Context(), p); got != Published || err != nil {
		t.Fatalf("got %v, %v", got, err)
	}
	expectFile(t, f, "i.txt", "new")
}
