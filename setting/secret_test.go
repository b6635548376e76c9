package setting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sesame = "open-sesame-4711"

// put replaces a file the way a rotation does: another inode under the same name.
func put(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func TestASecretNeverShowsItself(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	put(t, file, sesame)
	fromFile, err := SecretFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := SecretsFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Secret{"fixed": NewSecret(sesame), "file": fromFile, "line": lines[0]} {
		var out bytes.Buffer
		holder := struct {
			S    Secret
			P    *Secret
			List []Secret
		}{s, &s, []Secret{s}}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%20s"} {
			fmt.Fprintf(&out, verb, s)
			fmt.Fprintf(&out, verb, holder)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "secret", s, "holder", holder)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "secret", s, "holder", holder)
		if err := json.NewEncoder(&out).Encode(holder); err != nil {
			t.Fatal(err)
		}
		hex := fmt.Sprintf("%x", sesame)
		for _, shape := range []string{sesame, hex, strings.ToUpper(hex)} {
			if strings.Contains(out.String(), shape) {
				t.Errorf("%s: shown in %s", name, &out)
			}
		}
		if s.Reveal() != sesame || !s.IsSet() || !strings.Contains(out.String(), Hidden) {
			t.Errorf("%s: got %q", name, s.Reveal())
		}
	}
}

func TestNoSecretIsUnset(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]Secret{"zero": {}, "empty": NewSecret("")} {
		if s.IsSet() || s.Reveal() != "" || s.String() != "" || s.Origin() != "" || s.Check() != nil {
			t.Errorf("%s: %q", name, s.Reveal())
		}
	}
}

func TestSecretFollowsItsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	put(t, file, " one\n")
	s, err := SecretFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	copied := s
	for _, step := range []struct {
		change func()
		want   string
		fault  bool
	}{
		{func() {}, "one", false},
		{func() { put(t, file, "two") }, "two", false},
		{func() { put(t, file, "\n") }, "two", true},
		{func() { put(t, file, "six") }, "six", false},
		{func() { _ = os.Remove(file) }, "six", true},
		{func() { put(t, file, "ten") }, "ten", false},
	} {
		step.change()
		if got := s.Reveal(); got != step.want || copied.Reveal() != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
		if err := s.Check(); (err != nil) != step.fault {
			t.Errorf("at %q: %v", step.want, err)
		}
	}
	if s.Origin() != file {
		t.Errorf("origin %q", s.Origin())
	}
}

func TestListOfSecretsFollowsItsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secrets")
	put(t, file, "one\n\n  two\r\n")
	list, err := SecretsFromFile(file)
	if err != nil || len(list) != 2 || list[1].Origin() != file {
		t.Fatal(list, err)
	}
	list = append(list, Secret{}, NewSecret("fixed"))
	for _, step := range []struct {
		change     func()
		all, lines []string
		fault      bool
	}{
		{func() {}, []string{"one", "two", "fixed"}, []string{"one", "two"}, false},
		{func() { put(t, file, "uno\ndos\ntres") }, []string{"uno", "dos", "tres", "fixed"}, []string{"uno", "dos"}, false},
		{func() { put(t, file, "eins") }, []string{"eins", "fixed"}, []string{"eins", "dos"}, false},
		{func() { put(t, file, " \n") }, []string{"eins", "fixed"}, []string{"eins", "dos"}, true},
		{func() { _ = os.Remove(file) }, []string{"eins", "fixed"}, []string{"eins", "dos"}, true},
	} {
		step.change()
		if got := RevealAll(list); !slices.Equal(got, step.all) {
			t.Errorf("all: got %q, want %q", got, step.all)
		}
		if got := []string{list[0].Reveal(), list[1].Reveal()}; !slices.Equal(got, step.lines) {
			t.Errorf("lines: got %q, want %q", got, step.lines)
		}
		if err := list[0].Check(); (err != nil) != step.fault {
			t.Errorf("at %q: %v", step.all, err)
		}
	}
}

func TestFilesWithoutSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "empty"), " \n\t")
	for _, name := range []string{"empty", "none", "."} {
		if s, err := SecretFromFile(filepath.Join(dir, name)); err == nil || s.IsSet() {
			t.Errorf("%s: taken", name)
		}
		if list, err := SecretsFromFile(filepath.Join(dir, name)); err == nil || list != nil {
			t.Errorf("%s: taken as a list", name)
		}
	}
}
