package downloads

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// disk pretends to have this many bytes free.
func disk(f *Folder, free int64) *atomic.Int64 {
	var left atomic.Int64
	left.Store(free)
	f.sys.room = func(*os.File) (int64, error) { return left.Load(), nil }
	return &left
}

func TestReserveKeepsWhatIsPromisedAndWhatStaysFree(t *testing.T) {
	t.Parallel()
	f := folderOf(t, func(c *Config) { c.MinFree = 100 })
	free := disk(f, 1000)
	refused := func(n, wantFree int64) {
		t.Helper()
		_, err := f.Reserve(n)
		var none *NoRoomError
		if !errors.As(err, &none) || !errors.Is(err, ErrNoRoom) || *none != (NoRoomError{n, wantFree, 100}) {
			t.Errorf("Reserve(%d): %v", n, err)
		}
	}
	granted := func(n int64) func() {
		t.Helper()
		release, err := f.Reserve(n)
		if err != nil {
			t.Fatalf("Reserve(%d): %v", n, err)
		}
		return release
	}
	refused(901, 1000)
	all := granted(900)
	refused(1, 100)
	granted(0)()
	all()
	all() // once is enough
	half := granted(500)
	refused(401, 500)
	granted(400)()
	free.Store(550) // somebody else fills the disk
	refused(0, 50)
	half()
	granted(450)()
	refused(1<<63-1, 550)
	granted(-5)()
	granted(450)()
}

func TestTheReservationOfAFileShrinksAsItIsWritten(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	free := disk(f, 1000)
	s, err := f.Stage("i")
	if err != nil {
		t.Fatal(err)
	}
	release, err := s.Reserve(600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(make([]byte, 500)); err != nil {
		t.Fatal(err)
	}
	free.Add(-500)
	// 500 are free, and 100 of them promised: what was written does not count twice.
	if _, err := f.Reserve(401); !errors.Is(err, ErrNoRoom) {
		t.Errorf("got %v", err)
	}
	second, err := s.Reserve(400)
	if err != nil {
		t.Fatal(err)
	}
	release()
	second()
	if f.reserved != 0 {
		t.Errorf("%d bytes are still reserved", f.reserved)
	}
	if _, err := s.Reserve(300); err != nil {
		t.Fatal(err)
	}
	if err := s.Discard(); err != nil || f.reserved != 0 {
		t.Errorf("%d bytes are still reserved, %v", f.reserved, err)
	}
}

func TestManyReservationsAtOnceNeverPromiseMoreThanThereIs(t *testing.T) {
	t.Parallel()
	f := folderOf(t, func(c *Config) { c.MinFree = 10 })
	disk(f, 110)
	var held, most, grants atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 200 {
				release, err := f.Reserve(30)
				if err != nil {
					continue
				}
				grants.Add(1)
				now := held.Add(30)
				for top := most.Load(); now > top && !most.CompareAndSwap(top, now); top = most.Load() {
				}
				held.Add(-30)
				release()
			}
		})
	}
	all.Wait()
	if most.Load() > 90 || grants.Load() == 0 {
		t.Errorf("%d bytes were promised at a time, in %d grants", most.Load(), grants.Load())
	}
	if release, err := f.Reserve(100); err != nil {
		t.Errorf("something was not given back: %v", err)
	} else {
		release()
	}
}

func TestRoomIsThatOfTheDisk(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	if free, err := f.Room(); err != nil || free <= 0 {
		t.Errorf("got %d, %v", free, err)
	}
	broken := errors.New("no answer")
	f.sys.room = func(*os.File) (int64, error) { return 0, broken }
	if _, err := f.Reserve(0); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
