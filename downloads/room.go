package downloads

import (
	"io/fs"
	"sync"
)

// Room is the number of bytes free on the disk to the agent's user, reserved or not.
func (f *Folder) Room() (int64, error) {
	f.mu.Lock()
	m := f.at
	f.mu.Unlock()
	return f.roomOn(m)
}

func (f *Folder) roomOn(m *mount) (int64, error) {
	if m == nil {
		return 0, fs.ErrClosed
	}
	folder, err := m.staging.Open(".")
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	return f.sys.room(folder)
}

// Reserve promises n bytes of the disk to one download, out of one count for all of them: what is free, less
// everything reserved, less downloads.min_free, must hold n, or it fails with *NoRoomError. release gives the promise
// back; calling it again does nothing. A body of unknown length reserves in steps. The reservation keeps its size
// while the file grows, which errs on the safe side; Staged.Reserve is exact.
func (f *Folder) Reserve(n int64) (release func(), err error) {
	if err := f.reserve(nil, n); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.reserved -= max(0, n)
	}), nil
}

// Reserve is Folder.Reserve for this file: bytes that it writes count as used on the disk and no longer as reserved.
// What is left is given back by release or Discard.
func (s *Staged) Reserve(n int64) (release func(), err error) {
	if err := s.folder.reserve(s, n); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { s.giveBack(n) }), nil
}

func (f *Folder) reserve(s *Staged, n int64) error {
	n = max(0, n)
	// The disk is asked under the lock: two downloads must not both see the same free bytes.
	f.mu.Lock()
	defer f.mu.Unlock()
	free, err := f.roomOn(f.at)
	if err != nil {
		return err
	}
	minFree := int64(f.config.MinFree)
	if free -= f.reserved; n > free-minFree {
		return &NoRoomError{Need: n, Free: free, MinFree: minFree}
	}
	f.reserved += n
	if s != nil {
		s.left += n
	}
	return nil
}

// giveBack returns up to n bytes of the file's own reservation.
func (s *Staged) giveBack(n int64) {
	s.folder.mu.Lock()
	defer s.folder.mu.Unlock()
	n = min(max(0, n), s.left)
	s.left -= n
	s.folder.reserved -= n
}
