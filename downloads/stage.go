package downloads

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
)

const (
	partSuffix = ".part"
	edge       = 4 << 10  // bytes that Head and Tail keep
	flushStep  = 8 << 20  // bytes that are written out at a time before Finish
	hashAside  = 64 << 10 // bytes from which on hashing in a goroutine pays
)

// Staged is a file that is being written and has no final name yet. It is used by one goroutine at a time.
type Staged struct {
	folder  *Folder
	at      *mount
	file    *os.File // nil once finished or discarded
	mode    mode
	name    string
	limit   int64
	size    int64
	flushed int64 // up to here, writing to the disk has begun
	hash    hash.Cloner
	head    []byte
	tail    []byte // its last edge bytes are the file's
	left    int64  // room reserved and not yet written; guarded by folder.mu
	sum     string // set by Finish
}

// Stage begins a file for the report or job with this id, which will have downloads.mode. It fails with *NameError for an id
// that can't be part of a file name, and with ErrGone when the folder is not there.
func (f *Folder) Stage(id string) (*Staged, error) { return f.StageAs(id, "") }

// StageAs is Stage for a file with a mode of its own: octal, or Inherit; empty is downloads.mode.
func (f *Folder) StageAs(id, fileMode string) (*Staged, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	m, err := f.check()
	if err != nil {
		return nil, err
	}
	return f.stage(m, id, fileMode, int64(f.config.MaxSize))
}

func (f *Folder) stage(m *mount, id, fileMode string, limit int64) (*Staged, error) {
	mode, err := f.perm.fileMode(fileMode)
	if err != nil {
		return nil, err
	}
	name := id + "." + m.id + "." + rand.Text() + partSuffix
	f.mark(name, true)
	file, err := m.staging.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.initial())
	if err != nil {
		f.mark(name, false)
		return nil, fmt.Errorf("staging %s: %w", id, full(err))
	}
	return &Staged{
		folder: f, at: m, file: file, mode: mode, name: name, limit: limit, hash: sha256.New().(hash.Cloner),
	}, nil
}

// mark notes which staged files are in use, so that Sweep leaves them alone.
func (f *Folder) mark(name string, live bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if live {
		f.live[name] = struct{}{}
	} else {
		delete(f.live, name)
	}
}

// Write appends to the file and its hash. It fails with *TooLargeError, nothing of p written, when the file would
// exceed downloads.max_size, and with ErrNoRoom when the disk is full; then what was written stands, and writing may
// go on from Size once there is room.
func (s *Staged) Write(p []byte) (int, error) {
	if s.file == nil {
		return 0, fs.ErrClosed
	}
	if int64(len(p)) > s.limit-s.size {
		return 0, &TooLargeError{s.limit}
	}
	n, err := s.append(p)
	s.took(p[:n])
	if err != nil {
		return n, fmt.Errorf("writing %s: %w", s.name, full(err))
	}
	s.flush()
	return n, nil
}

// flush has the disk begin now with what Finish waits for: an fsync of gigabytes at once would also stop the ledger's.
// Errors are left to that fsync, which is told of them.
func (s *Staged) flush() {
	if n := s.size - s.flushed; n >= flushStep {
		_ = s.folder.sys.flush(s.file, s.flushed, n)
		s.flushed = s.size
	}
}

// append writes p and hashes what of it the file took. A large p is hashed while the kernel copies it, which takes about
// as long; should the file take less of it, that hash is dropped.
func (s *Staged) append(p []byte) (int, error) {
	ahead := make(chan hash.Cloner, 1)
	if len(p) >= hashAside {
		copied, err := s.hash.Clone()
		if err != nil {
			return 0, err
		}
		go func() {
			_, _ = copied.Write(p) // never fails
			ahead <- copied
		}()
	} else {
		ahead <- nil
	}
	n, err := s.folder.sys.write(s.file, p)
	if whole := <-ahead; whole != nil && n == len(p) {
		s.hash = whole
	} else {
		_, _ = s.hash.Write(p[:n]) // never fails
	}
	return n, err
}

// took accounts for bytes that are in the file.
func (s *Staged) took(p []byte) {
	s.size += int64(len(p))
	if missing := edge - len(s.head); missing > 0 {
		s.head = append(s.head, p[:min(missing, len(p))]...)
	}
	if len(p) >= edge {
		s.tail = append(s.tail[:0], p[len(p)-edge:]...)
	} else {
		if len(s.tail)+len(p) > 4*edge {
			s.tail = append(s.tail[:0], s.tail[len(s.tail)-edge:]...)
		}
		s.tail = append(s.tail, p...)
	}
	s.giveBack(int64(len(p)))
}

// Reset empties the file, for a server that ignored Range and sends the whole body again.
func (s *Staged) Reset() error {
	if s.file == nil {
		return fs.ErrClosed
	}
	if err := s.file.Truncate(0); err != nil {
		return err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	s.hash.Reset()
	s.size, s.flushed, s.head, s.tail = 0, 0, s.head[:0], s.tail[:0]
	return nil
}

// Name is the file's name in the staging folder, for the intent.
func (s *Staged) Name() string { return s.name }

// Size is the number of bytes written.
func (s *Staged) Size() int64 { return s.size }

// Sum is the SHA-256 of the bytes written so far, in lower-case hex.
func (s *Staged) Sum() string { return hex.EncodeToString(s.hash.Sum(nil)) }

// Head returns the first 4 KiB of the file, or less; valid until Reset.
func (s *Staged) Head() []byte { return s.head }

// Tail returns the last 4 KiB of the file, or less; valid until the next Write.
func (s *Staged) Tail() []byte { return s.tail[max(0, len(s.tail)-edge):] }

// Finish sets mode and group, puts the file and its folder entry on disk and returns the SHA-256. From then on an
// intent may name it. After an error other than ctx's the file is thrown away: once fsync has failed, the kernel may
// have dropped the pages, and a second fsync would report success for what is lost.
func (s *Staged) Finish(ctx context.Context) (string, error) {
	if s.file == nil {
		return "", fs.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	err := s.settle()
	if err == nil {
		s.sum = s.Sum()
		return s.sum, nil
	}
	return "", errors.Join(fmt.Errorf("finishing %s: %w", s.name, full(err)), s.Discard())
}

func (s *Staged) settle() error {
	if err := s.folder.perm.setFile(s.file, s.mode); err != nil {
		return err
	}
	if err := s.folder.sys.sync(s.file); err != nil {
		return err
	}
	file := s.file
	s.file = nil
	if err := file.Close(); err != nil { // network file systems report late writes here
		return err
	}
	return s.folder.syncPath(s.at.staging, ".")
}

// Discard removes the file. It may be called at any time and again, also after the file was published; but never
// while an intent that is not settled names the file.
func (s *Staged) Discard() error {
	if s.file != nil {
		_ = s.file.Close() // nobody needs what it holds
		s.file = nil
	}
	s.giveBack(math.MaxInt64)
	err := ignoreMissing(s.at.staging.Remove(s.name))
	s.folder.mark(s.name, false)
	return err
}
