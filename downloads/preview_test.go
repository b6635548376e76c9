package downloads

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A look before the first run meets what the first run would meet, and makes nothing.
func TestPreview(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := DefaultConfig()
	c.Dir = filepath.Join(dir, "a", "b")
	if free, err := Preview(c, ""); err != nil || free <= 0 {
		t.Errorf("a folder that can be made: %d bytes free, %v", free, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("a look made %v, %v", left, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var problem *Error
	if _, err := Preview(c, ""); !errors.As(err, &problem) {
		t.Errorf("a file where a folder has to be: %v", err)
	}
	c.Dir = filepath.Join(dir, "theirs")
	f, err := Open(c, Options{Owner: "another", Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var foreign *ForeignOwnerError
	if _, err := Preview(c, ""); !errors.As(err, &foreign) || foreign.Owner != "another" {
		t.Errorf("a folder of another ledger: %v", err)
	}
	if free, err := Preview(c, "another"); err != nil || free <= 0 {
		t.Errorf("a folder that its owner comes back to: %d bytes free, %v", free, err)
	}
	c.Dir, c.Group = filepath.Join(dir, "ours"), "no-such-group-here"
	if _, err := Preview(c, ""); err == nil {
		t.Error("a group that is not there passed")
	}
}
