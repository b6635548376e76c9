package downloads

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Bytes tells one content from another.
type Bytes struct {
	Size   int64
	SHA256 string // lower-case hex
}

// Publication is all that Publish, and Recover after a crash, need to know; the ledger's intent holds it.
type Publication struct {
	Staged   string // name in the staging folder
	Name     string // final name, relative, with forward slashes
	Size     int64
	SHA256   string
	Replaces bool  // the final name is held by an earlier revision of ours
	Previous Bytes // with Replaces: what we published there before
}

// Held is a file that we published before, by the record in the ledger.
type Held struct {
	Name   string
	Size   int64
	SHA256 string
}

// Prepared is a Publication with what was found on the way to its name.
type Prepared struct {
	Publication
	Revision int      // of the name, from 1; with on_revision replace it says nothing about the report
	Same     bool     // Name holds these very bytes already: record it and discard the staged file, nothing to publish
	Foreign  []string // names that were passed over because files that are not ours hold them
}

// maxPassed bounds how many names are tried for one file.
const maxPassed = 1000

// Prepare chooses the final name of a finished file: the first free one from p.Revision on, or one that holds the same
// bytes already. With on_revision replace a name that still holds the bytes on record in ours is taken as Replaces.
// Nothing changes on the disk. ours are the files on record for this report. It fails with *NameError, with ErrGone,
// and with *OccupiedError when a thousand names are taken.
func (f *Folder) Prepare(ctx context.Context, p Place, s *Staged, ours ...Held) (Prepared, error) {
	if s.sum == "" {
		return Prepared{}, fmt.Errorf("%s: not finished", s.name)
	}
	return f.PrepareAgain(ctx, p, Publication{Staged: s.name, Size: s.size, SHA256: s.sum}, ours...)
}

// PrepareAgain is Prepare for a staged file known by its publication, such as one whose name was taken by somebody else
// between the intent and the rename. Of was, only Staged, Size and SHA256 count.
func (f *Folder) PrepareAgain(ctx context.Context, p Place, was Publication, ours ...Held) (Prepared, error) {
	m, err := f.check()
	if err != nil {
		return Prepared{}, err
	}
	p.Revision = max(1, p.Revision)
	if f.config.OnRevision == Replace {
		p.Revision = 1
	}
	result := Prepared{Publication: Publication{Staged: was.Staged, Size: was.Size, SHA256: was.SHA256}}
	for last := p.Revision + maxPassed; p.Revision < last; p.Revision++ {
		name, err := f.layout.name(p)
		if err != nil {
			return Prepared{}, err
		}
		result.Name, result.Revision = name, p.Revision
		done, err := f.consider(ctx, m, &result, ours)
		if done || err != nil {
			return result, err
		}
	}
	return Prepared{}, &OccupiedError{result.Name}
}

// consider decides about one name.
func (f *Folder) consider(ctx context.Context, m *mount, r *Prepared, ours []Held) (done bool, err error) {
	verdict, err := compare(ctx, m.root, r.Name, Bytes{r.Size, r.SHA256}, nil)
	switch {
	case err != nil:
		return false, err
	case verdict == Collected:
		return true, nil
	case verdict == Sound:
		r.Same = true
		return true, nil
	}
	for _, held := range ours {
		if held.Name != r.Name {
			continue
		}
		known := Bytes{held.Size, held.SHA256}
		verdict, err := compare(ctx, m.root, r.Name, known, nil)
		if err != nil {
			return false, err
		}
		if verdict == Sound {
			r.Replaces = f.config.OnRevision == Replace
			if r.Replaces {
				r.Previous = known
			}
			return r.Replaces, nil
		}
	}
	if _, err := m.root.Lstat(r.Name); errors.Is(err, fs.ErrNotExist) { // collected in this moment
		return true, nil
	}
	r.Foreign = append(r.Foreign, r.Name)
	return false, nil
}
