// Package downloads keeps the local folder that reports arrive in. It guarantees that a file appears under its final
// name only complete, checked and on disk, with its mode and group, and that a file which is not ours is never
// overwritten: a body is staged on the same file system and hashed while it is written, synced, renamed without
// replacing, and every folder that is new or changed is synced.
//
// Nothing is written, and nothing is concluded from a missing file, unless the folder is still the one that was opened
// and carries our marker: an unmounted share looks like an empty folder.
package downloads

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The folder's own corner. Names of files never start with a dot.
const (
	ownFolder  = ".recibo"
	stagingDir = ownFolder + "/staging"
	ownerFile  = ownFolder + "/owner"
	idFile     = ownFolder + "/id"
	lockFile   = ownFolder + "/lock"
)

// Options of Open.
type Options struct {
	Owner    string           // instance id of the ledger; one line, not empty
	TakeOver bool             // take the folder from another ledger
	Create   bool             // make the folder if it is missing, adopt it if it carries no marker
	Lock     bool             // keep a second process with a copy of the same ledger out; ErrInUse when there is one
	Log      *slog.Logger     // nil: silent
	Now      func() time.Time // nil: time.Now
}

// Folder is the open download folder. Its methods may be called concurrently.
type Folder struct {
	config Config
	dir    string // absolute
	owner  string
	layout layout
	perm   permission
	log    *slog.Logger
	now    func() time.Time
	sys    system
	syncs  syncs

	lock     bool
	mu       sync.Mutex
	at       *mount // nil once closed
	reserved int64  // bytes promised by Reserve and not yet given back or written
	live     map[string]struct{}
	told     sync.Once // that the file system can't sync folders
}

// mount is the folder as it was opened. os.Root follows the inode, so all that goes through it lands in that very
// folder, wherever the path leads by then; Check compares the two.
type mount struct {
	root, staging         *os.Root
	rootInfo, stagingInfo fs.FileInfo
	id                    string // of the staging folder: names of staged files carry it
	lock                  *os.File
}

func (m *mount) close() error {
	err := errors.Join(m.staging.Close(), m.root.Close())
	if m.lock != nil {
		err = errors.Join(err, m.lock.Close())
	}
	return err
}

// Open opens the folder and makes sure that it is ours and can be written to with the configured mode and group. It
// returns *ForeignOwnerError when another ledger's agent owns it, ErrGone (inside *Error) when the folder or its marker
// is missing and may not be created, and *Error with a remedy for what else is wrong with the folder.
func Open(c Config, o Options) (*Folder, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	f, err := newFolder(c, o)
	if err != nil {
		return nil, err
	}
	if o.Create {
		if err := f.createPath(); err != nil {
			return nil, f.problem("can't be created", err)
		}
	}
	if f.at, err = f.mountAt(o.Create, o.TakeOver); err != nil {
		return nil, err
	}
	if err := f.probe(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func newFolder(c Config, o Options) (*Folder, error) {
	if o.Owner == "" || strings.ContainsAny(o.Owner, "\r\n") || strings.TrimSpace(o.Owner) != o.Owner {
		return nil, &NameError{"owner", o.Owner, "must be one line without white space around it"}
	}
	f := &Folder{config: c, owner: o.Owner, lock: o.Lock, log: o.Log, now: o.Now, sys: realSystem(), live: map[string]struct{}{}}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if f.now == nil {
		f.now = time.Now
	}
	var err error
	if f.dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, err
	}
	if f.layout, err = parseLayout(c.Layout); err != nil {
		return nil, err
	}
	f.perm, err = newPermission(c)
	return f, err
}

// mountAt opens what is at the path now and checks, or with create or takeOver sets, whose it is.
func (f *Folder) mountAt(create, takeOver bool) (*mount, error) {
	root, err := os.OpenRoot(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, f.gone("does not exist")
	}
	if err != nil {
		return nil, f.problem("can't be opened", err)
	}
	m := &mount{root: root}
	if err := f.prepareMount(m, create, takeOver); err != nil {
		if m.staging != nil {
			err = errors.Join(err, m.staging.Close())
		}
		if m.lock != nil {
			err = errors.Join(err, m.lock.Close())
		}
		return nil, errors.Join(err, root.Close())
	}
	return m, nil
}

func (f *Folder) prepareMount(m *mount, create, takeOver bool) error {
	var err error
	if m.rootInfo, err = m.root.Stat("."); err != nil {
		return f.problem("can't be read", err)
	}
	if err := f.claim(m.root, create, takeOver); err != nil {
		return err
	}
	if err := f.ensureOwn(m.root, stagingDir, 0o700); err != nil {
		return err
	}
	if f.lock {
		if m.lock, err = f.takeLock(m.root); err != nil {
			return err
		}
	}
	if m.staging, err = m.root.OpenRoot(stagingDir); err != nil {
		return f.problem("its staging folder can't be opened", err)
	}
	if m.stagingInfo, err = m.staging.Stat("."); err != nil {
		return f.problem("its staging folder can't be read", err)
	}
	if m.id, err = f.stagingID(m.root); err != nil {
		return f.problem("the id of its staging folder can't be read or written", err)
	}
	if !sameDevice(m.rootInfo, m.stagingInfo) {
		return &Error{f.dir, stagingDir + " is on another file system",
			"files are renamed from there into place: it must be a plain folder inside downloads.dir", nil}
	}
	return nil
}

// probe finds out at the start, not at the first report, that files can't be made as configured. A full disk is no
// reason not to start: downloads wait for room.
func (f *Folder) probe() error {
	s, err := f.Stage("probe")
	if errors.Is(err, ErrNoRoom) {
		f.log.Warn("no room in the download folder", "dir", f.dir)
		return nil
	}
	if err != nil {
		return f.problem("a file can't be created in it", err)
	}
	err = f.perm.setFile(s.file, s.mode)
	if dropped := s.Discard(); err == nil && dropped != nil {
		err = dropped
	}
	if err != nil {
		return &Error{f.dir, "mode or group of a file can't be set",
			"add the agent's user to that group, or set downloads.mode and dir_mode to inherit on a share that refuses them", err}
	}
	return nil
}

// Check reports whether the path still leads to the folder that was opened and the marker still names us. It is
// called before each publication. ErrGone, inside *Error, says that the folder was replaced, unmounted or lost its
// marker; *ForeignOwnerError that another agent has taken it over.
func (f *Folder) Check() error {
	_, err := f.check()
	return err
}

// check returns the mount it found in order, so that what follows uses that one.
func (f *Folder) check() (*mount, error) {
	f.mu.Lock()
	m := f.at
	f.mu.Unlock()
	if m == nil {
		return nil, fs.ErrClosed
	}
	now, err := os.Stat(f.dir)
	if err != nil {
		return nil, f.gone(err.Error())
	}
	if !os.SameFile(now, m.rootInfo) {
		return nil, f.gone("another folder or volume is at this path now")
	}
	if err := f.claim(m.root, false, false); err != nil {
		return nil, err
	}
	staging, err := m.root.Lstat(stagingDir)
	if err != nil || !os.SameFile(staging, m.stagingInfo) {
		return nil, f.gone("its folder " + stagingDir + " was replaced or removed")
	}
	return m, nil
}

// Reopen opens the path anew after ErrGone, for a share that was mounted again. The folder must carry our marker.
// Files being staged in the old one are lost to their writers.
func (f *Folder) Reopen() error {
	m, err := f.mountAt(false, false)
	if err != nil {
		return err
	}
	f.mu.Lock()
	old := f.at
	if old != nil {
		f.at = m
	}
	f.mu.Unlock()
	if old == nil {
		return errors.Join(fs.ErrClosed, m.close())
	}
	_ = old.close() // its file system may be gone
	return nil
}

// Close gives the folder back. Files still being staged stay where they are until the next Sweep.
func (f *Folder) Close() error {
	f.mu.Lock()
	m := f.at
	f.at = nil
	f.mu.Unlock()
	if m == nil {
		return nil
	}
	return m.close()
}

// Dir is the absolute path of the folder.
func (f *Folder) Dir() string { return f.dir }

// FullPath is the absolute path of a file by its relative name, for people and hooks.
func (f *Folder) FullPath(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

func (f *Folder) gone(why string) error {
	return &Error{f.dir, why, "see that the right volume is mounted there", ErrGone}
}
