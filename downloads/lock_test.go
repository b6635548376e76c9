package downloads

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A copy of the ledger has the same id, so that the marker lets its agent in: the lock does not.
func TestASecondAgentWithACopyOfTheLedgerIsKeptOut(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.Dir = filepath.Join(t.TempDir(), "reports")
	first, err := Open(c, Options{Owner: "copied", Create: true, Lock: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(c, Options{Owner: "copied", Lock: true}); !errors.Is(err, ErrInUse) {
		t.Fatalf("a second one got %v", err)
	}
	if _, err := Probe(t.Context(), c, "copied"); err != nil {
		t.Errorf("a look beside the agent: %v", err)
	}
	// The same folder opened again keeps its lock.
	staging := filepath.Join(c.Dir, stagingDir)
	if err := os.Rename(staging, staging+".old"); err != nil {
		t.Fatal(err)
	}
	if err := first.Check(); !errors.Is(err, ErrGone) {
		t.Fatalf("without its staging folder: %v", err)
	}
	if err := first.Reopen(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(c, Options{Owner: "copied", Lock: true}); !errors.Is(err, ErrInUse) {
		t.Fatalf("after the folder was opened again a second one got %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Open(c, Options{Owner: "copied", Lock: true})
	if err != nil {
		t.Fatalf("after the first had ended: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

// An intent from another folder proves nothing here: the same path may lead to a new volume after a restart.
func TestRecoverKnowsAnotherFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := DefaultConfig()
	c.Dir, c.MinFree = filepath.Join(dir, "one"), 0
	one, err := Open(c, Options{Owner: "me", Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	s, err := one.Stage("report")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("the bytes")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := one.Prepare(t.Context(), Place{ID: "report", Ext: "txt", Revision: 1}, s)
	if err != nil {
		t.Fatal(err)
	}
	c.Dir = filepath.Join(dir, "two")
	two, err := Open(c, Options{Owner: "me", Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	if got, err := two.Recover(t.Context(), p.Publication); err != nil || got != Broken {
		t.Errorf("in another folder: %v, %v; want broken", got, err)
	}
	if err := os.WriteFile(filepath.Join(c.Dir, "report.txt"), []byte("the bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := two.Recover(t.Context(), p.Publication); err != nil || got != Settled {
		t.Errorf("with the right bytes under the final name: %v, %v; want settled", got, err)
	}
	if got, err := one.Recover(t.Context(), p.Publication); err != nil || got != Published {
		t.Errorf("in its own folder: %v, %v; want published", got, err)
	}
}
