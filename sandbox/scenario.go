package sandbox

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Scenario is what a sandbox plays: reports as they end, and the events about them.
type Scenario struct {
	Reports []Report
	Events  []Event // in the order of publishing, repetitions and noise included

	// Ids of the reports by what has to become of them.
	Finished []string // to be brought home; NoEvent and Late are among them
	Partial  []string
	Error    []string // ended as Error, without an event
	NoEvent  []string // finished, and no event tells
	Late     []string // still in progress while the events of the others are published

	Repetitions int // events whose id was published before, noise not counted
	Noise       int // events that a subscriber has to skip
}

// ScenarioOptions shape a scenario. Of a number with "every", 0 takes the default and below 0 is never. Where several
// apply to one report, the first of Error, Silent, Partial and Late holds.
type ScenarioOptions struct {
	Reports      int       // default 100
	Repeat       int       // how often each event is published; default 3
	PartialEvery int       // default 20
	SilentEvery  int       // reports that finish without an event; default 50
	ErrorEvery   int       // default 100
	LateEvery    int       // default never
	LargeEvery   int       // reports of LargeSize; default never
	MinSize      int64     // of the other files, in bytes; default 2 KiB
	MaxSize      int64     // sizes lie log-uniformly between the two; default 256 KiB
	LargeSize    int64     // default 64 MiB
	Faults       bool      // one finished report in eight meets faults that a client gets over within seconds
	Noise        bool      // events of major version 1 and of other names on the same subjects
	Era          Era       // of the failure metadata
	Now          time.Time // reports are created and ended in the two hours before; default: now
	Seed         uint64    // same options, same scenario
}

// spread is over how many other reports the repetitions of an event scatter.
const spread = 12

// NewScenario draws a scenario.
func NewScenario(o ScenarioOptions) Scenario {
	o = o.complete()
	d := &drawing{options: o, random: rand.New(rand.NewPCG(o.Seed, 1))}
	for number := 1; number <= o.Reports; number++ {
		d.report(number)
	}
	d.publish()
	return d.scenario
}

func (o ScenarioOptions) complete() ScenarioOptions {
	or := func(value *int, otherwise int) { *value = cmp.Or(*value, otherwise) }
	or(&o.Reports, 100)
	or(&o.Repeat, 3)
	or(&o.PartialEvery, 20)
	or(&o.SilentEvery, 50)
	or(&o.ErrorEvery, 100)
	o.MinSize = cmp.Or(o.MinSize, 2<<10)
	o.MaxSize = max(cmp.Or(o.MaxSize, 256<<10), o.MinSize)
	o.LargeSize = cmp.Or(o.LargeSize, 64<<20)
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	return o
}

// drawing is a scenario in the making.
type drawing struct {
	options  ScenarioOptions
	random   *rand.Rand
	scenario Scenario
	events   []placed
}

// placed is an event with its place in the order of publishing.
type placed struct {
	Event
	at    float64
	noise bool
}

// report draws one report and its events.
func (d *drawing) report(number int) {
	o, s := d.options, &d.scenario
	// Ended at least five minutes ago, so that a poll does not take it for one that is being announced just now.
	created := o.Now.Add(-2*time.Hour + time.Duration(float64(110*time.Minute)*float64(number)/float64(o.Reports+1)))
	report := Report{
		ID:          d.id(created),
		Format:      pick(d.random, "pdf", "pdf", "pdf", "pdf", "xml", "xml", "csv", "csv", "html", "txt"),
		Size:        d.size(number),
		Seed:        d.random.Uint64() | 1,
		Status:      Finished,
		CreatedAt:   created.Truncate(time.Microsecond),
		CompletedAt: created.Add(time.Duration(1+d.random.IntN(300_000)) * time.Millisecond).Truncate(time.Microsecond),
	}
	switch {
	case every(number, o.ErrorEvery):
		report.Status, report.Metadata = Failed, errorMetadata(o.Era)
		s.Error = append(s.Error, report.ID)
	case every(number, o.SilentEvery):
		s.NoEvent = append(s.NoEvent, report.ID)
	case every(number, o.PartialEvery):
		report.Status, report.Metadata = Partial, partialMetadata(o.Era, d.random)
		s.Partial = append(s.Partial, report.ID)
		d.announce(number, reportPartial, report)
	case every(number, o.LateEvery):
		s.Late = append(s.Late, report.ID)
		d.announce(number+o.Reports+spread+1, reportFinished, report) // behind the last repetition of the others
	default:
		d.announce(number, reportFinished, report)
	}
	if report.Status == Finished {
		s.Finished = append(s.Finished, report.ID)
		if o.Faults && d.random.IntN(8) == 0 {
			report.Faults = []Fault{mildFault(d.random, report.Size)}
		}
	}
	s.Reports = append(s.Reports, report)
}

// announce draws the event about a report, its repetitions, and the noise beside it.
func (d *drawing) announce(number int, name string, report Report) {
	emitted := report.CompletedAt.Add(time.Duration(d.random.IntN(1000)) * time.Millisecond)
	event := Event{
		ID: d.id(emitted), Name: name, ReportID: report.ID, Version: "2.0.0", Source: "reporter", Time: emitted,
		Data: payload(name, report.ID, emitted),
	}
	at := float64(number)
	d.events = append(d.events, placed{Event: event, at: at})
	for range d.options.Repeat - 1 {
		again := event
		if d.random.IntN(3) == 0 { // a redeployed producer emits it once more
			again.Source, again.Time = "//lerian.reporter", emitted.Add(time.Minute)
		}
		d.events = append(d.events, placed{Event: again, at: at + spread*d.random.Float64()})
	}
	if !d.options.Noise {
		return
	}
	if number%5 == 0 { // the same fact in major version 1, before it in version 2 and now and then under its id
		older := event
		older.Version, older.Data = pick(d.random, "1.4.0", "1", "v1.0"), []byte(`{"report":"`+report.ID+`"}`)
		if number%10 == 0 {
			older.ID = d.id(emitted)
		}
		d.events = append(d.events, placed{Event: older, at: at - 0.5, noise: true})
	}
	if number%7 == 0 { // what nobody asked for, on a subject that is subscribed to
		other := event
		other.ID, other.Subject = d.id(emitted), event.Name
		other.Name = pick(d.random, "report.created", "report.requested", "template.updated")
		d.events = append(d.events, placed{Event: other, at: at - 0.25, noise: true})
	}
}

// publish puts the events into their order.
func (d *drawing) publish() {
	slices.SortStableFunc(d.events, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	seen := map[string]bool{}
	for _, event := range d.events {
		d.scenario.Events = append(d.scenario.Events, event.Event)
		switch {
		case event.noise:
			d.scenario.Noise++
		case seen[event.ID]:
			d.scenario.Repetitions++
		default:
			seen[event.ID] = true
		}
	}
}

func (d *drawing) size(number int) int64 {
	o := d.options
	if every(number, o.LargeEvery) {
		return o.LargeSize
	}
	ratio := float64(o.MaxSize) / float64(o.MinSize)
	return int64(float64(o.MinSize) * math.Pow(ratio, d.random.Float64()))
}

// id draws a UUIDv7 of an instant (RFC 9562 §5.7).
func (d *drawing) id(at time.Time) string {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16|d.random.Uint64N(1<<12))
	binary.BigEndian.PutUint64(id[8:], d.random.Uint64())
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

func every(number, period int) bool { return period > 0 && number%period == 0 }

func pick[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

// mildFault is one that a right client gets over without a person and without a long wait.
func mildFault(random *rand.Rand, size int64) Fault {
	return pick(random,
		Fault{Kind: CutBody, Bytes: random.Int64N(size)},
		Fault{Kind: CutBody, Bytes: -1},
		Fault{Kind: NoLength, With: &Fault{Kind: CutBody, Bytes: size / 2}},
		Fault{Kind: NoLength},
		Fault{Kind: CloseDelimited},
		Fault{Kind: CloseDelimited, Bytes: size / 2},
		Fault{Kind: WrongLength},
		Fault{Kind: NotReady},
		Fault{Kind: MissingFile},
		Fault{Kind: HTMLInstead},
		Fault{Kind: JSONErrorInstead},
		Fault{Kind: Gzip},
		Fault{Kind: LateFirstByte, Interval: 50 * time.Millisecond},
		Fault{Kind: Status, Code: 503, Body: "upstream connect error"},
		Fault{Kind: TooMany, RetryAfter: "1"},
	)
}
