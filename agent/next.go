package agent

import (
	"time"

	"recibo/reporter"
	"recibo/store"
)

// action is what follows from a description of a report or job.
type action int

const (
	download action = iota // bring the file home
	settled                // the file of this very completion is home
	record                 // record the failed data sources
	fail                   // record that it ended in an error
	expect                 // in progress: ask again later
	keep                   // leave the delivered file and its state alone, and say what upstream now says
)

// next decides from what is on record and what the authority just said, and from nothing else: the name of an event
// is a hint and has no say here.
func next(r *store.Receipt, end ending, completion string) action {
	home := r.Newest() != nil
	switch end {
	case finished:
		if home && !r.Force && reporter.SameCompletion(r.Settled, completion) {
			return settled
		}
		return download
	case partial:
		if home {
			return keep // a delivered report never degrades
		}
		return record
	case failed:
		if home {
			return keep
		}
		return fail
	default:
		return expect
	}
}

// Bounds of asking again about what has not ended, and about what may still change.
const (
	askFirst = 5 * time.Minute
	askCap   = 6 * time.Hour
	// soonFirst is the first wait where an event says that the report has ended and the description does not know it yet.
	soonFirst = 2 * time.Second
	// changeFor bounds how long a partial or failed report is asked about again. After that a sweep, an event or a
	// person brings news: otherwise the cost would grow with history.
	changeFor = 7 * 24 * time.Hour
)

// askAgain returns the wait before the next description of a report that has not ended. An event that says otherwise
// makes it short, for the description may lag behind the event.
func askAgain(r *store.Receipt, now time.Time) time.Duration {
	first := askFirst
	if !r.Admitted.IsZero() && now.Sub(r.Admitted) < askFirst {
		first = soonFirst
	}
	return doubled(first, askCap, r.Asked)
}

// doubled returns first doubled n times, at most limit.
func doubled(first, limit time.Duration, n int) time.Duration {
	wait := first
	for ; n > 0 && wait < limit; n-- {
		wait *= 2
	}
	return min(wait, limit)
}
