package downloads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"
)

const manifestSuffix = ".receipt.json"

// ManifestName is the name of the manifest beside a file.
func ManifestName(name string) string {
	return strings.TrimSuffix(name, manifestSuffix) + manifestSuffix
}

// WriteManifest puts data, a JSON object, on disk as <name>.receipt.json (the suffix is added if it is not there yet),
// with the group of files and downloads.mode, or fileMode where that is not empty. Watchers see whole manifests only. An earlier manifest about the same kind and id
// is replaced; anything else under that name is left alone, with *OccupiedError.
func (f *Folder) WriteManifest(name string, data []byte, fileMode string) error {
	name = ManifestName(name)
	if err := checkName(name); err != nil {
		return err
	}
	m, err := f.check()
	if err != nil {
		return err
	}
	s, err := f.stage(m, "manifest", fileMode, math.MaxInt64)
	if err != nil {
		return err
	}
	err = f.putManifest(m, s, name, data)
	if err != nil {
		err = fmt.Errorf("manifest %s: %w", name, err)
	}
	return errors.Join(err, s.Discard())
}

func (f *Folder) putManifest(m *mount, s *Staged, name string, data []byte) error {
	if _, err := s.Write(data); err != nil {
		return err
	}
	if _, err := s.Finish(context.Background()); err != nil { // small, and its caller has no use for half of it
		return err
	}
	staging, err := m.staging.Open(".")
	if err != nil {
		return err
	}
	defer staging.Close()
	target, err := f.enter(m, path.Dir(name), true)
	if err != nil {
		return err
	}
	defer target.Close()
	replace, err := earlierManifest(m.root, name, data)
	if err != nil {
		return err
	}
	if err := f.sys.rename(staging, s.name, target, path.Base(name), replace); errors.Is(err, fs.ErrExist) {
		return &OccupiedError{name}
	} else if err != nil {
		return full(err)
	}
	return errors.Join(f.syncFolder(target), f.syncFolder(staging))
}

// subject is what a manifest is about.
type subject struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

// earlierManifest reports whether a manifest about the same subject is there, or *OccupiedError for anything else.
func earlierManifest(root *os.Root, name string, data []byte) (bool, error) {
	file, _, err := openRegular(root, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, errNotRegular):
		return false, &OccupiedError{name}
	case err != nil:
		return false, err
	}
	defer file.Close()
	old, err := io.ReadAll(io.LimitReader(file, 16<<20))
	if err != nil {
		return false, err
	}
	var before, now subject
	if json.Unmarshal(old, &before) != nil || json.Unmarshal(data, &now) != nil || before != now {
		return false, &OccupiedError{name}
	}
	return true, nil
}
