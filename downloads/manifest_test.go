package downloads

import (
	"errors"
	"os"
	"testing"
)

func TestManifestsReplaceOnlyEarlierOnesAboutTheSame(t *testing.T) {
	t.Parallel()
	const data = `{"kind":"report","id":"i","state":"delivered"}`
	for name, c := range map[string]struct {
		there    string
		occupied bool
	}{
		"none yet":              {"", false},
		"an earlier one":        {`{"id": "i", "kind": "report", "state": "partial"}`, false},
		"about another":         {`{"kind":"report","id":"j"}`, true},
		"of another kind":       {`{"kind":"job","id":"i"}`, true},
		"no JSON":               {"dear diary", true},
		"JSON of somebody else": {`{"name":"i"}`, true},
		"cut":                   {`{"kind":"report","id":"i"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folderOf(t, nil)
			if c.there != "" {
				write(t, f, "i.txt.receipt.json", c.there)
			}
			err := f.WriteManifest("i.txt", []byte(data), "")
			var occupied *OccupiedError
			if errors.As(err, &occupied) != c.occupied || !c.occupied && err != nil {
				t.Fatalf("got %v", err)
			}
			if c.occupied {
				expectFile(t, f, "i.txt.receipt.json", c.there)
			} else {
				expectFile(t, f, "i.txt.receipt.json", data)
			}
			if left := staged(t, f); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestAManifestNeedsNoFileBesideIt(t *testing.T) {
	t.Parallel()
	f := folderOf(t, func(c *Config) { c.MaxSize = 1 }) // which is about reports
	if err := f.WriteManifest("acme/i.receipt.json", []byte(`{"id":"i"}`), ""); err != nil {
		t.Fatal(err)
	}
	expectFile(t, f, "acme/i.receipt.json", `{"id":"i"}`)
	if info, err := os.Stat(f.FullPath("acme/i.receipt.json")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestAManifestNeverTakesTheNameOfAFile(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	held := publish(t, f, report, "body")
	if err := f.WriteManifest(held.Name, []byte(`{"id":"i"}`), ""); err != nil {
		t.Fatal(err)
	}
	expectFile(t, f, held.Name, "body")
	for _, bad := range []string{"../i", "/i", ".recibo/i"} {
		var refused *NameError
		if err := f.WriteManifest(bad, []byte("{}"), ""); !errors.As(err, &refused) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
