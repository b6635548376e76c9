package downloads

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// recorded makes a folder note the calls that put things on disk, by names relative to the folder.
func recorded(f *Folder) *[]string {
	steps := &[]string{}
	name := func(file *os.File) string {
		path, err := os.Readlink("/proc/self/fd/" + itoa(int(file.Fd())))
		if err != nil {
			return err.Error()
		}
		rel, err := filepath.Rel(f.Dir(), path)
		if err != nil {
			return err.Error()
		}
		if strings.HasSuffix(rel, partSuffix) {
			return "the file"
		}
		return rel
	}
	f.sys.sync = func(file *os.File) error {
		*steps = append(*steps, "sync "+name(file))
		return file.Sync()
	}
	f.sys.rename = func(from *os.File, oldName string, to *os.File, newName string, replace bool) error {
		*steps = append(*steps, "rename into "+name(to))
		return rename(from, oldName, to, newName, replace)
	}
	return steps
}

func TestEverythingIsSyncedInTheOrderThatSurvivesAPowerCut(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("needs /proc")
	}
	f := folderOf(t, func(c *Config) { c.Layout = "{yyyy}/{tenant}/{id}.{ext}" })
	steps := recorded(f)
	expect := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(*steps, want) {
			t.Errorf("%s:\n got %q\nwant %q", what, *steps, want)
		}
		*steps = nil
	}

	s := finished(t, f, "i", "body")
	expect("Finish", "sync the file", "sync .recibo/staging")

	p, err := f.Prepare(t.Context(), report, s)
	if err != nil {
		t.Fatal(err)
	}
	expect("Prepare")

	if err := f.Publish(t.Context(), p.Publication); err != nil {
		t.Fatal(err)
	}
	expect("Publish", "sync .", "sync _", "rename into _/_", "sync _/_", "sync .recibo/staging")

	if _, err := f.Recover(t.Context(), p.Publication); err != nil {
		t.Fatal(err)
	}
	expect("Recover", "sync .", "sync _", "sync _/_", "sync .recibo/staging")

	if err := f.WriteManifest(p.Name, []byte(`{"id":"i"}`), ""); err != nil {
		t.Fatal(err)
	}
	expect("WriteManifest", "sync the file", "sync .recibo/staging", "sync .", "sync _", "rename into _/_", "sync _/_", "sync .recibo/staging")
}
