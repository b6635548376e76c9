package downloads

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Verdict is what is found under a name.
type Verdict int

// The verdicts.
const (
	Sound     Verdict = iota + 1 // a file with the bytes on record
	Damaged                      // something else
	Collected                    // nothing: an importer took it
)

// String names the verdict.
func (v Verdict) String() string {
	switch v {
	case Sound:
		return "sound"
	case Damaged:
		return "damaged"
	case Collected:
		return "collected"
	}
	return "unknown"
}

// Verify compares a published file with its record, reading it only if the size fits. progress, which may be nil, is
// told how many more bytes were read. ErrGone, rather than Collected, when the folder is not there.
func (f *Folder) Verify(ctx context.Context, name string, size int64, sha string, progress func(n int64)) (Verdict, error) {
	if err := checkName(name); err != nil {
		return 0, err
	}
	m, err := f.check()
	if err != nil {
		return 0, err
	}
	return compare(ctx, m.root, name, Bytes{size, sha}, progress)
}

// Collected reports whether nothing is under the name any more. ErrGone when the folder is not there.
func (f *Folder) Collected(name string) (bool, error) {
	if err := checkName(name); err != nil {
		return false, err
	}
	m, err := f.check()
	if err != nil {
		return false, err
	}
	_, err = m.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// compare reads what is under a name. Whatever is no regular file is Damaged.
func compare(ctx context.Context, root *os.Root, name string, want Bytes, progress func(n int64)) (Verdict, error) {
	file, info, err := openRegular(root, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Collected, nil
	case errors.Is(err, errNotRegular):
		return Damaged, nil
	case err != nil:
		return 0, err
	}
	defer file.Close()
	if info.Size() != want.Size {
		return Damaged, nil
	}
	sum, err := sumOf(ctx, file, progress)
	if err != nil {
		return 0, err
	}
	if !strings.EqualFold(sum, want.SHA256) {
		return Damaged, nil
	}
	return Sound, nil
}

func sumOf(ctx context.Context, file io.Reader, progress func(n int64)) (string, error) {
	hash := sha256.New()
	buffer := make([]byte, 256<<10)
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := file.Read(buffer)
		_, _ = hash.Write(buffer[:n]) // never fails
		if n > 0 && progress != nil {
			progress(int64(n))
		}
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(hash.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

var errNotRegular = errors.New("not a regular file")

// openRegular opens a file for reading without following a symbolic link or waiting for a pipe's other end.
func openRegular(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, nil, errNotRegular
	}
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !os.SameFile(before, info) {
		err = errNotRegular
	}
	if err != nil {
		_ = file.Close() // only read from
		return nil, nil, err
	}
	return file, info, nil
}
