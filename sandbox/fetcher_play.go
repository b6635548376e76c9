package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Play takes the scenario's jobs to their ends and publishes its emissions in their order, many at a time; the broker
// has confirmed all of them when it returns nil. A restart of the broker is survived by publishing again what was not
// confirmed: messages may come twice. The result of a job is stored and recorded before the first word about it.
func (f *Fetcher) Play(ctx context.Context, sc JobScenario) error {
	due := make(map[string]Job, len(sc.Jobs)) // jobs that are not settled yet
	for _, job := range sc.Jobs {
		due[job.ID] = job
	}
	for emissions := range slices.Chunk(sc.Emissions, confirmWindow) {
		if err := f.playWindow(ctx, emissions, due); err != nil {
			return err
		}
	}
	for _, job := range sc.Jobs { // those that no event tells of
		if _, silent := due[job.ID]; !silent {
			continue
		}
		if _, err := f.settle(job); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fetcher) playWindow(ctx context.Context, emissions []JobEmission, due map[string]Job) error {
	messages := make([]Message, 0, len(emissions))
	for _, e := range emissions {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if job, first := due[e.JobID]; first {
			if _, err := f.settle(job); err != nil {
				return err
			}
			delete(due, e.JobID)
		}
		message, err := f.emission(e.JobID, e.Emission)
		if err != nil {
			return err
		}
		messages = append(messages, message)
	}
	if f.sender == nil {
		return nil
	}
	if err := f.sender.send(ctx, messages); err != nil {
		return fmt.Errorf("sandbox: publish %d events: %w", len(messages), err)
	}
	return nil
}

// JudgeJobs compares a download folder with what the scenario must have brought home: the result of each completed job
// as exactly one file under its name, byte for byte, and nothing else beside the agent's own folder. It returns a
// complaint for each difference. name gives a job's file name relative to dir, with forward slashes; nil is <id>.json.
func (f *Fetcher) JudgeJobs(dir string, sc JobScenario, name func(id string) string) []string {
	return judge(dir, f.wanted(sc, name), func(file string) string { return whyStrayJob(file, sc) })
}

func (f *Fetcher) wanted(sc JobScenario, name func(id string) string) []wanted {
	if name == nil {
		name = func(id string) string { return id + ".json" }
	}
	var want []wanted
	for _, id := range sc.Completed {
		size, sum := f.Sum(id)
		want = append(want, wanted{name(id), "completed job", size, sum})
	}
	return want
}

// whyStrayJob tells what a file that should not be there is about.
func whyStrayJob(file string, sc JobScenario) string {
	about := func(id string) bool { return strings.Contains(file, id) }
	switch {
	case slices.ContainsFunc(sc.Failed, about):
		return "a file of a failed job"
	case slices.ContainsFunc(sc.Completed, about):
		return "a second file of a completed job"
	}
	return "no job's file"
}
