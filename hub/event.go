// Package hub takes events from Lerian's Streaming Hub. Whatever the transport, a message becomes one Event, or a reason
// why it is none, and is acknowledged only once whoever admits events says that they are on disk.
package hub

import (
	"context"
	"time"
)

// The names of the events that recibo lives from.
const (
	ReportFinished = "report.finished"
	ReportPartial  = "report.partial"
)

// Event is a message of the Hub in the one form every transport brings it to.
type Event struct {
	ID       string            // ce-id: the key for dropping repetitions, 1 to 1024 bytes
	Name     string            // <ce-resourcetype>.<ce-eventtype>, such as report.finished
	Version  string            // ce-schemaversion as written, such as 2.0.0; empty when missing
	Source   string            // ce-source; may differ between re-emissions, so it is no part of the key
	Type     string            // ce-type
	Tenant   string            // ce-tenantid; empty when missing
	Time     time.Time         // ce-time; zero when missing or unreadable
	ReportID string            // data.report_id, data.reportId or ce-subject; of the feed Jobs the job's id
	Headers  map[string]string // the CloudEvents attributes, lower case without "ce-", and traceparent; nothing else
	Data     []byte            // the payload as it came
}

// Verdict is what becomes of a message.
type Verdict int

// The verdicts.
const (
	Accept     Verdict = iota // to be admitted
	Skip                      // readable and not for us: another event, another major version
	Quarantine                // for us, and not to be processed without a person
	Reject                    // not authentic: counted, not kept
)

// Feed tells what events are about. The id of an event is unique within its feed.
type Feed int

// The feeds.
const (
	Reports Feed = iota // events of the Hub about reports: hints, for the API is the authority
	Jobs                // signed events of Fetcher about jobs: what they say is what a job is settled from
)

// Delivery is one message as a transport hands it over.
type Delivery struct {
	Feed      Feed
	Event     Event
	Verdict   Verdict
	Reason    string // why it is not accepted; for people, names no secret
	Unproven  bool   // nothing shows that it is authentic: only so many of these are kept
	Note      string // what is odd about an accepted one; for people
	Transport string // nats, webhook, amqp, kafka
	Origin    string // where in the transport: stream and sequence, queue, topic and offset
	Raw       []byte // the message body as received
}

// Outcome is what admission made of a delivery.
type Outcome int

// The outcomes. All of them are on disk (or counted, for Skip and Reject) when they are returned.
const (
	Admitted    Outcome = iota // new: its receipt is due
	Repeated                   // the id was admitted before
	Skipped                    // a delivery with verdict Skip or Reject
	Quarantined                // a delivery with verdict Quarantine, or an id that conflicts with an earlier event
)

// AdmitFunc makes a batch durable. On an error nothing of the batch may be acknowledged; the transport gives it back
// with a delay. Otherwise it returns one Outcome per delivery, in order.
type AdmitFunc func(context.Context, []Delivery) ([]Outcome, error)

// Health is the state of a subscription.
type Health struct {
	Transport string    `json:"transport"`
	Healthy   bool      `json:"healthy"` // bound and able to receive
	Since     time.Time `json:"since"`
	Detail    string    `json:"detail,omitempty"` // why not, or what it is bound to
	Bindings  int       `json:"bindings"`         // how often it was bound anew; each one calls for a sweep
	Received  uint64    `json:"received"`
	Backlog   uint64    `json:"backlog"`    // messages that wait in the transport, as it last said
	LastEvent time.Time `json:"last_event"` // when an event for us was last received
}

// Subscription is one transport's hold on the Hub.
type Subscription interface {
	// Run receives until ctx ends, through every fault that time can mend. It returns nil after ctx ended and its own
	// work is done, and an error only for what a person must change.
	Run(ctx context.Context, admit AdmitFunc) error
	// Drain receives what is there now and returns once the subscription has nothing more to give.
	Drain(ctx context.Context, admit AdmitFunc) error
	Health() Health
	// Bound receives a value after each new binding.
	Bound() <-chan struct{}
}
