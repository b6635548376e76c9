package agent

import (
	"testing"
	"time"

	"recibo/reporter"
	"recibo/store"
)

const (
	early = "2026-11-29T10:00:00.123Z"
	late  = "2026-11-29T11:00:00.456Z"
)

// on makes a receipt in a state; settled is the completion its file stands for, empty without a file.
func on(state store.State, settled string) *store.Receipt {
	r := &store.Receipt{Kind: store.Report, ID: "r", State: state, Settled: settled}
	if settled != "" {
		r.Files = []store.File{{Revision: 1, Name: "r.pdf", Completion: settled}}
	}
	return r
}

func forced(r *store.Receipt) *store.Receipt { r.Force = true; return r }

// undescribedHome is home without a description, so its completion is not known.
func undescribedHome() *store.Receipt {
	r := on(store.Delivered, "")
	r.Undescribed = true
	r.Files = []store.File{{Revision: 1, Name: "r.pdf"}}
	return r
}

// TestNext is the whole matrix: every state of a receipt against every status and completion that can be described.
func TestNext(t *testing.T) {
	var (
		expected  = func() *store.Receipt { return on(store.Expected, "") }
		pending   = func() *store.Receipt { return on(store.Pending, "") }
		delivered = func() *store.Receipt { return on(store.Delivered, early) }
		encrypted = func() *store.Receipt { return on(store.Encrypted, early) }
		partial   = func() *store.Receipt { return on(store.Partial, "") }
		failed    = func() *store.Receipt { return on(store.Failed, "") }
		parked    = func() *store.Receipt { return on(store.Parked, "") }
	)
	tests := []struct {
		why       string
		receipt   func() *store.Receipt
		status    string
		completed string
		want      action
	}{
		{"it ended, and nothing is home", expected, "Finished", early, download},
		{"it ended without its file", expected, "Partial", early, record},
		{"it ended, and no event tells of an error", expected, "Error", early, fail},
		{"still at work", expected, "Processing", "", expect},
		{"still at work", expected, "PendingExtraction", "", expect},
		{"a status of a newer version: not an end that is known", expected, "Archived", "", expect},
		{"a completion without a time is one all the same", expected, "Finished", "", download},

		{"the usual case", pending, "Finished", early, download},
		{"the event's name is a hint, the status counts", pending, "Partial", early, record},
		{"the event's name is a hint, the status counts", pending, "Error", early, fail},
		{"the event overtook the description", pending, "Processing", "", expect},
		{"the event overtook the description", pending, "PendingExtraction", "", expect},
		{"a status of a newer version: not an end that is known", pending, "Archived", "", expect},
		{"a completion without a time is one all the same", pending, "Finished", "", download},

		{"another event about the completion on record", delivered, "Finished", early, settled},
		{"the same moment, told with less precision", delivered, "Finished", "2026-11-29T10:00:00Z", settled},
		{"the same moment, told in another zone", delivered, "Finished", "2026-11-29T07:00:00.123-03:00", settled},
		{"generated again", delivered, "Finished", late, download},
		{"a completion that lost its time may be another", delivered, "Finished", "", download},
		{"a delivered report never degrades", delivered, "Partial", late, keep},
		{"a delivered report never degrades", delivered, "Error", late, keep},
		{"being generated again: its end is awaited", delivered, "Processing", "", expect},
		{"being generated again: its end is awaited", delivered, "PendingExtraction", "", expect},
		{"a status of a newer version: not an end that is known", delivered, "Archived", "", expect},

		{"a person asked for the file once more", func() *store.Receipt { return forced(delivered()) }, "Finished", early, download},
		{"what is home stays home even when asked again", func() *store.Receipt { return forced(delivered()) }, "Partial", late, keep},
		{"now it can be described, and its completion was never known", undescribedHome, "Finished", early, download},
		{"there is no completion to tell apart", undescribedHome, "Finished", "", settled},
		{"a delivered report never degrades", undescribedHome, "Error", early, keep},

		{"the missing data sources came back", partial, "Finished", late, download},
		{"nothing new", partial, "Partial", early, record},
		{"generated again, and others failed", partial, "Partial", late, record},
		{"generated again, and nothing came of it", partial, "Error", late, fail},
		{"being generated again: its end is awaited", partial, "Processing", "", expect},
		{"being generated again: its end is awaited", partial, "PendingExtraction", "", expect},
		{"a status of a newer version: not an end that is known", partial, "Archived", "", expect},

		{"generated again", failed, "Finished", late, download},
		{"generated again in part", failed, "Partial", late, record},
		{"nothing new", failed, "Error", early, fail},
		{"being generated again: its end is awaited", failed, "Processing", "", expect},
		{"being generated again: its end is awaited", failed, "PendingExtraction", "", expect},
		{"a status of a newer version: not an end that is known", failed, "Archived", "", expect},

		{"made due again: a fresh start", parked, "Finished", early, download},
		{"made due again: a fresh start", parked, "Partial", early, record},
		{"made due again: a fresh start", parked, "Error", early, fail},
		{"made due again: a fresh start", parked, "Processing", "", expect},
		{"made due again: a fresh start", parked, "PendingExtraction", "", expect},
		{"a status of a newer version: not an end that is known", parked, "Archived", "", expect},

		{"its object is home as it is stored", encrypted, "Finished", early, settled},
		{"another completion", encrypted, "Finished", late, download},
		{"what is home never degrades", encrypted, "Partial", late, keep},
		{"what is home never degrades", encrypted, "Error", late, keep},
		{"being run again", encrypted, "Processing", "", expect},
		{"being run again", encrypted, "PendingExtraction", "", expect},
		{"a status of a newer version: not an end that is known", encrypted, "Archived", "", expect},

		{"statuses are verbatim: another case is another status", pending, "finished", early, expect},
		{"no status at all", pending, "", early, expect},
	}
	covered := map[store.State]map[string]bool{}
	for _, tt := range tests {
		r := tt.receipt()
		if got := next(r, ofReport(&reporter.Report{Status: tt.status}).end, tt.completed); got != tt.want {
			t.Errorf("%s (settled %q) described as %s %s: got action %d, want %d: %s",
				r.State, r.Settled, tt.status, tt.completed, got, tt.want, tt.why)
		}
		if covered[r.State] == nil {
			covered[r.State] = map[string]bool{}
		}
		covered[r.State][tt.status] = true
	}
	for _, state := range store.States {
		for _, status := range []string{"Finished", "Partial", "Error", "Processing", "PendingExtraction", "Archived"} {
			if !covered[state][status] {
				t.Errorf("no case for %s described as %s", state, status)
			}
		}
	}
}

func TestWaitsGrowToTheirLimit(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	old := &store.Receipt{}
	fresh := &store.Receipt{Admitted: now.Add(-time.Second)}
	for _, tt := range []struct {
		receipt *store.Receipt
		asked   int
		want    time.Duration
	}{
		{old, 0, 5 * time.Minute}, {old, 1, 10 * time.Minute}, {old, 6, 320 * time.Minute}, {old, 7, 6 * time.Hour}, {old, 9999, 6 * time.Hour},
		{fresh, 0, 2 * time.Second}, {fresh, 3, 16 * time.Second},
	} {
		tt.receipt.Asked = tt.asked
		if got := askAgain(tt.receipt, now); got != tt.want {
			t.Errorf("admitted %v, asked %d times: wait %v, want %v", tt.receipt.Admitted, tt.asked, got, tt.want)
		}
	}
}
