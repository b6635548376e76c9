package store

import (
	"errors"
	"os"
	"testing"
)

// What is written into a file that has lost its name is gone with the process: nothing may be acknowledged from it.
func TestALedgerWithoutItsNameTakesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	admit := func(id string) error {
		_, err := l.Admit(t.Context(), []Admission{{Feed: Reports, EventID: id, EventName: "report.finished", Receipt: Key{Report, "r"}}})
		return err
	}
	if err := admit("e-1"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(l.path, l.path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := admit("e-2"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without its name: %v, want %v", err, ErrUnavailable)
	}
	if err := os.Rename(l.path+".away", l.path); err != nil {
		t.Fatal(err)
	}
	for admit("e-2") != nil { // the committer opens it again by itself; the test's own time limit ends this
		if t.Context().Err() != nil {
			t.Fatal("it never came back")
		}
	}
	if _, err := l.Event(t.Context(), Reports, "e-1"); err != nil {
		t.Errorf("what was there before: %v", err)
	}
}
