package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// porter lets files lie until there are many, and then carries all of them away, as an importer that runs now and then
// does. A name that comes again after that is a second file.
type porter struct {
	from, to string
	stopped  chan struct{}
	stop     func()

	mu     sync.Mutex
	lying  int
	taken  map[string]struct{}
	faults []error
}

// porterLoad is from how many files on the porter comes.
const porterLoad = 100

func carry(t *testing.T, from, to string) *porter {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &porter{from: from, to: to, stopped: make(chan struct{}), stop: cancel, taken: map[string]struct{}{}}
	go p.watch(ctx)
	t.Cleanup(func() { p.stop(); <-p.stopped })
	return p
}

func (p *porter) watch(ctx context.Context) {
	defer close(p.stopped)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		p.look()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look counts what lies there now, and takes it away once it is enough.
func (p *porter) look() {
	entries, err := os.ReadDir(p.from)
	if errors.Is(err, fs.ErrNotExist) {
		return // the agent has not made it yet
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(err)
	p.lying = len(entries)
	if p.lying < porterLoad {
		return
	}
	for _, e := range entries {
		p.note(p.move(e.Name(), p.from, p.to))
		p.taken[e.Name()] = struct{}{}
	}
	p.lying = 0
}

// move never puts a file over another.
func (p *porter) move(name, from, to string) error {
	target := filepath.Join(to, name)
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s came a second time: %w", name, errors.Join(err, fs.ErrExist))
	}
	return os.Rename(filepath.Join(from, name), target)
}

func (p *porter) note(err error) {
	if err != nil {
		p.faults = append(p.faults, err)
	}
}

// count is how many files have come, collected or not.
func (p *porter) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.taken) + p.lying
}

// end stops and puts everything back to where it was found. A file that is there again was published twice.
func (p *porter) end() error {
	p.stop()
	<-p.stopped
	for name := range p.taken {
		p.note(p.move(name, p.to, p.from))
	}
	return errors.Join(p.faults...)
}
