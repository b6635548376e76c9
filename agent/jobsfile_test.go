package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"recibo/store"
)

func TestIDsAreReadFromAFileOfJobs(t *testing.T) {
	t.Parallel()
	a, b, c := unknownJobs(3)[0], unknownJobs(3)[1], unknownJobs(3)[2]
	upper := strings.ToUpper("aaaaaaaa-0000-7000-9000-00000000000f")
	for name, test := range map[string]struct {
		text string
		want []string
		bad  []int
	}{
		"nothing":               {"", nil, nil},
		"lines":                 {a + "\n" + b + "\n", []string{a, b}, nil},
		"no line break at last": {a + "\n" + b, []string{a, b}, nil},
		"Windows":               {"\ufeff" + a + "\r\n" + b + "\r\n\r\n", []string{a, b}, nil},
		"white space":           {"  " + a + "\t\n\n \n" + b + " ", []string{a, b}, nil},
		"comments":              {"# of May\n" + a + "\n  # and of June\n" + b, []string{a, b}, nil},
		"in capitals":           {upper, []string{strings.ToLower(upper)}, nil},
		"bad lines": {
			"id\n" + a + "\n" + b + " # mine\n" + c[:35] + "\n" + c + ";\n../etc\n" + b, []string{a, b}, []int{1, 3, 4, 5, 6}},
		"another encoding":    {"\xff\xfea\x00", nil, []int{1}},
		"a byte that is zero": {a + "\x00\n" + b, []string{b}, []int{1}},
	} {
		keys, bad := ReadJobIDs([]byte(test.text))
		var got []string
		for _, k := range keys {
			if k.Kind != store.Job {
				t.Errorf("%s: kind %s", name, k.Kind)
			}
			got = append(got, k.ID)
		}
		if !slices.Equal(got, test.want) || !slices.Equal(bad, test.bad) {
			t.Errorf("%s: got %q and bad lines %v, want %q and %v", name, got, bad, test.want, test.bad)
		}
	}
}

// TestAFileOfJobsIsFollowed: while it is missing, when it appears, when it changes, and not while it stays as it is.
func TestAFileOfJobsIsFollowed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs())
	h.JobsFile = filepath.Join(t.TempDir(), "jobs.txt")
	ids := unknownJobs(4)
	var seen jobsFile
	if err := h.expectListed(t.Context(), &seen); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	writes := func(text string, at time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(h.JobsFile, []byte(text), 0o600), os.Chtimes(h.JobsFile, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	expects := func(n int64) {
		t.Helper()
		if err := h.expectListed(t.Context(), &seen); err != nil {
			t.Fatal(err)
		}
		if got := h.count(store.Expected); got != n {
			t.Errorf("%d jobs are expected, want %d", got, n)
		}
	}
	at := time.Now().Add(-time.Hour)
	writes(ids[0]+"\nnonsense\n"+ids[1]+"\n", at)
	expects(2)
	// What is on record has its own course, however often it is listed.
	h.records(ids[0], func(r *store.Receipt) { r.State, r.Reason, r.Due = store.Parked, "by a person", time.Time{} })
	writes(ids[0]+"\nnonsense\n"+ids[2]+"\n", at.Add(time.Second)) // as long as before
	expects(2)
	if r := h.receiptOf(jobKey(ids[0])); r.State != store.Parked || r.Generation != 1 {
		t.Errorf("listed again:\n%s", describeReceipt(r))
	}
	writes(strings.Join(ids, "\n"), at.Add(time.Second)) // as old as before
	expects(3)
	// As long and as old as before is the same file: it is not read again.
	writes(strings.ReplaceAll(strings.Join(ids, "\n"), ids[3], unknownJobs(5)[4]), at.Add(time.Second))
	before := h.commits()
	expects(3)
	if got := h.commits(); got != before {
		t.Errorf("%d commits for a file that has not changed", got-before)
	}
	if err := os.Remove(h.JobsFile); err != nil {
		t.Fatal(err)
	}
	if err := h.ExpectListed(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
	h.JobsFile = ""
	if err := h.ExpectListed(t.Context()); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

func (h *house) commits() uint64 {
	h.t.Helper()
	stats, err := h.Ledger.Stats(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return uint64(stats.Commits)
}

// TestALargeFileOfJobs has more ids than anybody waits for at once: what they cost is paid once.
func TestALargeFileOfJobs(t *testing.T) {
	t.Parallel()
	n := 10_000
	if testing.Short() {
		n = 2_000
	}
	h := newHouse(t, jobs())
	h.JobsFile = filepath.Join(t.TempDir(), "jobs.txt")
	if err := os.WriteFile(h.JobsFile, []byte(strings.Join(unknownJobs(n), "\r\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	begun, before := time.Now(), h.commits()
	if err := h.ExpectListed(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, commits := time.Since(begun), h.commits()-before
	if got := h.count(store.Expected); got != int64(n) || commits > uint64(n/askPage+1) {
		t.Errorf("%d jobs are expected after %d commits", got, commits)
	}
	begun, before = time.Now(), h.commits()
	if err := h.ExpectListed(t.Context()); err != nil { // as after a restart
		t.Fatal(err)
	}
	if got := h.commits() - before; got != 0 {
		t.Errorf("%d commits for ids that are on record", got)
	}
	t.Logf("%d ids: %s, and %s when they are on record", n, first.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
}

// A file that is none, or has no end, holds up nothing.
func TestAJobsFileThatIsNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<30); err != nil {
		t.Fatal(err)
	}
	h := newHouse(t, jobs())
	for file, want := range map[string]string{pipe: "no regular file", large: "no more than", dir: "no regular file"} {
		h.JobsFile = file
		if err := h.ExpectListed(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
}

// badKeys is a Fetcher whose file of keys was replaced by one that can't be used.
type badKeys struct{ Fetcher }

func (badKeys) KeyTrouble() error { return errors.New("entry 1 of keys.txt must be 64 hex digits") }

func TestAKeyFileThatCanNotBeUsedIsToldOf(t *testing.T) {
	t.Parallel()
	h := newHouse(t, jobs())
	h.Fetcher = badKeys{h.Fetcher}
	log := make(lines, 16)
	h.Log = slog.New(slog.NewTextHandler(log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { h.watchKeys(ctx); close(ended) }()
	if line := <-log; !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "entry 1 of keys.txt must be 64 hex digits") {
		t.Errorf("logged: %s", line)
	}
	cancel()
	<-ended
	if s, err := h.Status(t.Context()); err != nil || s.Keys != "entry 1 of keys.txt must be 64 hex digits" {
		t.Errorf("%q, %v", s.Keys, err)
	}
}

// lines is a log that is read line by line.
type lines chan string

func (l lines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }
