package downloads

import (
	"os"
)

// system is the part of the kernel's service that can fail in ways a test must be able to cause, and whose order is
// the guarantee of this package.
type system struct {
	write  func(*os.File, []byte) (int, error)
	sync   func(*os.File) error
	flush  func(file *os.File, from, n int64) error // begins to write out a range, waits for nothing
	rename func(from *os.File, oldName string, to *os.File, newName string, replace bool) error
	room   func(*os.File) (int64, error) // bytes free to this user on the file system of the folder
}

func realSystem() system {
	return system{
		write:  (*os.File).Write,
		sync:   (*os.File).Sync,
		flush:  flush,
		rename: rename,
		room:   room,
	}
}
