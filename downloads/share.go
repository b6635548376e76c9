package downloads

import (
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// syncs lets those who want the same folder synced at the same time share one fsync: each gets one that begins after its
// call, and many reports that arrive together cost few of them.
type syncs struct {
	mu      sync.Mutex
	folders map[inode]*turns
}

type inode struct{ device, number uint64 }

// turns are the fsyncs of one folder: one at a time, and at most one that waits, for all who came meanwhile.
type turns struct {
	turn    sync.Mutex
	waiting *round
	users   int
}

type round struct {
	done chan struct{}
	err  error
}

// do runs sync for the folder, or joins a round of it that has not begun.
func (s *syncs) do(folder *os.File, sync func(*os.File) error) error {
	info, err := folder.Stat()
	if err != nil {
		return err
	}
	key, ok := inodeOf(info)
	if !ok {
		return sync(folder)
	}
	t, r, first := s.enter(key)
	if first {
		t.turn.Lock()
		s.begin(t)
		r.err = sync(folder)
		t.turn.Unlock()
		close(r.done)
	}
	<-r.done
	s.leave(key, t)
	return r.err
}

// enter returns the round to wait for, and whether the caller runs it.
func (s *syncs) enter(key inode) (t *turns, r *round, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folders == nil {
		s.folders = map[inode]*turns{}
	}
	if t = s.folders[key]; t == nil {
		t = &turns{}
		s.folders[key] = t
	}
	t.users++
	if t.waiting == nil {
		t.waiting, first = &round{done: make(chan struct{})}, true
	}
	return t, t.waiting, first
}

// begin closes the round to others: who comes now may have changed the folder too late for this fsync.
func (s *syncs) begin(t *turns) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.waiting = nil
}

func (s *syncs) leave(key inode, t *turns) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(s.folders, key)
	}
}

func inodeOf(info fs.FileInfo) (inode, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}, false
	}
	return inode{uint64(st.Dev), uint64(st.Ino)}, true
}
