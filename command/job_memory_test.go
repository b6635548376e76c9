package command

import (
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"recibo/sandbox"
)

// TestMemoryOfResultsIsBounded brings results home that are as large as the defaults take: one, which must not need half as
// much again as its size, and more at once than fetcher.memory has room for, which must not need half as much again as that.
func TestMemoryOfResultsIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of megabytes")
	}
	if runtime.GOOS != "linux" {
		t.Skip("reads the peak of a process from /proc")
	}
	in, upstream := installJobs(t, "agent:\n  workers: 6\n") // so that it is memory that holds results back
	for _, test := range []struct {
		name          string
		results, size int
		most          int // KiB
	}{
		{"one of fetcher.max_result", 1, 256 << 20, 256 * 3 / 2 << 10},
		{"three at a time in fetcher.memory", 6, 120 << 20, 384 * 3 / 2 << 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			ids := runLarge(t, upstream.fetcher, test.results, test.size)
			c := in.start("run")
			c.until(t, "the results are home", 5*time.Minute, func() bool {
				return !slices.ContainsFunc(ids, func(id string) bool { return exists(in.result(id)) != nil })
			})
			peak, err := peakOf(c.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			c.end(t, syscall.SIGTERM)
			if !c.ProcessState.Success() {
				t.Errorf("ended with %v\n%s", c.ProcessState, c.tail())
			}
			t.Logf("peak %d MiB for %d results of %d MiB", peak>>10, test.results, test.size>>20)
			if peak > test.most {
				t.Errorf("peak of %d KiB, want at most %d", peak, test.most)
			}
			for _, id := range ids {
				_, want := upstream.fetcher.Sum(id)
				if got, err := sumOf(in.result(id)); err != nil || got != want {
					t.Errorf("job %s: the file's hash is %s, %v; want %s", id, got, err, want)
				}
			}
		})
	}
}

func (in *installation) result(id string) string { return filepath.Join(in.home, id+".json") }

// runLarge completes jobs that have the same result, and takes their objects away in the end. What takes time is to encrypt
// and encode a result: that is done for the first.
func runLarge(t *testing.T, f *sandbox.Fetcher, n, size int) (ids []string) {
	t.Helper()
	var object []byte
	for i := range n {
		job := sandbox.Job{Size: int64(size), Rows: 1000, Seed: 1, NoEvent: true}
		if i > 0 {
			job.Status = sandbox.JobProcessing // nothing is stored
		}
		job, err := f.Run(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		key := f.Key(job.ID)
		t.Cleanup(func() { f.Objects.Delete(key) })
		switch {
		case i > 0:
			f.Set(job.ID, func(j *sandbox.Job) { j.Status = sandbox.JobCompleted })
			err = f.Objects.Put(key, object)
		case n > 1:
			object, _ = f.Objects.Get(key)
		}
		if err == nil {
			err = f.Emit(t.Context(), job.ID, sandbox.Emission{})
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, job.ID)
	}
	return ids
}
