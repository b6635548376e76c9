package downloads

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Preview says whether the folder of c could be made or adopted by an owner, and changes nothing. It returns the room that is
// free. Its errors are those of Open. An agent that has no ledger yet is an owner without a name.
func Preview(c Config, owner string) (free int64, err error) {
	if err := c.Validate(); err != nil {
		return 0, err
	}
	f, err := newFolder(c, Options{Owner: cmp.Or(owner, "nobody yet")})
	if err != nil {
		return 0, err
	}
	where, err := nearest(f.dir)
	if err != nil {
		return 0, f.problem("can't be looked at", err)
	}
	folder, err := os.Open(where)
	if err != nil {
		return 0, f.problem("can't be opened", err)
	}
	defer folder.Close()
	if err := unix.Access(where, unix.W_OK|unix.X_OK); err != nil {
		return 0, f.problem(where+" can't be written", &fs.PathError{Op: "access", Path: where, Err: err})
	}
	if where == f.dir {
		root, err := os.OpenRoot(where)
		if err != nil {
			return 0, f.problem("can't be opened", err)
		}
		defer root.Close()
		marked, err := readOwner(root)
		if err != nil {
			return 0, f.problem("its marker can't be read", err)
		}
		if marked != "" && marked != owner {
			return 0, &ForeignOwnerError{f.dir, marked}
		}
	}
	return f.sys.room(folder)
}

// nearest returns dir, or the closest folder above it that is there.
func nearest(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return "", fmt.Errorf("%s is not a folder", dir)
		case err == nil:
			return dir, nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) || dir == filepath.Dir(dir):
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}
