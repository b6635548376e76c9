package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"recibo/sandbox"
	"recibo/store"
)

// TestNoJobIsLostOrDoubledThroughKillsAndBrokerRestarts is the promise for jobs: 5,000 of them, each end told up to three
// times, one in ten failed, with forgeries among the events, silent ones that only Fetcher can tell of, three restarts of
// the broker, ten kills of the agent and an importer that takes files away now and then.
func TestNoJobIsLostOrDoubledThroughKillsAndBrokerRestarts(t *testing.T) {
	t.Parallel()
	number, kills := 5000, 10
	if testing.Short() {
		number, kills = 500, 4
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	s := &soak{random: rand.New(rand.NewPCG(seed, 3)), scenario: sandbox.NewJobScenario(sandbox.JobScenarioOptions{
		Jobs: number, SilentEvery: 101, ForgeEvery: 49, MinSize: 1 << 10, MaxSize: 32 << 10, Seed: seed,
	})}
	s.installation, s.upstream = installJobs(t, fmt.Sprintf("agent:\n  workers: %d\n  poll_grace: 1s\n", soakWorkers))
	s.porter = carry(t, s.home, filepath.Join(s.dir, "imported"))
	ctx, cancel := context.WithCancel(t.Context())
	played := make(chan error, 1)
	go func() { played <- s.play(ctx) }()
	defer func() { cancel(); <-played }()

	s.agent = s.start("run")
	for n := range kills {
		s.strike(n, kills)
	}
	told := len(s.scenario.Completed) - len(s.scenario.Silent)
	s.agent.until(t, "all that was told of is home", 3*time.Minute, func() bool { return s.porter.count() >= told })
	if err := <-played; err != nil {
		t.Fatal(err)
	}
	played <- nil // for the deferred receive
	s.agent.end(t, syscall.SIGTERM)
	last := s.start("run", "--until-idle", "2s") // reads the file of expected jobs, and asks about them
	select {
	case <-last.ended:
	case <-time.After(3 * time.Minute):
		last.end(t, syscall.SIGKILL)
		t.Fatalf("not idle within three minutes\n%s", last.tail())
	}
	for _, c := range []*child{s.agent, last} {
		if !c.ProcessState.Success() {
			t.Errorf("an agent that was not killed ended with %v\n%s", c.ProcessState, c.tail())
		}
	}
	s.judge(kills)
}

// soakWorkers is how many results are on their way when an agent is killed.
const soakWorkers = 8

// soak is a scenario of jobs that agents live through.
type soak struct {
	*installation
	upstream *jobs
	scenario sandbox.JobScenario
	random   *rand.Rand
	porter   *porter
	agent    *child
	parts    atomic.Int64 // of the scenario that were published
}

// installJobs writes a configuration for jobs alone, against a Fetcher and a broker of its own; more are further sections.
func installJobs(t *testing.T, more string) (*installation, *jobs) {
	t.Helper()
	in := &installation{t: t, dir: t.TempDir()}
	in.config, in.ledger, in.home = filepath.Join(in.dir, "config.yaml"), filepath.Join(in.dir, "recibo.db"), filepath.Join(in.dir, "home")
	upstream, err := startJobs(t.Context(), in.dir, slog.New(slog.DiscardHandler))
	if errors.Is(err, sandbox.ErrNoRabbitMQ) {
		t.Skip(noRabbitMQ)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(upstream.close)
	in.binary = build(t)
	text := fmt.Sprintf(`hub:
  enabled: false
reporter:
  enabled: false
store:
  path: %s
  min_free: 0B
downloads:
  dir: %s
  min_free: 0B
%s%s`, in.ledger, in.home, more, upstream.config())
	if err := os.WriteFile(in.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return in, upstream
}

// play publishes the scenario bit by bit, a twelfth of it ahead of what is home, so that events flow until the end. Then it
// has the jobs expected that no event tells of.
func (s *soak) play(ctx context.Context) error {
	ahead := len(s.scenario.Completed) / 12
	due := map[string]sandbox.Job{}
	for _, job := range s.scenario.Jobs {
		due[job.ID] = job
	}
	announced := 0 // results that are to come home
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for emissions := range slices.Chunk(s.scenario.Emissions, 20) {
		for announced > s.porter.count()+ahead {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
		}
		part := sandbox.JobScenario{Emissions: emissions}
		for _, e := range emissions {
			if job, first := due[e.JobID]; first {
				part.Jobs = append(part.Jobs, job)
				delete(due, e.JobID)
				if job.Status == sandbox.JobCompleted {
					announced++
				}
			}
		}
		if err := s.upstream.play(ctx, part); err != nil {
			return err
		}
		s.parts.Add(1)
	}
	rest := sandbox.JobScenario{Silent: s.scenario.Silent}
	for _, id := range rest.Silent {
		rest.Jobs = append(rest.Jobs, due[id])
	}
	return s.upstream.play(ctx, rest)
}

// strike kills the agent once its share of the files is home, at one of three moments in turn, and starts another one: when
// events have just been published, while a result lies staged, and about a stop of the broker, during it or after.
func (s *soak) strike(n, of int) {
	s.t.Helper()
	share := len(s.scenario.Completed) / (of + 2)
	files := share*n + 1 + s.random.IntN(share)
	await := func(what string, ok func() bool) { s.t.Helper(); s.agent.until(s.t, what, 3*time.Minute, ok) }
	await(fmt.Sprint(files, " files are home"), func() bool { return s.porter.count() >= files })
	switch n % 3 {
	case 0:
		before := s.parts.Load()
		await("more events are published", func() bool { return s.parts.Load() > before })
		s.replace()
	case 1:
		await("a result lies staged", func() bool { return len(s.staged()) > 0 })
		s.replace()
	default:
		s.upstream.broker.Stop()
		during := n%2 == 1 // the agent goes, and the next one comes, without a broker
		if during {
			s.replace()
		}
		if err := s.upstream.broker.Start(); err != nil {
			s.t.Fatal(err)
		}
		if !during {
			s.replace()
		}
	}
}

// replace kills the agent and starts another one.
func (s *soak) replace() {
	s.t.Helper()
	s.agent.end(s.t, syscall.SIGKILL)
	if status := s.agent.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() {
		s.t.Errorf("an agent ended by itself with %v\n%s", s.agent.ProcessState, s.agent.tail())
	}
	s.agent = s.start("run")
}

func (s *soak) staged() []fs.DirEntry {
	entries, _ := os.ReadDir(filepath.Join(s.home, ".recibo", "staging")) // none before the agent has made it
	return entries
}

// judge wants the result of each completed job home once, and ledger, quarantine and verify to say the same.
func (s *soak) judge(kills int) {
	s.t.Helper()
	if err := s.porter.end(); err != nil {
		s.t.Error("the importer:", err)
	}
	for _, complaint := range s.upstream.fetcher.JudgeJobs(s.home, s.scenario, nil) {
		s.t.Error(complaint)
	}
	if left := s.staged(); len(left) > 0 {
		s.t.Errorf("left staged: %v", left)
	}
	verdict := fmt.Sprintf("%d sound, 0 damaged, 0 collected,", len(s.scenario.Completed))
	if out := s.ask("verify"); !strings.HasPrefix(string(out), verdict) {
		s.t.Errorf("verify says %q, want %q", out, verdict)
	}
	s.judgeReceipts()
	s.judgeQuarantine()
	s.judgeRequests(kills)
	(&siege{installation: s.installation}).states() // no intent is open
}

func (s *soak) judgeReceipts() {
	s.t.Helper()
	receipts := map[string]receiptJSON{}
	for r := range lines[receiptJSON](s.t, s.ask("list", "--kind", "job", "--json")) {
		receipts[r.ID] = r
	}
	if len(receipts) != len(s.scenario.Jobs) {
		s.t.Errorf("%d receipts for %d jobs", len(receipts), len(s.scenario.Jobs))
	}
	for _, job := range s.scenario.Jobs {
		r := receipts[job.ID]
		state, revision, foundBy, events := store.Delivered, 1, "event", []string{"fetcher.job." + job.Status + "." + job.ID}
		if job.Status == sandbox.JobFailed {
			state, revision = store.Failed, 0
		}
		if slices.Contains(s.scenario.Silent, job.ID) {
			foundBy, events = "watch", []string{}
		}
		if r.State != state || r.Revision != revision || r.FoundBy != foundBy || !slices.Equal(r.Events, events) {
			s.t.Errorf("on record: %+v; want %s, revision %d, found by %s, events %q", r, state, revision, foundBy, events)
		}
		if r.Reason != job.Error || r.Attempts != 0 {
			s.t.Errorf("job %s is on record with reason %q after %d attempts, want %q after none", job.ID, r.Reason, r.Attempts, job.Error)
		}
		if !bytes.Contains(r.Metadata, fmt.Appendf(nil, "%q", job.Metadata["correlationId"])) {
			s.t.Errorf("job %s is on record with metadata %s", job.ID, r.Metadata)
		}
	}
}

// judgeQuarantine wants every forgery there, and nothing else.
func (s *soak) judgeQuarantine() {
	s.t.Helper()
	var forged, kept []string
	for _, e := range s.scenario.Emissions {
		if e.Forge != sandbox.Genuine {
			forged = append(forged, e.JobID)
		}
	}
	for q := range lines[store.Quarantined](s.t, s.ask("quarantine", "--json")) {
		kept = append(kept, q.Receipt.ID)
		if q.Reason == "" || q.Feed != store.Jobs {
			s.t.Errorf("in quarantine: %+v", q)
		}
	}
	slices.Sort(forged)
	slices.Sort(kept)
	if !slices.Equal(forged, kept) {
		s.t.Errorf("%d events in quarantine for %d forgeries, or about other jobs", len(kept), len(forged))
	}
}

// judgeRequests wants no result read twice, but for those that a kill met on their way.
func (s *soak) judgeRequests(kills int) {
	s.t.Helper()
	const each = 2 // its size and its bytes
	asked := 0
	for _, id := range s.scenario.Completed {
		asked += s.upstream.fetcher.Objects.Requests(s.upstream.fetcher.Key(id))
	}
	if most := each * (len(s.scenario.Completed) + kills*soakWorkers); asked > most {
		s.t.Errorf("the object store was asked %d times for %d results, want at most %d times", asked, len(s.scenario.Completed), most)
	}
}

// ask runs a command beside the agent or after it, and returns what it prints.
func (in *installation) ask(args ...string) []byte {
	in.t.Helper()
	cmd := exec.Command(in.binary, append([]string{"--config", in.config}, args...)...)
	cmd.Dir = in.dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		in.t.Fatalf("recibo %s: %v", args[0], err)
	}
	return out
}

// lines decodes one value a line.
func lines[T any](t *testing.T, data []byte) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		for line := range bytes.Lines(data) {
			var v T
			if err := json.Unmarshal(line, &v); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if !yield(v) {
				return
			}
		}
	}
}
