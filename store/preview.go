package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Preview says whether a ledger could be made at path, and changes nothing.
func Preview(path string) error {
	dir := filepath.Dir(path)
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return fmt.Errorf("%s can't hold a ledger: %s is not a folder", path, dir)
		case err == nil:
			if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
				return fmt.Errorf("%s can't be made: %s can't be written by uid %d: %w", path, dir, os.Getuid(), err)
			}
			return refuseNetwork(dir)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) || dir == filepath.Dir(dir):
			return err
		}
		dir = filepath.Dir(dir)
	}
}
