package store

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A process that is killed at any instant leaves every admission that it acknowledged, together with the work that the
// admission stands for.
func TestWhatWasAcknowledgedSurvivesAKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "recibo.db")
	for round := range 3 {
		var acknowledged []string
		child := exec.Command(os.Args[0], path)
		child.Env = append(os.Environ(), childVariable+"=admit")
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		l := lines(out)
		for l.Scan() {
			acknowledged = append(acknowledged, l.Text())
			if len(acknowledged) == 50+30*round {
				_ = child.Process.Kill()
			}
		}
		_ = child.Wait()
		if len(acknowledged) < 50 {
			t.Fatalf("the child says %q", acknowledged)
		}
		if strings.Count(acknowledged[len(acknowledged)-1], "-") != 1 {
			acknowledged = acknowledged[:len(acknowledged)-1] // a line cut short
		}
		if err := Check(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range acknowledged {
			e, err := s.Event(t.Context(), Reports, id)
			if err != nil {
				t.Fatalf("%s was acknowledged: %v", id, err)
			}
			r, err := s.Get(t.Context(), e.Receipt)
			if err != nil || r.Generation == 0 || r.Due.IsZero() {
				t.Fatalf("%s: receipt %+v, %v", id, r, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
