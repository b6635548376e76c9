package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

// Lock is the right to open a ledger. The kernel gives it back when the process ends, however it ends.
type Lock struct {
	file *flock.Flock
}

// Acquire takes <path>.lock in one try, without waiting, and writes this process' id into it. The folder of path is made
// (mode 0700) when it is missing. It fails with *OwnedError while anyone holds the lock.
func Acquire(path string) (*Lock, error) {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	name := path + ".lock"
	file := flock.New(name, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	ok, err := file.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	if !ok {
		return nil, &OwnedError{Lock: name, PID: readPID(name)}
	}
	if err := os.WriteFile(name, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		_ = file.Unlock()
		return nil, fmt.Errorf("lock: %w", err)
	}
	return &Lock{file}, nil
}

// Release gives the lock back. The file stays: removing it would let two processes hold locks on two files of one name.
func (l *Lock) Release() error {
	if !l.file.Locked() {
		return nil
	}
	// A process id that outlives its lock would accuse whoever has that number next.
	wipe := os.Truncate(l.file.Path(), 0)
	if err := l.file.Unlock(); err != nil {
		return fmt.Errorf("unlock %s: %w", l.file.Path(), err)
	}
	return wipe
}

func readPID(name string) int {
	data, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}
