package downloads

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestVerifyTellsSoundDamagedAndCollected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(path string) error
		want   Verdict
	}{
		"untouched": {func(string) error { return nil }, Sound},
		"changed":   {func(path string) error { return os.WriteFile(path, []byte("b0dy"), 0o644) }, Damaged},
		"cut":       {func(path string) error { return os.Truncate(path, 3) }, Damaged},
		"longer":    {func(path string) error { return os.Truncate(path, 5) }, Damaged},
		"collected": {os.Remove, Collected},
		"a folder":  {func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) }, Damaged},
		"a pipe":    {func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o644)) }, Damaged},
		"a link to the same bytes": {func(path string) error {
			return errors.Join(os.Rename(path, path+"2"), os.Symlink("i.txt2", path))
		}, Damaged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folderOf(t, nil)
			held := publish(t, f, report, "body")
			if err := c.change(f.FullPath(held.Name)); err != nil {
				t.Fatal(err)
			}
			got, err := f.Verify(t.Context(), held.Name, held.Size, strings.ToUpper(held.SHA256), nil)
			if got != c.want || err != nil {
				t.Errorf("got %v, %v; want %v", got, err, c.want)
			}
			if gone, err := f.Collected(held.Name); gone != (c.want == Collected) || err != nil {
				t.Errorf("Collected: %v, %v", gone, err)
			}
		})
	}
}

func TestVerifyTellsItsProgressAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	held := publish(t, f, report, strings.Repeat("x", 1<<20))
	var read int64
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := f.Verify(ctx, held.Name, held.Size, held.SHA256, func(n int64) { read += n }); err != nil || read != held.Size {
		t.Errorf("read %d of %d, %v", read, held.Size, err)
	}
	read = 0
	_, err := f.Verify(ctx, held.Name, held.Size, held.SHA256, func(n int64) { read += n; cancel() })
	if !errors.Is(err, context.Canceled) || read == 0 || read == held.Size {
		t.Errorf("read %d of %d, %v", read, held.Size, err)
	}
}
