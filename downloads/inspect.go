package downloads

import (
	"context"
	"errors"
	"io/fs"
	"strings"
)

// Names calls each for every regular file in the folder and its folders, by its relative name with forward slashes. What
// begins with a dot, our own corner among it, is left out, and symbolic links are not followed. ErrGone when the folder
// is not there.
func (f *Folder) Names(ctx context.Context, each func(name string) error) error {
	m, err := f.check()
	if err != nil {
		return err
	}
	return fs.WalkDir(m.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case name != "." && strings.HasPrefix(entry.Name(), ".") && entry.IsDir():
			return fs.SkipDir
		case strings.HasPrefix(entry.Name(), "."), !entry.Type().IsRegular():
			return nil
		}
		return each(name)
	})
}

// Bytes reads the file under a name, whatever it holds. fs.ErrNotExist when there is none.
func (f *Folder) Bytes(ctx context.Context, name string) (Bytes, error) {
	if err := checkName(name); err != nil {
		return Bytes{}, err
	}
	m, err := f.check()
	if err != nil {
		return Bytes{}, err
	}
	file, info, err := openRegular(m.root, name)
	if err != nil {
		return Bytes{}, err
	}
	defer file.Close()
	sum, err := sumOf(ctx, file, nil)
	return Bytes{info.Size(), sum}, err
}

// Probe tries with a small file what publishing does in the folder of c, which must be there and belong to owner: rights,
// mode and group, sync, and rename. It changes nothing else, works beside a running agent, and returns the room that is
// free. Its errors are those of Open.
func Probe(ctx context.Context, c Config, owner string) (free int64, err error) {
	f, err := Open(c, Options{Owner: owner})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	s, err := f.Stage("check")
	if err != nil {
		return 0, f.problem("a file can't be created in it", err)
	}
	defer func() { err = errors.Join(err, s.Discard()) }()
	if _, err := s.Write([]byte("recibo check\n")); err != nil {
		return 0, f.problem("a file in it can't be written", err)
	}
	if _, err := s.Finish(ctx); err != nil {
		return 0, f.problem("a file in it can't be synced", err)
	}
	m, err := f.check()
	if err != nil {
		return 0, err
	}
	renamed := s.Name() + ".renamed"
	if err := m.staging.Rename(s.Name(), renamed); err != nil {
		return 0, f.problem("a file in it can't be renamed", err)
	}
	if err := m.staging.Rename(renamed, s.Name()); err != nil {
		return 0, f.problem("a file in it can't be renamed", err)
	}
	return f.Room()
}
