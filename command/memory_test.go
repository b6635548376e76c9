package command

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"recibo/sandbox"
	"recibo/store"
)

// TestMemoryDoesNotDependOnTheSizeOfAReport brings home what is far larger than the memory it may take.
func TestMemoryDoesNotDependOnTheSizeOfAReport(t *testing.T) {
	if testing.Short() {
		t.Skip("gigabytes")
	}
	if runtime.GOOS != "linux" {
		t.Skip("reads the peak of a process from /proc")
	}
	const (
		size = 2 << 30
		room = 6 << 30
		most = 64 << 10 // KiB
	)
	var disk syscall.Statfs_t
	if err := syscall.Statfs(t.TempDir(), &disk); err != nil {
		t.Fatal(err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < room {
		t.Skipf("%d MiB free where tests write, needs %d", free>>20, room>>20)
	}
	// One after the other: both at once would need room for two.
	for _, test := range []struct {
		name, proof string
		faults      []sandbox.Fault
	}{
		{"of known length", "length", nil},
		{"chunked", "chunked", []sandbox.Fault{{Kind: sandbox.NoLength}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := install(t, sandbox.Options{}, "  max_size: 3GiB\n", "")
			report := in.sandbox.Reporter.Add(sandbox.Report{Size: size, Faults: test.faults, CompletedAt: time.Now().Add(-time.Hour)})
			if err := in.sandbox.Hub.Publish(t.Context(), sandbox.Event{ReportID: report.ID}); err != nil {
				t.Fatal(err)
			}
			c := in.start("run")
			file := filepath.Join(in.home, report.ID+".pdf")
			c.until(t, "the report is home", 5*time.Minute, func() bool { _, err := os.Stat(file); return err == nil })
			peak, err := peakOf(c.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			c.end(t, syscall.SIGTERM)
			if !c.ProcessState.Success() {
				t.Errorf("ended with %v\n%s", c.ProcessState, c.tail())
			}
			t.Logf("peak %d MiB for %d MiB", peak>>10, size>>20)
			if peak > most {
				t.Errorf("peak of %d KiB, want at most %d", peak, most)
			}
			_, want := in.sandbox.Reporter.Sum(report.ID)
			if got, err := sumOf(file); err != nil || got != want {
				t.Errorf("the file's hash is %s, %v; want %s", got, err, want)
			}
			ledger, err := store.Open(in.ledger, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ledger.Close() }()
			r, err := ledger.Get(context.Background(), store.Key{Kind: store.Report, ID: report.ID})
			if err != nil {
				t.Fatal(err)
			}
			if f := r.Newest(); r.State != store.Delivered || f.Size != size || f.SHA256 != want || f.Proof != test.proof {
				t.Errorf("on record: %s, %+v", r.State, f)
			}
		})
	}
}

// peakOf is the most memory that a running process ever held, in KiB. The kernel's usage record of a child is of no use
// here: it begins with the memory of the process that forked it.
func peakOf(pid int) (kib int, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, text, found := strings.Cut(string(data), "VmHWM:")
	if !found {
		return 0, fmt.Errorf("no VmHWM of process %d", pid)
	}
	_, err = fmt.Sscan(text, &kib)
	return kib, err
}
