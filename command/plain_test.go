package command

import (
	"syscall"
	"testing"
	"time"

	"recibo/sandbox"
)

// TestAPlainRun is the main job at the size of a month: 2,000 reports of mixed size, each event three times, partial,
// silent and failed ones among them, and a stop and a start in the middle. Every file is right, and every finished report
// cost one download.
func TestAPlainRun(t *testing.T) {
	t.Parallel()
	in := install(t, sandbox.Options{}, "", "")
	sc := sandbox.NewScenario(sandbox.ScenarioOptions{Reports: 2000, Noise: true, Seed: 7})
	first := in.start("run")
	if err := in.sandbox.Play(t.Context(), sc); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); in.sandbox.Reporter.Requests().DownloadsCompleted < len(sc.Finished)/3; {
		if time.Now().After(deadline) {
			t.Fatalf("a third is not home within two minutes\n%s", first.log.String())
		}
		time.Sleep(20 * time.Millisecond) // between two looks at a condition
	}
	first.end(t, syscall.SIGTERM)
	if code := first.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("stopped with exit code %d\n%s", code, first.log.String())
	}
	if n := in.sandbox.Reporter.Requests().DownloadsCompleted; n >= len(sc.Finished) {
		t.Fatalf("all %d were home before the stop: it was to come in the middle", n)
	}

	second := in.start("run", "--until-idle", "2s")
	select {
	case <-second.ended:
	case <-time.After(5 * time.Minute):
		t.Fatal("not idle within five minutes")
	}
	if code := second.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("ended with exit code %d\n%s", code, second.log.String())
	}
	for _, complaint := range in.sandbox.Judge(in.home, sc, nil) {
		t.Error(complaint)
	}
	asked := in.sandbox.Reporter.Requests()
	for _, id := range sc.Finished {
		if n := asked.DownloadsOf[id]; n != 1 {
			t.Errorf("%s: %d downloads, want 1", id, n)
		}
	}
	for _, id := range append(sc.Partial, sc.Error...) {
		if n := asked.DownloadsOf[id]; n != 0 {
			t.Errorf("%s has no file: %d downloads, want 0", id, n)
		}
	}
}
