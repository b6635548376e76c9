package downloads

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// Whoever asks while a folder is being synced shares one further fsync, which begins after it asked.
func TestFolderSyncsAreShared(t *testing.T) {
	t.Parallel()
	folder, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	var s syncs
	var begun atomic.Int64
	started, release := make(chan struct{}, 1), make(chan struct{})
	failure := errors.New("disk")
	slow := func(*os.File) error {
		if begun.Add(1) == 1 {
			started <- struct{}{}
			<-release
			return nil
		}
		return failure
	}
	first := make(chan error, 1)
	go func() { first <- s.do(folder, slow) }()
	<-started
	var asked, wg sync.WaitGroup
	errs := make([]error, 50)
	for i := range errs {
		asked.Add(1)
		wg.Go(func() {
			asked.Done()
			errs[i] = s.do(folder, slow)
		})
	}
	asked.Wait()
	for waiting := 0; waiting < len(errs)+1; { // all are in before the first fsync ends
		s.mu.Lock()
		for _, turns := range s.folders {
			waiting = turns.users
		}
		s.mu.Unlock()
	}
	close(release)
	wg.Wait()
	if err := <-first; err != nil {
		t.Errorf("the first fsync took the result of the second: %v", err)
	}
	for i, err := range errs {
		if !errors.Is(err, failure) {
			t.Errorf("caller %d got %v, not the result of the fsync that began after it asked", i, err)
		}
	}
	if n := begun.Load(); n != 2 {
		t.Errorf("%d fsyncs for 51 callers, want 2", n)
	}
	if len(s.folders) != 0 {
		t.Errorf("%d folders are kept after their last caller", len(s.folders))
	}
}
