package console

import (
	"time"

	"recibo/agent"
	"recibo/hub"
	"recibo/rest"
	"recibo/store"
)

// The calls and what they take and give. Receipts travel as store.Receipt.

// The names of the calls.
const (
	CallStatus     = "status"
	CallList       = "list"
	CallShow       = "show"
	CallPoll       = "poll"
	CallFetch      = "fetch"
	CallWatch      = "watch"
	CallRetry      = "retry"
	CallDismiss    = "dismiss"
	CallVerify     = "verify"
	CallBackup     = "backup"
	CallQuarantine = "quarantine/list"
	CallEntry      = "quarantine/show"
	CallRelease    = "quarantine/release"
	CallDrop       = "quarantine/drop"
)

// ListRequest selects receipts; each matching one is an item, newest first.
type ListRequest struct {
	States []store.State     `json:"states,omitempty"`
	Kind   store.Kind        `json:"kind,omitempty"`
	Since  time.Time         `json:"since,omitzero"`
	Meta   map[string]string `json:"meta,omitempty"`
	Limit  int               `json:"limit,omitempty"` // 0: all
}

// ShowResult is one receipt with the events that made it due.
type ShowResult struct {
	Receipt *store.Receipt `json:"receipt"`
	Events  []Event        `json:"events"`
}

// Event is an admitted event.
type Event struct {
	ID string `json:"id"`
	*store.EventRecord
}

// IDs names receipts, each by its id or by a prefix of one on record that only it has.
type IDs struct {
	IDs    []string      `json:"ids,omitempty"`
	States []store.State `json:"states,omitempty"` // retry: all receipts of these states
	Job    bool          `json:"job,omitempty"`    // ids are of Fetcher's jobs
	Force  bool          `json:"force,omitempty"`  // fetch
	Wait   bool          `json:"wait,omitempty"`   // watch
	Reason string        `json:"reason,omitempty"` // dismiss
}

// Outcome counts how the receipts of a call stand at its end. Each receipt is an item.
type Outcome struct {
	Receipts int                 `json:"receipts"`
	States   map[store.State]int `json:"states"`
}

// PollRequest asks for one sweep and for what it found to be brought home.
type PollRequest struct {
	Since   time.Duration `json:"since,omitempty"`
	MaxTime time.Duration `json:"max_time,omitempty"`
	DryRun  bool          `json:"dry_run,omitempty"`
	Events  bool          `json:"events,omitempty"` // drain the subscription first
}

// PollResult is what a poll saw and did.
type PollResult struct {
	Sweep    agent.SweepResult   `json:"sweep"`
	States   map[store.State]int `json:"states"`    // of what changed during the poll
	StillDue int                 `json:"still_due"` // pending when the time was over

	Quarantined int `json:"quarantined"` // events, during the poll
}

// VerifyRequest says what is to follow from a verification.
type VerifyRequest struct {
	Repair  bool `json:"repair,omitempty"`
	Missing bool `json:"missing,omitempty"`
	Adopt   bool `json:"adopt,omitempty"`
}

// VerifyResult counts verdicts.
type VerifyResult struct {
	Sound     int   `json:"sound"`
	Damaged   int   `json:"damaged"`
	Collected int   `json:"collected"`
	Repaired  int   `json:"repaired"`
	Adopted   int   `json:"adopted"`
	Left      int   `json:"left"` // damaged, or wanted back, and still not sound
	Bytes     int64 `json:"bytes"`
}

// Progress is shown while waiting.
type Progress struct {
	Transfers []agent.Transfer `json:"transfers,omitempty"`
	Bytes     int64            `json:"bytes,omitempty"` // verify: read since the last one
	Note      string           `json:"note,omitempty"`
}

// EntryRequest names quarantined events.
type EntryRequest struct {
	IDs      []uint64 `json:"ids,omitempty"`      // show: one
	Reason   string   `json:"reason,omitempty"`   // drop
	Report   string   `json:"report,omitempty"`   // release: the report it is about, where the event does not say
	Verified bool     `json:"verified,omitempty"` // release: all that pass their checks now, instead of IDs
	Dropped  bool     `json:"dropped,omitempty"`  // list: tombstones too
}

// Released is what a quarantined event was about. Each is an item.
type Released struct {
	Entry uint64 `json:"entry"`
	store.Key
	Admitted bool `json:"admitted"` // false: the same event was admitted before
}

// ReleasedVerified is what became of the events that nothing had shown to be authentic.
type ReleasedVerified struct {
	Admitted int      `json:"admitted"`
	Repeated int      `json:"repeated"`           // the same event was admitted before
	Disputed []uint64 `json:"disputed,omitempty"` // entries that contradict what was admitted
	Left     int      `json:"left"`               // still not verified
}

// Gate is whether requests of a class to a service are let through.
type Gate struct {
	Service string `json:"service"`
	rest.GateStatus
}

// StatusResult is the owner at a glance.
type StatusResult struct {
	PID           int          `json:"pid"`
	Version       string       `json:"version"`
	Instance      string       `json:"instance"`
	Folders       []string     `json:"folders"` // that the ledger has made its own
	Agent         agent.Status `json:"agent"`
	Ledger        store.Stats  `json:"ledger"`
	LedgerTrouble string       `json:"ledger_trouble,omitempty"` // why nothing can be written now
	Gates         []Gate       `json:"gates"`
	Subscriptions []hub.Health `json:"subscriptions"`
}
