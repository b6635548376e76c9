package sandbox

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestAJobScenarioFollowsFromItsOptions(t *testing.T) {
	t.Parallel()
	o := JobScenarioOptions{Jobs: 200, Now: noon, Seed: 5, ForgeEvery: 7, SilentEvery: 30}
	if !reflect.DeepEqual(NewJobScenario(o), NewJobScenario(o)) {
		t.Error("two drawings differ")
	}
	other := o
	other.Seed = 6
	if reflect.DeepEqual(NewJobScenario(o), NewJobScenario(other)) {
		t.Error("another seed gives the same scenario")
	}
}

func TestAJobScenarioHasItsParts(t *testing.T) {
	t.Parallel()
	s := NewJobScenario(JobScenarioOptions{Jobs: 200, Now: noon, ForgeEvery: 10, SilentEvery: 25})
	// Jobs 50, 100, 150 and 200 fail before they could be silent.
	if len(s.Jobs) != 200 || len(s.Failed) != 20 || len(s.Completed) != 180 || len(s.Silent) != 4 || s.Forgeries != 20 {
		t.Errorf("%d jobs, %d failed, %d completed, %d silent, %d forgeries",
			len(s.Jobs), len(s.Failed), len(s.Completed), len(s.Silent), s.Forgeries)
	}
	if len(s.Emissions) != 196+s.Repetitions+s.Forgeries || s.Repetitions < 100 || s.Repetitions > 2*196 {
		t.Errorf("%d emissions, %d repetitions", len(s.Emissions), s.Repetitions)
	}
	for _, job := range s.Jobs {
		if job.Size < 2<<10 || job.Size > 64<<10 || job.CompletedAt.After(noon) || (job.Error != "") != (job.Status == JobFailed) {
			t.Errorf("job %+v", job)
		}
	}
	kinds, told := map[Forgery]bool{}, map[string]bool{}
	for _, e := range s.Emissions {
		kinds[e.Forge] = true
		if e.SameBytes && !told[e.JobID] {
			t.Errorf("a replay before the first emission about %s", e.JobID)
		}
		if e.Forge == Genuine {
			told[e.JobID] = true
		}
	}
	if len(kinds) != len(forgeries)+1 || len(told) != 196 {
		t.Errorf("%d kinds of emissions about %d jobs", len(kinds), len(told))
	}
}

func TestPlayPublishesTheScenarioAndJudgeSeesEveryDifference(t *testing.T) {
	t.Parallel()
	f, sent := openFetcher(t, FetcherOptions{})
	s := NewJobScenario(JobScenarioOptions{Jobs: 60, Now: noon, SilentEvery: 20, FailedEvery: 7, ForgeEvery: 5, MaxSize: 4 << 10})
	if err := f.Play(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if len(sent.messages) != len(s.Emissions) || len(f.All()) != len(s.Jobs) {
		t.Errorf("%d messages, %d jobs", len(sent.messages), len(f.All()))
	}
	genuine := 0
	for _, message := range sent.messages {
		if verified(f, message, noon) {
			genuine++
		}
	}
	if genuine != len(s.Emissions)-s.Forgeries {
		t.Errorf("%d genuine messages instead of %d", genuine, len(s.Emissions)-s.Forgeries)
	}

	dir := t.TempDir()
	for _, id := range s.Completed {
		plain, err := opened(t, f, id)
		if err != nil {
			t.Fatal(err)
		}
		writeTo(t, filepath.Join(dir, id+".json"), plain)
	}
	writeTo(t, filepath.Join(dir, ".recibo", "owner"), nil)
	if complaints := f.JudgeJobs(dir, s, nil); len(complaints) != 0 {
		t.Errorf("complaints about a folder in order: %v", complaints)
	}
	missing, short, twice := s.Completed[0], s.Completed[1], s.Completed[2]
	if err := os.Remove(filepath.Join(dir, missing+".json")); err != nil {
		t.Fatal(err)
	}
	writeTo(t, filepath.Join(dir, short+".json"), f.Plaintext(short)[1:])
	writeTo(t, filepath.Join(dir, twice+"-r2.json"), nil)
	writeTo(t, filepath.Join(dir, s.Failed[0]+".json"), nil)
	writeTo(t, filepath.Join(dir, "stray"), nil)
	changed := f.Plaintext(s.Completed[3])
	changed[0] ^= 1
	writeTo(t, filepath.Join(dir, s.Completed[3]+".json"), changed)
	complaints := strings.Join(f.JudgeJobs(dir, s, nil), "\n")
	for _, want := range []string{
		missing + ".json: the completed job's file is missing", short + ".json: ", "bytes instead of", "other bytes",
		"a second file of a completed job", "a file of a failed job", "stray: no job's file",
	} {
		if !strings.Contains(complaints, want) {
			t.Errorf("no complaint %q in\n%s", want, complaints)
		}
	}
	if n := strings.Count(complaints, "\n") + 1; n != 6 {
		t.Errorf("%d complaints:\n%s", n, complaints)
	}
	if !slices.Contains(f.JudgeJobs(filepath.Join(dir, "absent"), s, nil), missing+".json: the completed job's file is missing") {
		t.Error("no complaint about a folder that was never made")
	}
}

func writeTo(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
