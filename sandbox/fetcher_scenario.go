package sandbox

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// JobScenario is what a Fetcher plays: jobs as they end, and the publishings about them.
type JobScenario struct {
	Jobs      []Job
	Emissions []JobEmission // in the order of publishing, repetitions and forgeries included

	// Ids of the jobs by what has to become of them.
	Completed []string // to be brought home; Silent are among them
	Failed    []string
	Silent    []string // completed, and no event tells

	Repetitions int // genuine emissions about an end that was told before
	Forgeries   int // emissions that a consumer has to refuse
}

// JobEmission is one publishing about a job.
type JobEmission struct {
	JobID string
	Emission
}

// JobScenarioOptions shape a scenario. Of a number with "every", 0 takes the default and below 0 is never. Where both
// apply to one job, it fails.
type JobScenarioOptions struct {
	Jobs        int       // default 100
	Repeat      int       // how often an end is told at most: 1 to Repeat times, most of them signed anew; default 3
	FailedEvery int       // default 10
	SilentEvery int       // completed jobs without an event; default never
	ForgeEvery  int       // jobs that a forgery is about, all kinds in turn, before or after the genuine event; default never
	MinSize     int64     // of the results' plaintexts, in bytes; default 2 KiB
	MaxSize     int64     // sizes lie log-uniformly between the two; default 64 KiB
	Now         time.Time // jobs end in the two hours before; default: now
	Seed        uint64    // same options, same scenario
}

// repairEvery is how long a repairer waits before it tells an end again.
const repairEvery = 30 * time.Second

// forgeries that a scenario goes through.
var forgeries = [...]Forgery{
	TamperBody, OtherRoutingKey, OtherExchange, OtherTenant, OtherTime, OtherID, WrongKey, WrongVersion, LegacyForm, Unsigned, Future,
}

// NewJobScenario draws a scenario.
func NewJobScenario(o JobScenarioOptions) JobScenario {
	o = o.complete()
	d := &jobDrawing{options: o, drawing: drawing{random: rand.New(rand.NewPCG(o.Seed, 2))}}
	for number := 1; number <= o.Jobs; number++ {
		d.job(number)
	}
	d.publish()
	return d.scenario
}

func (o JobScenarioOptions) complete() JobScenarioOptions {
	o.Jobs = cmp.Or(o.Jobs, 100)
	o.Repeat = cmp.Or(o.Repeat, 3)
	o.FailedEvery = cmp.Or(o.FailedEvery, 10)
	o.MinSize = cmp.Or(o.MinSize, 2<<10)
	o.MaxSize = max(cmp.Or(o.MaxSize, 64<<10), o.MinSize)
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	return o
}

// jobDrawing is a scenario in the making.
type jobDrawing struct {
	drawing  // its ids
	options  JobScenarioOptions
	scenario JobScenario
	placed   []placedEmission
}

// placedEmission is an emission with its place in the order of publishing.
type placedEmission struct {
	JobEmission
	at float64
}

// job draws one job and what is published about it.
func (d *jobDrawing) job(number int) {
	o, s := d.options, &d.scenario
	created := o.Now.Add(-2*time.Hour + time.Duration(float64(110*time.Minute)*float64(number)/float64(o.Jobs+1)))
	ratio := float64(o.MaxSize) / float64(o.MinSize)
	job := Job{
		ID:        d.id(created),
		Status:    JobCompleted,
		Size:      int64(float64(o.MinSize) * math.Pow(ratio, d.random.Float64())),
		Seed:      d.random.Uint64() | 1,
		Metadata:  map[string]any{"source": "reporter", "correlationId": fmt.Sprintf("c-%d", number)},
		CreatedAt: created,
		Took:      time.Duration(1+d.random.IntN(60_000)) * time.Millisecond,
	}
	job.CompletedAt = created.Add(job.Took)
	switch {
	case every(number, o.FailedEvery):
		job.Status = JobFailed
		job.Error = pick(d.random, "connection midaz_onboarding does not resolve", "column amount does not exist",
			"dial tcp [redacted] connect: connection refused")
		s.Failed = append(s.Failed, job.ID)
	case every(number, o.SilentEvery):
		s.Silent = append(s.Silent, job.ID)
	}
	if job.Status == JobCompleted {
		s.Completed = append(s.Completed, job.ID)
	}
	s.Jobs = append(s.Jobs, job)
	if every(number, o.SilentEvery) && job.Status == JobCompleted {
		return
	}
	d.announce(number, job)
}

// announce draws the genuine emissions about a job's end, and the forged one.
func (d *jobDrawing) announce(number int, job Job) {
	o := d.options
	at := float64(number)
	d.place(at, JobEmission{job.ID, Emission{At: job.CompletedAt}})
	for n := range d.random.IntN(max(o.Repeat, 1)) {
		again := Emission{At: job.CompletedAt.Add(time.Duration(n+1) * repairEvery)}
		if d.random.IntN(4) == 0 {
			again = Emission{SameBytes: true}
		}
		d.place(at+spread*d.random.Float64(), JobEmission{job.ID, again})
		d.scenario.Repetitions++
	}
	if !every(number, o.ForgeEvery) {
		return
	}
	forged := Emission{Forge: forgeries[d.scenario.Forgeries%len(forgeries)], At: job.CompletedAt}
	if forged.Forge == Future {
		forged.At = o.Now
	}
	d.place(at+pick(d.random, -0.5, 0.5, spread), JobEmission{job.ID, forged})
	d.scenario.Forgeries++
}

func (d *jobDrawing) place(at float64, e JobEmission) {
	d.placed = append(d.placed, placedEmission{e, at})
}

// publish puts the emissions into their order.
func (d *jobDrawing) publish() {
	slices.SortStableFunc(d.placed, func(a, b placedEmission) int { return cmp.Compare(a.at, b.at) })
	for _, e := range d.placed {
		d.scenario.Emissions = append(d.scenario.Emissions, e.JobEmission)
	}
}
