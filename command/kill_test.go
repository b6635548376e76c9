package command

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"recibo/sandbox"
	"recibo/store"
)

// build makes the program as it is shipped, without the race detector. All but the first build is linking.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "recibo")
	out, err := exec.Command("go", "build", "-o", path, "recibo").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// installation is the binary with its configuration, against a sandbox in this process.
type installation struct {
	t       *testing.T
	binary  string
	sandbox *sandbox.Sandbox
	dir     string
	config  string
	ledger  string
	home    string // the download folder
}

// install writes a configuration; downloads and agent are further lines of those sections.
func install(t *testing.T, o sandbox.Options, downloads, agent string) *installation {
	t.Helper()
	in := &installation{t: t, binary: build(t), dir: t.TempDir()}
	in.config, in.ledger, in.home = filepath.Join(in.dir, "config.yaml"), filepath.Join(in.dir, "recibo.db"), filepath.Join(in.dir, "home")
	o.Dir = filepath.Join(in.dir, "hub")
	var err error
	if in.sandbox, err = sandbox.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.sandbox.Close)
	text := fmt.Sprintf(`hub:
  nats:
    url: %s
reporter:
  url: %s
store:
  path: %s
  min_free: 0B
downloads:
  dir: %s
  min_free: 0B
%sagent:
  poll_every: 2s
  poll_healthy: 2s
  poll_grace: 1s
%s`, in.sandbox.NATSURL(), in.sandbox.ReporterURL(), in.ledger, in.home, downloads, agent)
	if err := os.WriteFile(in.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return in
}

// child is a running binary.
type child struct {
	*exec.Cmd
	log   bytes.Buffer // to be read after its end
	ended chan struct{}
}

// start runs the binary with these arguments behind the configuration. It ends with the test at the latest.
func (in *installation) start(args ...string) *child {
	in.t.Helper()
	return in.startAs(exec.Command(in.binary, append([]string{"--config", in.config}, args...)...))
}

func (in *installation) startAs(cmd *exec.Cmd) *child {
	in.t.Helper()
	c := &child{Cmd: cmd, ended: make(chan struct{})}
	c.Dir, c.Stdout, c.Stderr = in.dir, io.Discard, &c.log
	if err := c.Start(); err != nil {
		in.t.Fatal(err)
	}
	go func() {
		_ = c.Wait() // its state says how it ended
		close(c.ended)
	}()
	in.t.Cleanup(func() {
		_ = c.Process.Kill()
		<-c.ended
	})
	return c
}

// end sends a signal and waits for the end, which has a bound.
func (c *child) end(t *testing.T, s syscall.Signal) {
	t.Helper()
	_ = c.Process.Signal(s) // it may have ended by itself, which its state tells
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		_ = c.Process.Kill()
		<-c.ended
		t.Fatalf("not ended within a minute of %v\n%s", s, c.tail())
	}
}

// tail is the end of the log of a child that has ended.
func (c *child) tail() string {
	text := c.log.String()
	return text[max(0, len(text)-4000):]
}

// until waits for a condition, and fails when the child ends before.
func (c *child) until(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-c.ended:
			t.Fatalf("ended with %v before %s\n%s", c.ProcessState, what, c.tail())
		case <-deadline:
			_ = c.Process.Kill()
			<-c.ended
			t.Fatalf("%s: not within %s\n%s", what, limit, c.tail())
		}
	}
}

// importer collects whatever appears in a folder as soon as it appears, and reads it.
type importer struct {
	from, to string
	stopped  chan struct{}
	stop     func()

	mu    sync.Mutex
	files map[string][]string // hashes, by name
	total int
	fault error
}

func collect(t *testing.T, from, to string) *importer {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	i := &importer{from: from, to: to, stopped: make(chan struct{}), stop: cancel, files: map[string][]string{}}
	go i.watch(ctx)
	t.Cleanup(i.end)
	return i
}

func (i *importer) watch(ctx context.Context) {
	defer close(i.stopped)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if err := i.look(); err != nil {
			i.mu.Lock()
			i.fault = errors.Join(i.fault, err)
			i.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look moves away what is there now.
func (i *importer) look() error {
	entries, err := os.ReadDir(i.from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the agent has not made it yet
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		place := filepath.Join(i.to, fmt.Sprintf("%05d-%s", i.count(), e.Name()))
		if err := os.Rename(filepath.Join(i.from, e.Name()), place); err != nil {
			return err
		}
		sum, err := sumOf(place)
		if err != nil {
			return err
		}
		i.mu.Lock()
		i.files[e.Name()] = append(i.files[e.Name()], sum)
		i.total++
		i.mu.Unlock()
	}
	return err
}

func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	return hex.EncodeToString(hash.Sum(nil)), err
}

func (i *importer) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.total
}

// end looks a last time and stops.
func (i *importer) end() {
	i.stop()
	<-i.stopped
}

// play publishes a scenario's events bit by bit, so that they flow while agents come and go.
func play(ctx context.Context, sb *sandbox.Sandbox, sc sandbox.Scenario, pause time.Duration) error {
	for _, r := range sc.Reports {
		sb.Reporter.Add(r)
	}
	for events := range slices.Chunk(sc.Events, 10) {
		if err := sb.Hub.PublishBatch(ctx, events); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	return nil
}

// siege is a scenario that an agent lives through while it is killed again and again.
type siege struct {
	*installation
	scenario sandbox.Scenario
	importer *importer
	random   *rand.Rand
	signals  []syscall.Signal // drawn from
	step     int              // up to how many files an agent may bring home before it is killed
}

// strike starts an agent and ends it at a random moment: after a few files, or shortly after its start.
func (s *siege) strike() (syscall.Signal, *child) {
	s.t.Helper()
	c := s.start("run")
	limit := time.NewTimer(3 * time.Second)
	defer limit.Stop()
	if files := s.random.IntN(s.step); files > 0 {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for before, waiting := s.importer.count(), true; waiting && s.importer.count() < before+files; {
			select {
			case <-tick.C:
			case <-limit.C:
				waiting = false
			case <-c.ended:
				s.t.Fatalf("the agent ended by itself with %v\n%s", c.ProcessState, c.tail())
			}
		}
	}
	// The moment proper: somewhere in the next few steps, wherever the agent is by then.
	time.Sleep(time.Duration(s.random.IntN(40_000)) * time.Microsecond)
	signal := s.signals[s.random.IntN(len(s.signals))]
	c.end(s.t, signal)
	return signal, c
}

// judge wants each finished report at the importer exactly once with the right bytes, and a ledger that says the same.
func (s *siege) judge() {
	s.t.Helper()
	s.importer.end()
	if s.importer.fault != nil {
		s.t.Error("the importer:", s.importer.fault)
	}
	ids := map[string]string{}
	for _, r := range s.scenario.Reports {
		ids[r.ID+"."+r.Format] = r.ID
	}
	seen := map[string]bool{}
	for name, sums := range s.importer.files {
		id, known := ids[name]
		if !known || !slices.Contains(s.scenario.Finished, id) {
			s.t.Errorf("the importer saw %s, which is no finished report's file", name)
			continue
		}
		seen[id] = true
		if _, sum := s.sandbox.Reporter.Sum(id); len(sums) != 1 || sums[0] != sum {
			s.t.Errorf("%s came %d times: %q, want once %s", name, len(sums), sums, sum)
		}
	}
	for _, id := range s.scenario.Finished {
		if !seen[id] {
			s.t.Errorf("report %s never reached the importer", id)
		}
	}
	staged, err := os.ReadDir(filepath.Join(s.home, ".recibo", "staging"))
	if err != nil || len(staged) > 0 {
		s.t.Errorf("left staged: %v, %v", staged, err)
	}
	s.agrees(seen)
}

// agrees compares the ledger with what came.
func (s *siege) agrees(seen map[string]bool) {
	s.t.Helper()
	if err := store.Check(context.Background(), s.ledger); err != nil {
		s.t.Fatal("the ledger:", err)
	}
	states := s.states()
	want := map[store.State][]string{store.Delivered: s.scenario.Finished, store.Partial: s.scenario.Partial, store.Failed: s.scenario.Error}
	for state, list := range want {
		for _, id := range list {
			if states[id] != state {
				s.t.Errorf("report %s is %q on record, want %s", id, states[id], state)
			}
		}
	}
	for id, state := range states {
		if state == store.Delivered && !seen[id] {
			s.t.Errorf("report %s is delivered on record and never came", id)
		}
	}
}

// states reads the state of every receipt.
func (s *siege) states() map[string]store.State {
	s.t.Helper()
	ledger, err := store.Open(s.ledger, store.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = ledger.Close() }()
	states := map[string]store.State{}
	for after := ""; ; {
		rows, next, err := ledger.List(context.Background(), store.Query{After: after})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range rows {
			states[r.ID] = r.State
			if r.Intent != nil {
				s.t.Errorf("report %s has an open intent in the end", r.ID)
			}
		}
		if next == "" {
			return states
		}
		after = next
	}
}

// TestNothingIsLostOrDoubledHoweverOftenTheAgentIsKilled is the promise of the whole program.
func TestNothingIsLostOrDoubledHoweverOftenTheAgentIsKilled(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		kills, reports, step int
		signals              []syscall.Signal
	}{
		"SIGKILL":             {36, 360, 9, []syscall.Signal{syscall.SIGKILL}},
		"SIGKILL and SIGTERM": {14, 120, 9, []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				t.Skip("dozens of starts")
			}
			seed := uint64(time.Now().UnixNano())
			t.Log("seed", seed)
			s := &siege{installation: install(t, sandbox.Options{Seed: seed}, "", ""), signals: test.signals, step: test.step}
			s.random = rand.New(rand.NewPCG(seed, 1))
			s.scenario = sandbox.NewScenario(sandbox.ScenarioOptions{
				Reports: test.reports, Repeat: 3, LargeEvery: 40, LargeSize: 8 << 20, Noise: true, Seed: seed,
			})
			s.importer = collect(t, s.home, filepath.Join(s.dir, "imported"))
			ctx, cancel := context.WithCancel(t.Context())
			played := make(chan error, 1)
			go func() { played <- play(ctx, s.sandbox, s.scenario, 20*time.Millisecond) }()
			defer func() { cancel(); <-played }()

			for range test.kills {
				signal, c := s.strike()
				status, _ := c.ProcessState.Sys().(syscall.WaitStatus)
				orderly := signal == syscall.SIGTERM && (c.ProcessState.Success() ||
					status.Signaled() && status.Signal() == syscall.SIGTERM && !strings.Contains(c.log.String(), "recibo runs"))
				if !orderly && !(status.Signaled() && status.Signal() == syscall.SIGKILL && signal == syscall.SIGKILL) {
					t.Errorf("after %v the agent ended with %v\n%s", signal, c.ProcessState, c.tail())
				}
			}
			killed := s.importer.count()
			t.Logf("%d of %d files came through %d agents", killed, len(s.scenario.Finished), test.kills)
			if killed == 0 {
				t.Error("no agent lived long enough to bring anything home: nothing was tested")
			}
			if err := <-played; err != nil {
				t.Fatal(err)
			}
			played <- nil // for the deferred receive
			last := s.start("run", "--until-idle", "5s")
			last.until(t, "everything is home", 3*time.Minute, func() bool { return s.importer.count() >= len(s.scenario.Finished) })
			// Idle means that the sweeps have looked at everything and no event is left to come.
			select {
			case <-last.ended:
			case <-time.After(2 * time.Minute):
				last.end(t, syscall.SIGTERM)
			}
			if !last.ProcessState.Success() {
				t.Errorf("the last agent ended with %v\n%s", last.ProcessState, last.tail())
			}
			s.judge()
		})
	}
}
