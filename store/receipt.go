package store

import (
	"encoding/json"
	"time"
)

// Kind tells what a receipt is about.
type Kind string

// The kinds.
const (
	Report Kind = "report" // a report of Reporter
	Job    Kind = "job"    // an extraction job of Fetcher
)

// State is where a receipt stands.
type State string

// The states.
const (
	Expected  State = "expected"  // asked for or seen in progress; asked about again with back-off
	Pending   State = "pending"   // to be described and brought home
	Delivered State = "delivered" // published, hashed and synced; never degrades
	Partial   State = "partial"   // described as Partial, failed data sources recorded
	Failed    State = "failed"    // ended as an error upstream
	Encrypted State = "encrypted" // published as it is stored, since no storage key opens it
	Parked    State = "parked"    // waits for a person or a newer event
)

// States lists every state in the order they are shown.
var States = [...]State{Expected, Pending, Delivered, Encrypted, Partial, Failed, Parked}

// Key names a receipt.
type Key struct {
	Kind Kind   `json:"kind"`
	ID   string `json:"id"`
}

// Receipt is what recibo knows about one report or job.
type Receipt struct {
	Kind  Kind   `json:"kind"`
	ID    string `json:"id"`
	State State  `json:"state"`

	// Generation rises with every admission; an attempt settles only the generation that it started from.
	Generation uint64    `json:"generation"`
	Handled    uint64    `json:"handled"`             // the generation that the last attempt with an outcome started from
	Due        time.Time `json:"due,omitzero"`        // when to work on it; zero: nothing to do
	Urgent     bool      `json:"urgent,omitempty"`    // asked for by a person: ahead of others
	Force      bool      `json:"force,omitempty"`     // download even if the completion is on record
	Stale      bool      `json:"stale,omitempty"`     // in progress for longer than agent.stale_after
	Dismissed  bool      `json:"dismissed,omitempty"` // failed by a person's word, until news takes it up again
	Attempts   int       `json:"attempts"`            // answers about this very report that failed, since the last success
	Asked      int       `json:"asked,omitempty"`     // descriptions that found it not ended, since the last change

	FoundBy     string    `json:"found_by"`              // event, poll, watch, fetch: what first made it known
	EventName   string    `json:"event_name,omitempty"`  // the newest event's name
	Status      string    `json:"status,omitempty"`      // as last described upstream
	CompletedAt string    `json:"completed,omitempty"`   // as last described, RFC 3339 as written upstream
	CreatedAt   string    `json:"created_at,omitempty"`  // upstream's creation time, as written there
	Settled     string    `json:"settled,omitempty"`     // the completion that the newest file stands for
	Undescribed bool      `json:"undescribed,omitempty"` // brought home without a description
	TemplateID  string    `json:"template_id,omitempty"`
	Tenant      string    `json:"tenant,omitempty"`
	Source      string    `json:"source,omitempty"`    // ce-source of the newest event
	Authority   string    `json:"authority,omitempty"` // of a job: whose word it was settled by
	Contested   bool      `json:"contested,omitempty"` // of a job: its events contradict each other, and no release has decided
	Admitted    time.Time `json:"admitted,omitzero"`   // the newest admission of an event

	// Announced is what the newest event of each name said, where the event carries what its receipt is settled from.
	Announced map[string]json.RawMessage `json:"announced,omitempty"`

	Intent        *Intent         `json:"intent,omitempty"` // a publication announced and not yet settled
	Files         []File          `json:"files,omitempty"`  // by revision, oldest first
	FailedSources []FailedSource  `json:"failed_sources,omitempty"`
	SourcesKnown  bool            `json:"sources_known"`
	Reason        string          `json:"reason,omitempty"`
	Metadata      json.RawMessage `json:"metadata,omitempty"` // as upstream wrote it
	Events        []string        `json:"events,omitempty"`   // newest MaxEvents ids
	Timeline      []Entry         `json:"timeline,omitempty"` // newest MaxTimeline entries
	Created       time.Time       `json:"created"`
	Updated       time.Time       `json:"updated"`
}

// Bounds of what one receipt keeps, so that its cost does not grow with its history.
const (
	MaxEvents   = 64
	MaxTimeline = 64
)

// File is one published revision.
type File struct {
	Revision   int       `json:"revision"`
	Dir        string    `json:"dir,omitempty"` // absolute; empty: downloads.dir
	Name       string    `json:"name"`          // relative to the folder, with forward slashes
	Size       int64     `json:"size"`
	SHA256     string    `json:"sha256"`         // lower-case hex
	Proof      string    `json:"proof"`          // what showed that the body was whole
	Rows       int64     `json:"rows,omitempty"` // of a job's result, as announced
	HMAC       string    `json:"hmac,omitempty"` // of a job's result, as announced; verified unless the proof says otherwise
	Completion string    `json:"completion,omitempty"`
	Published  time.Time `json:"published"`
	Replaced   bool      `json:"replaced,omitempty"` // a later revision took its name
}

// Intent announces the publication of a staged file: it is committed once the file and its folder are synced, and
// before the rename, so that after a crash the file is published exactly once.
type Intent struct {
	Staged     string    `json:"staged"` // name in the staging folder
	File       File      `json:"file"`
	Previous   *Previous `json:"previous,omitempty"` // what the final name holds and is to be replaced; nil: nothing
	Generation uint64    `json:"generation"`         // what the attempt started from
	At         time.Time `json:"at"`
}

// Previous is the content of a file that a publication replaces.
type Previous struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// FailedSource is a data source that failed in a partial report.
type FailedSource struct {
	Name string `json:"name"`
	Code string `json:"code,omitempty"`
}

// Entry is one line of a receipt's timeline.
type Entry struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
}

// Key of the receipt.
func (r *Receipt) Key() Key { return Key{r.Kind, r.ID} }

// Newest returns the newest file, nil when there is none.
func (r *Receipt) Newest() *File {
	if len(r.Files) == 0 {
		return nil
	}
	return &r.Files[len(r.Files)-1]
}

// TakeUp gives a receipt that was dismissed a state in which it is waited for again; others it leaves as they are.
func (r *Receipt) TakeUp(state State) {
	if r.Dismissed {
		r.State, r.Dismissed, r.Reason = state, false, ""
	}
}

// Note adds a line to the timeline.
func (r *Receipt) Note(at time.Time, what string) {
	r.Timeline = append(r.Timeline, Entry{at, what})
	if n := len(r.Timeline); n > MaxTimeline {
		r.Timeline = append(r.Timeline[:0], r.Timeline[n-MaxTimeline:]...)
	}
}
