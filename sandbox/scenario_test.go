package sandbox

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestAScenarioFollowsFromItsOptions(t *testing.T) {
	t.Parallel()
	o := ScenarioOptions{Reports: 200, Now: noon, Seed: 5, Faults: true, Noise: true, LateEvery: 30, LargeEvery: 40}
	if !reflect.DeepEqual(NewScenario(o), NewScenario(o)) {
		t.Error("two drawings differ")
	}
	other := o
	other.Seed = 6
	if reflect.DeepEqual(NewScenario(o), NewScenario(other)) {
		t.Error("another seed gives the same scenario")
	}
}

func TestAScenarioHasItsParts(t *testing.T) {
	t.Parallel()
	s := NewScenario(ScenarioOptions{Reports: 200, Now: noon, LateEvery: 30})
	for what, count := range map[string][2]int{
		"finished": {len(s.Finished), 190}, "partial": {len(s.Partial), 8}, "error": {len(s.Error), 2},
		"no event": {len(s.NoEvent), 2}, "late": {len(s.Late), 2}, "reports": {len(s.Reports), 200},
		"repetitions": {s.Repetitions, 2 * 196}, "events": {len(s.Events), 3 * 196}, "noise": {s.Noise, 0},
	} {
		if count[0] != count[1] {
			t.Errorf("%s: %d instead of %d", what, count[0], count[1])
		}
	}
	formats := map[string]bool{}
	for _, report := range s.Reports {
		formats[report.Format] = true
		if report.Size < 2<<10 || report.Size > 256<<10 {
			t.Errorf("size %d", report.Size)
		}
		if id, err := uuid.Parse(report.ID); err != nil || id.Version() != 7 {
			t.Errorf("id %q: %v", report.ID, err)
		}
		if report.CompletedAt.After(noon) || !report.CreatedAt.Before(report.CompletedAt) {
			t.Errorf("created %v, completed %v", report.CreatedAt, report.CompletedAt)
		}
		if metadata := report.Metadata != nil; metadata != (report.Status != Finished) || len(report.Faults) > 0 {
			t.Errorf("report %+v", report)
		}
	}
	if len(formats) != 5 {
		t.Errorf("formats %v", formats)
	}
}

func TestAScenariosEvents(t *testing.T) {
	t.Parallel()
	s := NewScenario(ScenarioOptions{Reports: 300, Repeat: 4, Now: noon, Noise: true, LateEvery: 30})
	published := map[string][]Event{} // by id, noise left out
	moved, lateBegan, noise := 0, false, 0
	for _, event := range s.Events {
		if late := slices.Contains(s.Late, event.ReportID); late {
			lateBegan = true
		} else if lateBegan {
			t.Fatal("an event about a report in time comes after one about a late one")
		}
		if event.Version != "2.0.0" || event.Name != "report.finished" && event.Name != "report.partial" {
			noise++
			continue
		}
		if event.Source != "reporter" {
			moved++
		}
		published[event.ID] = append(published[event.ID], event)
	}
	if moved == 0 || noise != s.Noise || noise == 0 {
		t.Errorf("%d from another source, %d noise of %d", moved, noise, s.Noise)
	}
	for id, events := range published {
		partial := slices.Contains(s.Partial, events[0].ReportID)
		if len(events) != 4 || partial != (events[0].Name == "report.partial") || slices.Contains(s.Error, events[0].ReportID) ||
			slices.Contains(s.NoEvent, events[0].ReportID) {
			t.Errorf("event %s: %d times, %+v", id, len(events), events[0])
		}
		for _, again := range events {
			if again.ReportID != events[0].ReportID || string(again.Data) != string(events[0].Data) {
				t.Errorf("event %s tells two things", id)
			}
		}
	}
	together := 0
	for i := 1; i < len(s.Events); i++ {
		if s.Events[i].ID == s.Events[i-1].ID {
			together++
		}
	}
	if together > len(s.Events)/3 {
		t.Errorf("repetitions are not interleaved: %d of %d follow each other", together, len(s.Events))
	}
}

func TestAScenariosNumbersMayBeChanged(t *testing.T) {
	t.Parallel()
	s := NewScenario(ScenarioOptions{
		Reports: 50, Repeat: 1, PartialEvery: -1, SilentEvery: -1, ErrorEvery: -1, Faults: true,
		LargeEvery: 10, LargeSize: 1 << 20, MinSize: 500, MaxSize: 500,
	})
	large, faulty := 0, 0
	for _, report := range s.Reports {
		if report.Size == 1<<20 {
			large++
		} else if report.Size != 500 {
			t.Errorf("size %d", report.Size)
		}
		faulty += len(report.Faults)
	}
	if len(s.Finished) != 50 || len(s.Events) != 50 || s.Repetitions != 0 || large != 5 || faulty == 0 {
		t.Errorf("%d finished, %d events, %d repetitions, %d large, %d faults", len(s.Finished), len(s.Events), s.Repetitions, large, faulty)
	}
}

func TestFailureMetadataHasTheFormOfTheEra(t *testing.T) {
	t.Parallel()
	for era, want := range map[Era][2]string{
		V1:    {`"sections":[{"database":`, `{"error":"`},
		V2026: {`"error_code":"0287"`, `"error_code":"report_generation_failed"`},
	} {
		r := openReporter(t, ReporterOptions{Era: era})
		sc := NewScenario(ScenarioOptions{Era: era, Now: noon})
		for _, report := range sc.Reports {
			r.Add(report)
		}
		fetch(t, r.URL()+"/v1/reports/"+sc.Partial[0]).want(t, 200, want[0])
		fetch(t, r.URL()+"/v1/reports/"+sc.Error[0]).want(t, 200, want[1])
	}
}

func TestPlayPublishesEverythingAndEndsWhatIsLate(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	sc := NewScenario(ScenarioOptions{Reports: 60, LateEvery: 9, Noise: true})
	if err := s.Play(t.Context(), sc); err != nil {
		t.Fatal(err)
	}
	consumer := durable(t, client(t, s.Hub))
	for i, message := range take(t, consumer, len(sc.Events)) {
		if message.Headers().Get("ce-id") != sc.Events[i].ID {
			t.Fatalf("event %d is another", i)
		}
	}
	for _, want := range sc.Reports {
		if got, _ := s.Reporter.Get(want.ID); got.Status != want.Status || !got.CompletedAt.Equal(want.CompletedAt) {
			t.Errorf("report %+v instead of %+v", got, want)
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	s := open(t, Options{NoHub: true})
	sc := NewScenario(ScenarioOptions{Reports: 20, PartialEvery: 5, ErrorEvery: 7, MaxSize: 8 << 10})
	if err := s.Play(t.Context(), sc); err != nil {
		t.Fatal(err)
	}
	name := func(id, format string) string { return "2026/" + id + "." + format }
	path := func(dir, id string) string {
		report, _ := s.Reporter.Get(id)
		return filepath.Join(dir, filepath.FromSlash(name(id, report.Format)))
	}
	tests := map[string]struct {
		change func(t *testing.T, dir string)
		want   []string // parts of the complaints, in order
	}{
		"everything right": {func(*testing.T, string) {}, nil},
		"a missing file": {func(t *testing.T, dir string) { must(t, os.Remove(path(dir, sc.Finished[2]))) },
			[]string{"the finished report's file is missing"}},
		"a short file": {func(t *testing.T, dir string) { must(t, os.Truncate(path(dir, sc.Finished[0]), 100)) },
			[]string{"100 bytes instead of"}},
		"a wrong byte": {func(t *testing.T, dir string) { flip(t, path(dir, sc.Finished[0])) }, []string{"other bytes: sha256"}},
		"a second revision": {func(t *testing.T, dir string) { write(t, filepath.Join(dir, sc.Finished[0]+"-r2.pdf")) },
			[]string{"a second file of a finished report"}},
		"a file of a partial one": {func(t *testing.T, dir string) { write(t, filepath.Join(dir, sc.Partial[0]+".pdf")) },
			[]string{"a file of a partial report"}},
		"a file of a failed one": {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "2026", sc.Error[0]+".pdf")) },
			[]string{"a file of a report that ended as Error"}},
		"strays, also in a folder that only looks like the agent's": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "x"))
			write(t, filepath.Join(dir, "2026", ".recibo", "y"))
		}, []string{"2026/.recibo/y: no report's file", "x: no report's file"}},
		"a folder in a file's place": {func(t *testing.T, dir string) {
			must(t, os.Remove(path(dir, sc.Finished[1])))
			must(t, os.Mkdir(path(dir, sc.Finished[1]), 0o700))
		}, []string{"the finished report's file is missing"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, ".recibo", "staging", "half"))
			for _, id := range sc.Finished {
				must(t, os.MkdirAll(filepath.Dir(path(dir, id)), 0o700))
				must(t, os.WriteFile(path(dir, id), []byte(file(t, s.Reporter, id)), 0o600))
			}
			test.change(t, dir)
			got := s.Judge(dir, sc, func(id, format string) string { return "2026/" + id + "." + format })
			if len(got) != len(test.want) {
				t.Fatalf("complaints %q instead of %q", got, test.want)
			}
			for i, want := range test.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("complaint %q instead of %q", got[i], want)
				}
			}
		})
	}
	if got := s.Judge(filepath.Join(t.TempDir(), "never-made"), sc, nil); len(got) != len(sc.Finished) {
		t.Errorf("%d complaints about a folder that was never made", len(got))
	}
}

// A client that simply asks again gets over every fault that a scenario sprinkles, so an agent can as well.
func TestSprinkledFaultsAreOvercomeByAskingAgain(t *testing.T) {
	t.Parallel()
	s := open(t, Options{NoHub: true})
	sc := NewScenario(ScenarioOptions{Reports: 100, Faults: true, Now: time.Now(), MaxSize: 20 << 10})
	if err := s.Play(t.Context(), sc); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, id := range sc.Finished {
		report, _ := s.Reporter.Get(id)
		for range report.Faults {
			fetch(t, s.Reporter.download(id))
		}
		got := fetch(t, s.Reporter.download(id))
		must(t, os.WriteFile(filepath.Join(dir, id+"."+report.Format), []byte(got.body), 0o600))
	}
	if complaints := s.Judge(dir, sc, nil); complaints != nil {
		t.Error(complaints)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte("x"), 0o600))
}

// flip changes the last byte of a file.
func flip(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	end, err := file.Seek(-1, io.SeekEnd)
	must(t, err)
	_, err = file.WriteAt([]byte{'?'}, end)
	must(t, err)
	must(t, file.Close())
}
