package downloads

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

const owner = "ledger-1"

// folderOf opens a folder in a fresh place with the given changes to the defaults.
func folderOf(t testing.TB, change func(*Config)) *Folder {
	t.Helper()
	c := DefaultConfig()
	c.Dir = filepath.Join(t.TempDir(), "in", "downloads")
	c.MinFree = 0
	if change != nil {
		change(&c)
	}
	f, err := Open(c, Options{Owner: owner, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// finished stages a body and brings it as far as an intent.
func finished(t testing.TB, f *Folder, id, body string) *Staged {
	t.Helper()
	s, err := f.Stage(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Finish(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

// prepared also chooses the name.
func prepared(t testing.TB, f *Folder, p Place, body string, ours ...Held) Prepared {
	t.Helper()
	r, err := f.Prepare(context.Background(), p, finished(t, f, p.ID, body), ours...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// publish does all there is to a publication and returns what the ledger would hold.
func publish(t testing.TB, f *Folder, p Place, body string, ours ...Held) Held {
	t.Helper()
	r := prepared(t, f, p, body, ours...)
	if err := f.Publish(context.Background(), r.Publication); err != nil {
		t.Fatal(err)
	}
	return Held{r.Name, r.Size, r.SHA256}
}

func sum(body string) string {
	s := sha256.Sum256([]byte(body))
	return hex.EncodeToString(s[:])
}

func write(t testing.TB, f *Folder, name, body string) {
	t.Helper()
	path := f.FullPath(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
}

func expectFile(t testing.TB, f *Folder, name, body string) {
	t.Helper()
	got, err := os.ReadFile(f.FullPath(name))
	if err != nil || string(got) != body {
		t.Errorf("%s holds %q, %v; want %q", name, got, err, body)
	}
}

// staged lists what is in the staging folder.
func staged(t testing.TB, f *Folder) []string {
	t.Helper()
	entries, err := os.ReadDir(f.FullPath(stagingDir))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func itoa(n int) string { return strconv.Itoa(n) }

// umask reads the process's umask from the mode of a new file, since asking for it means changing it.
func umask() os.FileMode {
	dir, err := os.MkdirTemp("", "umask")
	if err != nil {
		return 0o022
	}
	defer os.RemoveAll(dir)
	file, err := os.OpenFile(filepath.Join(dir, "x"), os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return 0o022
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0o022
	}
	return 0o666 &^ info.Mode().Perm()
}
