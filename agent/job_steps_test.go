package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"recibo/downloads"
	"recibo/fetcher"
	"recibo/hub"
	"recibo/rest"
	"recibo/sandbox"
	"recibo/setting"
	"recibo/store"
)

// jobErrand is the part of an errand that is about jobs: where they come from, and what their queue holds. It is empty
// where there are none.
type jobErrand struct {
	Sources  []jobSource
	Messages []hub.AMQPMessage
	IDs      []string
	Sealed   bool // there is no storage key, and objects are delivered as they are
	Manifest bool
}

// jobSource is one Fetcher as the configuration knows it.
type jobSource struct {
	Name                                             string
	External, Storage, Endpoint, Bucket, Key, Secret string
	Dir                                              string // its own folder, if any
}

// add has an agent work on the jobs, and returns what their queue holds.
func (e jobErrand) add(o *Options) ([]hub.Delivery, error) {
	if len(e.Sources) == 0 {
		return nil, nil
	}
	c := fetcher.DefaultConfig()
	for _, s := range e.Sources {
		own := fetcher.SourceConfig{
			Source: s.Name, ExternalHMACKey: secretsOf(s.External), Objects: fetcher.ObjectsConfig{
				Endpoint: s.Endpoint, Region: "us-east-1", Bucket: s.Bucket,
				AccessKey: setting.NewSecret(s.Key), SecretKey: setting.NewSecret(s.Secret),
			},
		}
		if !e.Sealed {
			own.StorageKey = secretsOf(s.Storage)
		}
		c.Sources = append(c.Sources, own)
		var folder *downloads.Folder
		if s.Dir != "" {
			d := downloads.DefaultConfig()
			d.Dir, d.MinFree = s.Dir, 0
			var err error
			if folder, err = downloads.Open(d, downloads.Options{Owner: o.Ledger.InstanceID(), Create: true}); err != nil {
				return nil, err
			}
		}
		o.JobFolders = append(o.JobFolders, folder)
	}
	c.Encrypted = fetcher.Deliver
	f, err := fetcher.New(rest.DefaultConfig(), c, rest.Options{})
	if err != nil {
		return nil, err
	}
	o.Fetcher, o.Manifest = f, e.Manifest
	messages := make([]hub.Delivery, len(e.Messages))
	for i, m := range e.Messages {
		messages[i] = f.Delivery(m)
	}
	return messages, nil
}

func (e jobErrand) allHome(ctx context.Context, a *Agent) (bool, error) {
	for _, id := range e.IDs {
		r, err := a.Ledger.Get(ctx, jobKey(id))
		if err != nil {
			return false, err
		}
		if r.Newest() == nil || r.State != homeState(r) || r.Handled < r.Generation || r.Intent != nil {
			return false, nil
		}
	}
	return true, nil
}

// jobSite is what outlives a crash of an agent with jobs.
type jobSite struct {
	errand
	t         *testing.T
	fetchers  []*sandbox.Fetcher
	collected map[string][]string // hashes of what an importer took, by file name
	tail      string
}

// newJobSite has so many jobs at each of several Fetchers. All but the first have a folder of their own.
func newJobSite(t *testing.T, fetchers, each int) *jobSite {
	t.Helper()
	base := t.TempDir()
	s := &jobSite{t: t, collected: map[string][]string{}}
	s.errand = errand{
		Ledger: filepath.Join(base, "recibo.db"), Folder: filepath.Join(base, "home"), Reporter: "http://127.0.0.1:9",
		Revise: downloads.Keep, Layout: "{id}.{ext}",
	}
	for i := range fetchers {
		f, err := sandbox.StartFetcher(t.Context(), sandbox.FetcherOptions{Source: sourceName(i), Seed: uint64(i + 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		s.fetchers = append(s.fetchers, f)
		source := jobSource{
			Name: sourceName(i), External: f.ExternalKeyHex(), Storage: f.StorageKeyHex(), Endpoint: f.ObjectsURL(),
			Bucket: f.Bucket(), Key: f.AccessKey(), Secret: f.SecretKey(),
		}
		if i > 0 {
			source.Dir = filepath.Join(base, fmt.Sprintf("home-%d", i))
		}
		s.Jobs.Sources = append(s.Jobs.Sources, source)
		for n := range each {
			s.adds(i, sandbox.Job{Size: int64(3000 + 70_000*n)})
		}
	}
	return s
}

// adds puts a job's event into the queue.
func (s *jobSite) adds(i int, job sandbox.Job) string {
	s.t.Helper()
	job, err := s.fetchers[i].Run(s.t.Context(), job)
	if err != nil {
		s.t.Fatal(err)
	}
	m, err := s.fetchers[i].Message(job.ID, sandbox.Emission{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Jobs.Messages, s.Jobs.IDs = append(s.Jobs.Messages, asReceived(m)), append(s.Jobs.IDs, job.ID)
	return job.ID
}

func (s *jobSite) dies(step Step, hit int) {
	s.t.Helper()
	var state *os.ProcessState
	state, s.tail = s.errand.start(s.t, step, hit)
	if status, ok := state.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		s.t.Fatalf("the agent was to be killed at %q, and ended with %v\n%s", step, state, s.tail)
	}
}

func (s *jobSite) completes() {
	s.t.Helper()
	var state *os.ProcessState
	if state, s.tail = s.errand.start(s.t, "", 0); !state.Success() {
		s.t.Fatalf("the agent ended with %v\n%s", state, s.tail)
	}
}

// folders are where files arrive.
func (s *jobSite) folders() []string {
	list := []string{s.Folder}
	for _, source := range s.Jobs.Sources {
		if source.Dir != "" {
			list = append(list, source.Dir)
		}
	}
	return list
}

// collect moves everything that is published away, as an importer does.
func (s *jobSite) collect() {
	s.t.Helper()
	for _, dir := range s.folders() {
		if _, err := os.Stat(dir); err != nil {
			continue // the agent died before it made the folder
		}
		visible, _ := filesIn(s.t, dir)
		for _, name := range visible {
			file := filepath.Join(dir, name)
			s.collected[file] = append(s.collected[file], sumOf(s.t, file))
			if err := os.Remove(file); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// judge checks that the importer saw each result once, in its own folder, under its name and with the right bytes, that
// nothing is left staged, and that the ledger agrees.
func (s *jobSite) judge() {
	s.t.Helper()
	s.collect()
	ledger, err := store.Open(s.Ledger, store.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = ledger.Close() }()
	each := len(s.Jobs.IDs) / len(s.fetchers)
	for n, id := range s.Jobs.IDs {
		f, source := s.fetchers[n/each], s.Jobs.Sources[n/each]
		_, sum := f.Sum(id)
		name, proof, state := id+".json", fetcher.Verified, store.Delivered
		if s.Jobs.Sealed {
			object, _ := f.Objects.Get(f.Key(id))
			name, proof, state, sum = id+".json.enc", fetcher.Sealed, store.Encrypted, sumOfBytes(object)
		}
		dir := s.Folder
		if source.Dir != "" {
			dir = source.Dir
		}
		file := filepath.Join(dir, name)
		if seen := s.collected[file]; !slices.Equal(seen, []string{sum}) {
			s.t.Errorf("%s reached the importer as %q, want %s once\n%s", file, seen, sum, s.tail)
		}
		delete(s.collected, file)
		r, err := ledger.Get(s.t.Context(), jobKey(id))
		if err != nil {
			s.t.Fatal(err)
		}
		if f := r.Newest(); r.State != state || len(r.Files) != 1 || f.SHA256 != sum || f.Name != name || f.Proof != string(proof) ||
			f.HMAC == "" || f.Rows == 0 || r.Intent != nil || !r.Due.IsZero() || r.Authority != bySignedEvent || r.Settled != f.Completion {
			s.t.Errorf("on record: %+v\n%s", r.Files, describeReceipt(r))
		}
	}
	for file := range s.collected {
		if !s.Jobs.Manifest || !strings.HasSuffix(file, manifestSuffix) {
			s.t.Errorf("the importer saw %s besides", file)
		}
	}
	for _, dir := range s.folders() {
		if _, staged := filesIn(s.t, dir); len(staged) > 0 {
			s.t.Errorf("left staged in %s: %q", dir, staged)
		}
	}
}

// TestACrashAtAnyStepOfAJobIsCompletedByTheNextStart kills the agent at each step, with jobs of two Fetchers of which one has
// a folder of its own. With a collecting importer, what is published when the agent dies is gone before the next one starts.
func TestACrashAtAnyStepOfAJobIsCompletedByTheNextStart(t *testing.T) {
	t.Parallel()
	for i, step := range Steps {
		for _, way := range []struct{ collects, sealed bool }{{false, false}, {true, false}, {true, true}} {
			if way.collects && step < StepAnnounced {
				continue // there is nothing to collect yet
			}
			t.Run(fmt.Sprintf("%s/collected=%v/sealed=%v", step, way.collects, way.sealed), func(t *testing.T) {
				t.Parallel()
				s := newJobSite(t, 2, 2)
				s.Jobs.Sealed, s.Jobs.Manifest = way.sealed, i%2 == 0
				s.dies(step, 1+i%4)
				if way.collects {
					s.collect()
				}
				s.completes()
				s.judge()
			})
		}
	}
}

// TestACrashDuringTheRecoveryOfAJob kills the agent that completes what a killed one left.
func TestACrashDuringTheRecoveryOfAJob(t *testing.T) {
	t.Parallel()
	for _, first := range []Step{StepAnnounced, StepPublished} {
		t.Run(string(first), func(t *testing.T) {
			t.Parallel()
			s := newJobSite(t, 2, 2)
			s.dies(first, 2)
			s.collect()
			s.dies(StepSettled, 1)
			s.collect()
			s.completes()
			s.judge()
		})
	}
}

// TestAPublicationOfASourceThatIsGoneIsLeftAlone: its source was taken out of the configuration while a publication was open,
// so nobody knows the folder that it was meant for. What is staged stays, and goes on when the source is back.
func TestAPublicationOfASourceThatIsGoneIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("own folder %v", own), func(t *testing.T) {
			t.Parallel()
			s := newJobSite(t, 2, 1)
			if !own {
				s.Jobs.Sources[1].Dir = ""
			}
			all := s.Jobs
			gone, there := all.IDs[1], all.IDs[0]
			s.Jobs.Messages, s.Jobs.IDs = all.Messages[1:], all.IDs[1:]
			s.dies(StepAnnounced, 1)

			s.Jobs.Sources, s.Jobs.Messages, s.Jobs.IDs = all.Sources[:1], all.Messages[:1], all.IDs[:1]
			s.completes()
			dir := s.Folder
			if own {
				dir = all.Sources[1].Dir
			}
			visible, staged := filesIn(t, dir)
			if len(staged) != 1 || slices.Contains(visible, gone+".json") {
				t.Errorf("without its source: %q, staged %q\n%s", visible, staged, s.tail)
			}
			if !isThere(s.Folder, there+".json") {
				t.Error("the job of the other source is not home")
			}
			r := s.record(gone)
			readable(t, r.Reason, "not in the configuration")
			if r.Intent == nil || r.State != store.Pending || r.Attempts != 0 || !r.Due.After(r.Created) {
				t.Errorf("on record:\n%s", describeReceipt(r))
			}

			s.Jobs = all
			s.completes()
			s.judge()
		})
	}
}

func (s *jobSite) record(id string) *store.Receipt {
	s.t.Helper()
	ledger, err := store.Open(s.Ledger, store.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = ledger.Close() }()
	r, err := ledger.Get(s.t.Context(), jobKey(id))
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}
