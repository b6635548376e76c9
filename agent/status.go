package agent

import (
	"context"
	"strings"
	"time"
)

// Counts are of this process.
type Counts struct {
	Admitted    uint64 `json:"admitted"`
	Repeated    uint64 `json:"repeated"`
	Skipped     uint64 `json:"skipped"`
	Rejected    uint64 `json:"rejected"` // not authentic
	Quarantined uint64 `json:"quarantined"`
	Described   uint64 `json:"described"`
	Downloads   uint64 `json:"downloads"` // requests for a file
	Delivered   uint64 `json:"delivered"` // files published
	Bytes       uint64 `json:"bytes"`     // of files published
}

// Counts reads the counters.
func (a *Agent) Counts() Counts {
	c := &a.counts
	return Counts{
		Admitted: c.admitted.Load(), Repeated: c.repeated.Load(), Skipped: c.skipped.Load(), Rejected: c.rejected.Load(),
		Quarantined: c.quarantined.Load(), Described: c.descriptions.Load(), Downloads: c.downloads.Load(),
		Delivered: c.delivered.Load(), Bytes: c.bytes.Load(),
	}
}

// Status is the agent at a glance.
type Status struct {
	Counts
	Working   bool         `json:"working"`
	Active    int          `json:"active"`           // receipts in a queue or with a worker
	Ready     int          `json:"ready"`            // of them, described and waiting for a download
	Folder    string       `json:"folder,omitempty"` // why downloads are paused
	Keys      string       `json:"keys,omitempty"`   // why fetcher's keys of now are not in force
	LastSweep *SweepResult `json:"last_sweep,omitempty"`
	Silent    bool         `json:"silent"`
	At        time.Time    `json:"at"`
}

// paused says why downloads are paused, empty when they are not.
func (a *Agent) paused() string {
	var reasons []string
	for _, o := range a.outlets {
		if reason, _ := o.trouble.state(); reason != "" {
			reasons = append(reasons, reason)
		}
	}
	return strings.Join(reasons, "; ")
}

// waiting counts what is described and waits for its download.
func (a *Agent) waiting() int {
	n := a.ready.len()
	for i := range a.fetching {
		n += a.fetching[i].ready.len()
	}
	return n
}

// Status reads the state of this process and the last sweep.
func (a *Agent) Status(ctx context.Context) (Status, error) {
	reason := a.paused()
	s := Status{
		Counts: a.Counts(), Working: a.Working(), Active: a.Active(), Ready: a.waiting(), Folder: reason, Keys: a.keyTrouble(),
		Silent: a.silent(ctx), At: a.Now(),
	}
	last, ok, err := a.LastSweep(ctx)
	if ok {
		s.LastSweep = &last
	}
	return s, err
}
