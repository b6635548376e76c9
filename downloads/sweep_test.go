package downloads

import (
	"slices"
	"testing"
)

func TestSweepRemovesOnlyWhatNobodyClaims(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	announced, leftover := finished(t, f, "a", "body"), finished(t, f, "b", "body")
	write(t, f, stagingDir+"/c.AAAA.part", "half")
	write(t, f, stagingDir+"/not-one-of-ours", "what")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := Open(f.config, Options{Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inProgress, err := f.Stage("d")
	if err != nil {
		t.Fatal(err)
	}
	removed, err := f.Sweep(func(name string) bool { return name == announced.Name() })
	if removed != 3 || err != nil {
		t.Errorf("removed %d, %v; want 3", removed, err)
	}
	left, want := staged(t, f), []string{announced.Name(), inProgress.Name()}
	if slices.Sort(want); !slices.Equal(left, want) {
		t.Errorf("left %v, want %v; %s must go", left, want, leftover.Name())
	}
	if err := inProgress.Discard(); err != nil {
		t.Fatal(err)
	}
	if removed, err := f.Sweep(nil); removed != 1 || err != nil {
		t.Errorf("without claims: removed %d, %v", removed, err)
	}
}

func TestDiscardStagedTakesAwayOneFile(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	a, b := finished(t, f, "a", "body"), finished(t, f, "b", "body")
	for range 2 { // a missing one is no error
		if err := f.DiscardStaged(a.Name()); err != nil {
			t.Error(err)
		}
	}
	if left := staged(t, f); !slices.Equal(left, []string{b.Name()}) {
		t.Errorf("left: %v", left)
	}
}
