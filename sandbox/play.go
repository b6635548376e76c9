package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Play makes the scenario's reports known and publishes its events in their order. The late reports are in progress
// until the events of the others are published; then they end, at the place in the list that they always had. Without a
// Hub there are no events.
func (s *Sandbox) Play(ctx context.Context, sc Scenario) error {
	late := make(map[string]Report, len(sc.Late))
	for _, id := range sc.Late {
		late[id] = Report{}
	}
	for _, report := range sc.Reports {
		if _, isLate := late[report.ID]; isLate {
			late[report.ID] = report
			report.Status, report.CompletedAt = Processing, time.Time{}
		}
		s.Reporter.Add(report)
	}
	isLate := func(e Event) bool { _, ok := late[e.ReportID]; return ok }
	early := slices.IndexFunc(sc.Events, isLate)
	if early < 0 {
		early = len(sc.Events)
	}
	if err := s.publish(ctx, sc.Events[:early]); err != nil {
		return err
	}
	for _, id := range sc.Late {
		s.Reporter.Add(late[id]) // stored and recorded first, announced afterwards
	}
	return s.publish(ctx, sc.Events[early:])
}

func (s *Sandbox) publish(ctx context.Context, events []Event) error {
	if s.Hub == nil || len(events) == 0 {
		return nil
	}
	return s.Hub.PublishBatch(ctx, events)
}

// ownFolder is the agent's own folder in the download folder.
const ownFolder = ".recibo"

// Judge compares a download folder with what the scenario must have brought home: each finished report as exactly one
// file under its name, byte for byte, and nothing else beside the agent's own folder. It returns a complaint for each
// difference. name gives a report's file name relative to dir, with forward slashes; nil is <id>.<format>.
func (s *Sandbox) Judge(dir string, sc Scenario, name func(id, format string) string) []string {
	return judge(dir, s.wanted(sc, name), func(file string) string { return whyStray(file, sc) })
}

// JudgeBoth is Judge and Fetcher.JudgeJobs for a folder that reports and results share, under their usual names.
func (s *Sandbox) JudgeBoth(dir string, sc Scenario, f *Fetcher, jobs JobScenario) []string {
	return judge(dir, append(s.wanted(sc, nil), f.wanted(jobs, nil)...), func(file string) string {
		if strings.HasSuffix(file, ".json") {
			return whyStrayJob(file, jobs)
		}
		return whyStray(file, sc)
	})
}

func (s *Sandbox) wanted(sc Scenario, name func(id, format string) string) []wanted {
	if name == nil {
		name = func(id, format string) string { return id + "." + format }
	}
	var want []wanted
	for _, id := range sc.Finished {
		report, _ := s.Reporter.Get(id)
		size, sum := s.Reporter.Sum(id)
		want = append(want, wanted{name(id, report.Format), "finished report", size, sum})
	}
	return want
}

// wanted is a file that has to be in a folder.
type wanted struct {
	file, of string // its relative name, and what it is the file of
	size     int64
	sum      string
}

// judge compares a folder with what has to be there, and there alone. stray tells what any other file is.
func judge(dir string, want []wanted, stray func(file string) string) []string {
	there, err := filesIn(dir)
	if err != nil {
		return []string{fmt.Sprintf("%s can't be read: %v", dir, err)}
	}
	var complaints []string
	for _, w := range want {
		if !there[w.file] {
			complaints = append(complaints, fmt.Sprintf("%s: the %s's file is missing", w.file, w.of))
			continue
		}
		delete(there, w.file)
		if complaint := compare(filepath.Join(dir, filepath.FromSlash(w.file)), w); complaint != "" {
			complaints = append(complaints, w.file+": "+complaint)
		}
	}
	left := make([]string, 0, len(there))
	for file := range there {
		left = append(left, file+": "+stray(file))
	}
	slices.Sort(left)
	return append(complaints, left...)
}

// compare reads a file once.
func compare(path string, want wanted) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, file)
	if err != nil {
		return err.Error()
	}
	switch sum := hex.EncodeToString(hash.Sum(nil)); {
	case size != want.size:
		return fmt.Sprintf("%d bytes instead of %d", size, want.size)
	case sum != want.sum:
		return fmt.Sprintf("other bytes: sha256 %s instead of %s", sum, want.sum)
	}
	return ""
}

// whyStray tells what a file that should not be there is about.
func whyStray(file string, sc Scenario) string {
	about := func(id string) bool { return strings.Contains(file, id) }
	switch {
	case slices.ContainsFunc(sc.Partial, about):
		return "a file of a partial report"
	case slices.ContainsFunc(sc.Error, about):
		return "a file of a report that ended as Error"
	case slices.ContainsFunc(sc.Finished, about):
		return "a second file of a finished report"
	}
	return "no report's file"
}

// filesIn lists everything below dir that is not a folder, by slash-separated name.
func filesIn(dir string) (map[string]bool, error) {
	files := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if path == dir && errors.Is(err, fs.ErrNotExist) {
				return fs.SkipAll // never made: every file is missing
			}
			return err
		}
		if entry.IsDir() {
			if entry.Name() == ownFolder && filepath.Dir(path) == filepath.Clean(dir) {
				return fs.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = true
		return err
	})
	return files, err
}
