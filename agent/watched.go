package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"recibo/fetcher"
	"recibo/hub"
	"recibo/store"
)

// Jobs that are expected. Fetcher lists none, so only those whose ids are known here can be asked about.

// receivesJobs reports whether the event of a job may come to this process.
func (a *Agent) receivesJobs() bool { return len(a.JobSubscriptions) > 0 && a.working.Load() }

// HurryJobs makes the jobs that are expected due after a while, where they are not due sooner: something may have been
// missed.
func (a *Agent) HurryJobs(ctx context.Context, after time.Duration) error {
	var keys []store.Key
	for r, err := range a.Ledger.All(ctx, store.Query{States: []store.State{store.Expected}, Kind: store.Job}) {
		if err != nil {
			return err
		}
		keys = append(keys, r.Key())
	}
	_, err := a.ask(ctx, keys, func(r *store.Receipt, _ bool) bool {
		due := a.Now().Add(after)
		if r.State != store.Expected || !r.Due.IsZero() && !r.Due.After(due) {
			return false
		}
		r.Due = due
		return true
	})
	return err
}

// askAfterBindings has expected jobs asked about after each new binding of a subscription: a queue that was gone has lost
// events. What the queue still holds comes first.
func (a *Agent) askAfterBindings(ctx context.Context, s hub.Subscription) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Bound():
		}
		if err := a.HurryJobs(ctx, a.Config.PollGrace); err != nil && ctx.Err() == nil {
			a.Log.Warn("expected jobs could not be made due", "error", err)
		}
	}
}

// jobsFile is the file of ids to expect, as it was when it was last read.
type jobsFile struct {
	changed time.Time
	size    int64
	trouble string // that was logged
}

// expectJobsOnSchedule reads fetcher.jobs_file at the start and whenever it has changed.
func (a *Agent) expectJobsOnSchedule(ctx context.Context) {
	if a.JobsFile == "" {
		return
	}
	<-a.started // from then on it is known whether events can come
	var seen jobsFile
	for {
		err := a.expectListed(ctx, &seen)
		if err != nil && err.Error() != seen.trouble && ctx.Err() == nil {
			seen.trouble = err.Error()
			a.Log.Warn("fetcher.jobs_file can't be read", "error", err)
		}
		if !sleep(ctx, filesEvery) {
			return
		}
	}
}

// maxJobsFile is some 800,000 ids, in bytes.
const maxJobsFile = 32 << 20

// filesEvery is how often a file is looked at that others may change.
const filesEvery = 10 * time.Second

// ExpectListed expects the jobs of fetcher.jobs_file that are not on record.
func (a *Agent) ExpectListed(ctx context.Context) error {
	if a.JobsFile == "" {
		return nil
	}
	return a.expectListed(ctx, new(jobsFile))
}

func (a *Agent) expectListed(ctx context.Context, seen *jobsFile) error {
	file, err := os.OpenFile(a.JobsFile, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not make it wait
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read from
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", a.JobsFile)
	case info.Size() > maxJobsFile:
		return fmt.Errorf("%s has %d bytes, and no more than %d are read", a.JobsFile, info.Size(), maxJobsFile)
	}
	now := jobsFile{changed: info.ModTime(), size: info.Size()}
	if now.changed.Equal(seen.changed) && now.size == seen.size {
		seen.trouble = "" // told anew when it comes again
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(file, maxJobsFile))
	if err != nil {
		return err
	}
	keys, bad := ReadJobIDs(data)
	for _, line := range bad {
		a.Log.Warn("fetcher.jobs_file: a line is not the id of a job", "file", a.JobsFile, "line", line)
	}
	if _, err := a.watch(ctx, keys, true); err != nil {
		return err
	}
	*seen = now
	return nil
}

// ReadJobIDs reads one id a line; empty lines and those that begin with # are passed over. bad are the numbers of lines
// that hold something else.
func ReadJobIDs(data []byte) (keys []store.Key, bad []int) {
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		n++
		text := strings.TrimSpace(line)
		switch {
		case text == "", text[0] == '#':
		case fetcher.PlainID(text):
			keys = append(keys, store.Key{Kind: store.Job, ID: hub.CanonicalID(text)})
		default:
			bad = append(bad, n)
		}
	}
	return keys, bad
}
