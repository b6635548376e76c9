package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"recibo/downloads"
	"recibo/hub"
	"recibo/reporter"
	"recibo/rest"
	"recibo/sandbox"
	"recibo/setting"
	"recibo/store"
)

// childVariable makes this test binary play an agent in a process of its own; it holds an errand as JSON.
const childVariable = "RECIBO_AGENT_TEST_ERRAND"

func TestMain(m *testing.M) {
	if e := os.Getenv(childVariable); e != "" {
		os.Exit(runErrand(e))
	}
	goleak.VerifyTestMain(m)
}

func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// errand is one run of an agent: it takes the events in and works until every report is home, or until it is killed.
type errand struct {
	Ledger   string
	Folder   string
	Reporter string
	Revise   string
	Layout   string
	Events   [][2]string // event id and report id
	Jobs     jobErrand
	Step     Step // kills the process
	Hit      int  // at the n-th time
}

func runErrand(text string) int {
	var e errand
	err := json.Unmarshal([]byte(text), &e)
	if err == nil {
		err = e.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (e errand) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lock, err := store.Acquire(e.Ledger)
	if err != nil {
		return err
	}
	ledger, err := store.Open(e.Ledger, store.Options{Create: true})
	if err != nil {
		return err
	}
	c := downloads.DefaultConfig()
	c.Dir, c.OnRevision, c.Layout, c.MinFree = e.Folder, e.Revise, e.Layout, 0
	folder, err := downloads.Open(c, downloads.Options{Owner: ledger.InstanceID(), Create: true})
	if err != nil {
		return err
	}
	client, err := reporter.New(rest.DefaultConfig(), reporter.Config{URL: e.Reporter}, rest.Options{})
	if err != nil {
		return err
	}
	o := Options{
		Config: DefaultConfig(), Ledger: ledger, Folder: folder, Reporter: client, Step: e.killer(),
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	o.Config.Workers, o.Config.Backoff = 2, setting.Range{Min: time.Millisecond, Max: 10 * time.Millisecond}
	messages, err := e.Jobs.add(&o)
	if err != nil {
		return err
	}
	a := New(o)
	work, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- a.Work(work) }()
	<-a.Started()
	// What was not acknowledged comes again, so each start admits every event.
	for _, event := range e.Events {
		if _, err := a.Admit(ctx, []hub.Delivery{delivery(event[0], hub.ReportFinished, event[1])}); err != nil {
			return err
		}
	}
	for _, message := range messages {
		if _, err := a.Admit(ctx, []hub.Delivery{message}); err != nil {
			return err
		}
	}
	for done := false; !done && err == nil; {
		if done, err = e.allHome(ctx, a); done || err != nil {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	stop()
	if worked := <-ended; err == nil {
		err = worked
	}
	_ = folder.Close()
	_ = ledger.Close()
	_ = lock.Release()
	return err
}

// killer ends the process as a crash would, in the middle of the step.
func (e errand) killer() func(Step) {
	hits := make(chan int, 1)
	hits <- 0
	return func(s Step) {
		if s != e.Step {
			return
		}
		n := <-hits + 1
		if n == e.Hit {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
		hits <- n
	}
}

func (e errand) allHome(ctx context.Context, a *Agent) (bool, error) {
	for _, event := range e.Events {
		r, err := a.Ledger.Get(ctx, keyOf(event[1]))
		if err != nil {
			return false, err
		}
		if r.State != store.Delivered || r.Handled < r.Generation || r.Intent != nil {
			return false, nil
		}
	}
	if home, err := e.Jobs.allHome(ctx, a); !home || err != nil {
		return false, err
	}
	return a.Active() == 0, nil
}

// site is what outlives a crash: Reporter, folder and ledger, and an importer who collects files.
type site struct {
	errand
	t         *testing.T
	reporter  *sandbox.Reporter
	collected map[string][]string // hashes of the files, by report
	tail      string              // of the last child's log
}

func newSite(t *testing.T, reports int) *site {
	t.Helper()
	sb, err := sandbox.Start(t.Context(), sandbox.Options{NoHub: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sb.Close)
	base := t.TempDir()
	s := &site{t: t, reporter: sb.Reporter, collected: map[string][]string{}}
	s.errand = errand{
		Ledger: filepath.Join(base, "recibo.db"), Folder: filepath.Join(base, "home"), Reporter: sb.ReporterURL(),
		Revise: downloads.Keep, Layout: "{id}.{ext}",
	}
	for i := range reports {
		r := s.reporter.Add(sandbox.Report{Size: int64(3000 + 70_000*i), CompletedAt: time.Now().Add(-time.Hour)})
		s.Events = append(s.Events, [2]string{fmt.Sprintf("e-%d", i), r.ID})
	}
	return s
}

// dies runs an agent that is killed at a step. It fails the test when the agent does not come to that step.
func (s *site) dies(step Step, hit int) {
	s.t.Helper()
	state := s.start(step, hit)
	if status, ok := state.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		s.t.Fatalf("the agent was to be killed at %q, and ended with %v\n%s", step, state, s.tail)
	}
}

// completes runs an agent that brings everything home.
func (s *site) completes() {
	s.t.Helper()
	if state := s.start("", 0); !state.Success() {
		s.t.Fatalf("the agent ended with %v\n%s", state, s.tail)
	}
}

func (s *site) start(step Step, hit int) *os.ProcessState {
	s.t.Helper()
	state, log := s.errand.start(s.t, step, hit)
	s.tail = log
	return state
}

// start runs the errand in a process of its own and returns how that ended, and what it logged.
func (e errand) start(t *testing.T, step Step, hit int) (*os.ProcessState, string) {
	t.Helper()
	e.Step, e.Hit = step, hit
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0])
	child.Env = append(os.Environ(), childVariable+"="+string(text))
	var log bytes.Buffer
	child.Stderr = &log
	_ = child.Run() // its state says how it ended
	return child.ProcessState, log.String()
}

// collect moves everything that is published away, as an importer does.
func (s *site) collect() {
	s.t.Helper()
	visible, _ := filesIn(s.t, s.Folder)
	for _, name := range visible {
		id, _, _ := strings.Cut(filepath.Base(name), ".")
		if len(id) > 36 {
			id = id[:36]
		}
		path := filepath.Join(s.Folder, name)
		s.collected[id] = append(s.collected[id], sumOf(s.t, path))
		if err := os.Remove(path); err != nil {
			s.t.Fatal(err)
		}
	}
}

// judge checks that the importer saw each report as often as said, with the right bytes, that nothing is left staged,
// and that the ledger agrees.
func (s *site) judge(times int) {
	s.t.Helper()
	s.collect()
	for _, event := range s.Events {
		id := event[1]
		_, sum := s.reporter.Sum(id)
		seen := s.collected[id]
		if len(seen) != times || !slices.Contains(seen, sum) {
			s.t.Errorf("report %s reached the importer as %q, want %d files, %s among them\n%s", id, seen, times, sum, s.tail)
		}
		r := s.record(id)
		if f := r.Newest(); r.State != store.Delivered || f == nil || f.SHA256 != sum || r.Intent != nil || !r.Due.IsZero() {
			s.t.Errorf("on record:\n%s", describeReceipt(r))
		}
	}
	if _, staged := filesIn(s.t, s.Folder); len(staged) > 0 {
		s.t.Errorf("left staged: %q", staged)
	}
}

// ledger opens the ledger between two runs.
func (s *site) ledger(use func(*store.Store)) {
	s.t.Helper()
	ledger, err := store.Open(s.Ledger, store.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	use(ledger)
	if err := ledger.Close(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) record(id string) (r *store.Receipt) {
	s.t.Helper()
	s.ledger(func(l *store.Store) {
		var err error
		if r, err = l.Get(s.t.Context(), keyOf(id)); err != nil {
			s.t.Fatal(err)
		}
	})
	return r
}

// TestACrashAtAnyStepIsCompletedByTheNextStart kills the agent at each step of each report in turn. With a collecting
// importer, what is published when the agent dies is gone before the next one starts.
func TestACrashAtAnyStepIsCompletedByTheNextStart(t *testing.T) {
	t.Parallel()
	const reports = 3
	for i, step := range Steps {
		for _, hit := range []int{1, reports} {
			for _, collects := range []bool{false, true} {
				if collects && hit == 1 && step < StepPublished {
					continue // there is nothing to collect yet
				}
				t.Run(fmt.Sprintf("%s/%d/collected=%v", step, hit, collects), func(t *testing.T) {
					t.Parallel()
					s := newSite(t, reports)
					if i%2 == 1 {
						s.Layout = "{yyyy}/{template}/{id}.{ext}"
					}
					s.dies(step, hit)
					if collects {
						s.collect()
					}
					s.completes()
					s.judge(1)
				})
			}
		}
	}
}

// TestACrashDuringTheRecoveryOfACrash kills the agent that completes what a killed one left.
func TestACrashDuringTheRecoveryOfACrash(t *testing.T) {
	t.Parallel()
	for _, first := range []Step{StepSynced, StepAnnounced, StepPublished} {
		for _, second := range []Step{StepSettled, StepAnnounced} {
			t.Run(fmt.Sprintf("%s, then %s", first, second), func(t *testing.T) {
				t.Parallel()
				s := newSite(t, 3)
				s.dies(first, 1)
				s.collect()
				s.dies(second, 1)
				s.collect()
				s.completes()
				s.judge(1)
			})
		}
	}
}

// TestACrashWhileASecondGenerationTakesThePlaceOfTheFirst: the importer sees the old bytes or the new ones under the
// name, never neither, and never the same generation twice.
func TestACrashWhileASecondGenerationTakesThePlaceOfTheFirst(t *testing.T) {
	t.Parallel()
	for _, step := range []Step{StepDescribed, StepWritten, StepSynced, StepAnnounced, StepPublished, StepSettled} {
		for _, collects := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/collected=%v", step, collects), func(t *testing.T) {
				t.Parallel()
				s := newSite(t, 1)
				s.Revise = downloads.Replace
				id := s.Events[0][1]
				s.completes()
				_, old := s.reporter.Sum(id)
				if collects {
					s.collect()
				}
				s.reporter.Set(id, func(r *sandbox.Report) { r.Seed, r.CompletedAt = 7, time.Now() })
				s.Events = append(s.Events, [2]string{"again", id})
				s.dies(step, 1)
				switch {
				case collects:
					s.collect()
				default:
					_, fresh := s.reporter.Sum(id)
					visible, _ := filesIn(t, s.Folder)
					if len(visible) != 1 {
						t.Fatalf("the folder holds %q after the crash", visible)
					}
					if got := sumOf(t, filepath.Join(s.Folder, visible[0])); got != old && got != fresh {
						t.Errorf("neither the old bytes nor the new ones: %s", got)
					}
				}
				s.completes()
				s.Events = s.Events[:1]
				times := 1
				if collects {
					times = 2
				}
				s.judge(times)
				r := s.record(id)
				if len(r.Files) != 2 || r.Newest().Revision != 2 || !r.Files[0].Replaced || r.Newest().Name != id+".pdf" {
					t.Errorf("on record: %+v", r.Files)
				}
			})
		}
	}
}

// TestAnIntentFromBeforeARestoreIsSettledOnlyByTheRightBytes: the staged file's absence proves nothing any more, for
// the restored ledger may be older than what happened since.
func TestAnIntentFromBeforeARestoreIsSettledOnlyByTheRightBytes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		step    Step
		between func(*site, string) // what happens to the final file before the restored agent starts
		files   int                 // that reach the importer
		down    int                 // downloads
	}{
		"published, and the file is there": {StepPublished, func(*site, string) {}, 1, 1},
		"published, and the file is gone":  {StepPublished, func(s *site, _ string) { s.collect() }, 2, 2},
		"published, and other bytes are there": {StepPublished, func(s *site, path string) {
			s.collect()
			if err := os.WriteFile(path, []byte("theirs"), 0o600); err != nil {
				s.t.Fatal(err)
			}
		}, 3, 2},
		"announced, and never published": {StepAnnounced, func(*site, string) {}, 1, 2},
		"announced, and the staged file is gone": {StepAnnounced, func(s *site, _ string) {
			if err := os.RemoveAll(filepath.Join(s.Folder, ".recibo", "staging")); err != nil {
				s.t.Fatal(err)
			}
		}, 1, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			id := s.Events[0][1]
			s.dies(test.step, 1)
			test.between(s, filepath.Join(s.Folder, id+".pdf"))
			backup := s.Ledger + ".backup"
			s.ledger(func(l *store.Store) {
				if err := l.Backup(t.Context(), backup); err != nil {
					t.Fatal(err)
				}
			})
			if _, err := store.Restore(t.Context(), backup, s.Ledger); err != nil {
				t.Fatal(err)
			}
			s.completes()
			s.judge(test.files)
			if got := s.reporter.Requests().DownloadsOf[id]; got != test.down {
				t.Errorf("%d downloads, want %d", got, test.down)
			}
		})
	}
}

// TestAllOpenPublicationsAreCompletedHoweverMuchTheirReceiptsHold: a page of the ledger ends before its limit when its
// rows are large. Leftovers are removed only once every claim is known, or a claimed file would be taken for published.
func TestAllOpenPublicationsAreCompletedHoweverMuchTheirReceiptsHold(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	large, err := json.Marshal(map[string]string{"note": strings.Repeat("x", 250<<10)})
	if err != nil {
		t.Fatal(err)
	}
	const open = 36
	var names []string
	for i := range open {
		report := h.reporter.Add(sandbox.Report{Size: int64(1000 + i)})
		staged, err := h.Folder.Stage(report.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(staged, h.reporter.Content(report.ID)); err != nil {
			t.Fatal(err)
		}
		sum, err := staged.Finish(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		name := report.ID + ".pdf"
		names = append(names, name)
		err = h.Ledger.Change(t.Context(), []store.Key{keyOf(report.ID)}, func(r *store.Receipt, _ bool) bool {
			r.State, r.FoundBy, r.Generation, r.Due, r.Metadata = store.Pending, "event", 1, time.Now(), large
			r.Intent = &store.Intent{
				Staged: staged.Name(), File: store.File{Revision: 1, Name: name, Size: staged.Size(), SHA256: sum, Proof: "length"},
				Generation: 1, At: time.Now(),
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// The folder anew, as the next process has it: it works on none of these files.
	c := downloads.DefaultConfig()
	c.Dir, c.MinFree = h.dir, 0
	if h.Folder, err = downloads.Open(c, downloads.Options{Owner: h.Ledger.InstanceID()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Folder.Close() })
	h.work()
	for _, name := range names {
		id := strings.TrimSuffix(name, ".pdf")
		h.until(id, "delivery", in(store.Delivered))
	}
	h.holds(names...)
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(h.dir, name)); err == nil {
			h.sound(strings.TrimSuffix(name, ".pdf"))
		}
	}
	if got := h.reporter.Requests().Downloads; got != 0 {
		t.Errorf("%d downloads of what was here", got)
	}
}

// TestAStopDuringTheStartIsAStopLikeAnyOther: it is no failure of the agent that it had no time to begin.
func TestAStopDuringTheStartIsAStopLikeAnyOther(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Work(ctx); err != nil {
		t.Errorf("a stop at once ends the work with %v", err)
	}
	if err := h.Run(ctx); err != nil {
		t.Errorf("a stop at once ends the run with %v", err)
	}
}

// TestStepsAreInOrder keeps the list of the steps whole: a crash at each of them is tested.
func TestStepsAreInOrder(t *testing.T) {
	t.Parallel()
	if !slices.IsSorted(Steps[:]) || len(Steps) != 8 {
		t.Errorf("steps %q", Steps)
	}
}
