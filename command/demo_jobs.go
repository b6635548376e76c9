package command

import (
	"github.com/dustin/go-humanize"

	"recibo/sandbox"
	"recibo/store"
)

// demoJobs is what demo --json prints of Fetcher's jobs.
type demoJobs struct {
	Jobs        int    `json:"jobs"`
	Events      int    `json:"events"` // genuine ones
	Repetitions int    `json:"repetitions"`
	Forgeries   int    `json:"forgeries"` // quarantined, all of them
	Delivered   int    `json:"delivered"`
	Failed      int    `json:"failed"`
	ByAsking    int    `json:"by_asking"` // that no event told of
	Bytes       uint64 `json:"bytes"`
}

// demoWork has something of everything even when it is short.
func demoWork(jobs int) sandbox.JobScenario {
	o := sandbox.JobScenarioOptions{Jobs: jobs, SilentEvery: silentJobs, ForgeEvery: 6, Seed: 1}
	if jobs < 10 {
		o.FailedEvery, o.SilentEvery, o.ForgeEvery = 4, 3, 2
	}
	return sandbox.NewJobScenario(o)
}

func (d *demonstration) countJobs(jobs map[store.State]int64) *demoJobs {
	if d.jobs == nil {
		return nil
	}
	return &demoJobs{
		Jobs: len(d.work.Jobs), Events: int(d.genuine()), Repetitions: d.work.Repetitions, Forgeries: d.work.Forgeries,
		Delivered: int(jobs[store.Delivered]), Failed: int(jobs[store.Failed]),
	}
}

// genuine is how many events of jobs were played that were no forgeries.
func (d *demonstration) genuine() uint64 { return uint64(len(d.work.Emissions) - d.work.Forgeries) }

// count takes one receipt into the result. One that changes while they are read may be missed: states are counted elsewhere.
func (d *demonstration) count(row *store.Receipt) {
	r := &d.result
	if len(d.receipts) < demoRows {
		d.receipts = append(d.receipts, row)
	}
	size := uint64(0)
	if f := row.Newest(); f != nil {
		size = uint64(f.Size)
	}
	if row.Kind == store.Job && r.Jobs != nil {
		r.Jobs.Bytes += size
		if row.FoundBy == "watch" {
			r.Jobs.ByAsking++
		}
		return
	}
	r.Bytes += size
	if row.FoundBy == "poll" {
		r.ByPoll++
	}
}

// compare compares the folder, which reports and results share, with what was played.
func (d *demonstration) compare(sb *sandbox.Sandbox, dir string) []string {
	if d.jobs == nil {
		return sb.Judge(dir, d.scenario, nil)
	}
	return sb.JudgeBoth(dir, d.scenario, d.jobs.fetcher, d.work)
}

func (d *demonstration) showJobs() {
	j := d.result.Jobs
	if j == nil {
		d.print("%s", noRabbitMQ)
		return
	}
	d.print("%d events, %d of them repetitions, and %d forgeries, about %d jobs: %d delivered (%s), %d failed; %d found by asking",
		j.Events, j.Repetitions, j.Forgeries, j.Jobs, j.Delivered, humanize.IBytes(j.Bytes), j.Failed, j.ByAsking)
}
