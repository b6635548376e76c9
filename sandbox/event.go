package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	reportFinished = "report.finished"
	reportPartial  = "report.partial"
)

// publishWindow is how many events may be on their way to the store at once.
const publishWindow = 2048

// Event is an event as Reporter publishes it, in CloudEvents' binary mode unless Structured.
type Event struct {
	ID       string    // ce-id; default: a new UUIDv7
	Name     string    // <resource>.<event>; default report.finished
	ReportID string    // in the payload and in ce-subject
	Version  string    // ce-schemaversion; default 2.0.0
	Source   string    // ce-source; default reporter
	Time     time.Time // ce-time; default: now
	Tenant   string    // ce-tenantid; default: none

	// Headers are added to those that follow from the other fields, or take their place whatever their case; an empty
	// value removes one. With Structured the names that begin with ce- are attributes of the envelope.
	Headers map[string]string

	Data       []byte // default: a payload with report_id
	Structured bool   // application/cloudevents+json
	Subject    string // of the NATS message; default: Name
}

// Publish publishes one event; the stream holds it when Publish returns nil.
func (h *Hub) Publish(ctx context.Context, e Event) error {
	return h.PublishBatch(ctx, []Event{e})
}

// PublishBatch publishes events in their order, many at a time; the stream holds all of them when it returns nil.
func (h *Hub) PublishBatch(ctx context.Context, events []Event) error {
	js, err := h.running()
	if err != nil {
		return err
	}
	patience := hubPatience
	if deadline, ok := ctx.Deadline(); ok {
		patience = max(time.Until(deadline), time.Millisecond)
	}
	for len(events) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		window := events[:min(len(events), publishWindow)]
		events = events[len(window):]
		if err := publishWindowed(ctx, js, window, patience); err != nil {
			return err
		}
	}
	return nil
}

func publishWindowed(ctx context.Context, js jetstream.JetStream, events []Event, patience time.Duration) error {
	promises := make([]jetstream.PubAckFuture, len(events))
	for i := range events {
		message, err := events[i].message()
		if err != nil {
			return err
		}
		if promises[i], err = js.PublishMsgAsync(message, jetstream.WithStallWait(patience)); err != nil {
			return fmt.Errorf("publish event %s: %w", events[i].ID, err)
		}
	}
	for i, promise := range promises {
		select {
		case <-promise.Ok():
		case err := <-promise.Err():
			return fmt.Errorf("publish event %s: %w", events[i].ID, err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// message is the event in the form of lib-streaming: lower-case names, values as they are.
func (e Event) message() (*nats.Msg, error) {
	e = e.complete()
	attributes := e.attributes()
	if e.Structured {
		return e.envelope(attributes)
	}
	message := &nats.Msg{Subject: e.Subject, Header: nats.Header{}, Data: e.Data}
	for name, value := range attributes {
		message.Header["ce-"+name] = []string{value}
	}
	for name, value := range e.Headers {
		override(message.Header, name, value)
	}
	return message, nil
}

func (e Event) complete() Event {
	if e.ID == "" {
		e.ID = newID()
	}
	if e.Name == "" {
		e.Name = reportFinished
	}
	if e.Version == "" {
		e.Version = "2.0.0"
	}
	if e.Source == "" {
		e.Source = "reporter"
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if e.Subject == "" {
		e.Subject = e.Name
	}
	if e.Data == nil {
		e.Data = payload(e.Name, e.ReportID, e.Time)
	}
	return e
}

// payload has the one field that is documented, and a few that a reader must not mind.
func payload(name, reportID string, at time.Time) []byte {
	status := Finished
	if name == reportPartial {
		status = Partial
	}
	data, _ := json.Marshal(struct {
		ReportID   string `json:"report_id"`
		Status     string `json:"status"`
		OccurredAt string `json:"occurred_at"`
	}{reportID, status, at.UTC().Format(time.RFC3339Nano)}) // strings can't fail
	return data
}

// attributes without the prefix. The type names the source since sources are one word.
func (e Event) attributes() map[string]string {
	resource, event, _ := strings.Cut(e.Name, ".")
	source := e.Source + "."
	if strings.ContainsAny(e.Source, "/: ") {
		source = ""
	}
	attributes := map[string]string{
		"specversion":     "1.0",
		"id":              e.ID,
		"source":          e.Source,
		"type":            "studio.lerian." + source + e.Name,
		"time":            e.Time.UTC().Format(time.RFC3339Nano),
		"schemaversion":   e.Version,
		"resourcetype":    resource,
		"eventtype":       event,
		"datacontenttype": "application/json",
	}
	if e.ReportID != "" {
		attributes["subject"] = e.ReportID
	}
	if e.Tenant != "" {
		attributes["tenantid"] = e.Tenant
	}
	return attributes
}

// envelope is the event in structured mode.
func (e Event) envelope(attributes map[string]string) (*nats.Msg, error) {
	message := &nats.Msg{Subject: e.Subject, Header: nats.Header{"content-type": {"application/cloudevents+json; charset=utf-8"}}}
	envelope := map[string]any{}
	for name, value := range attributes {
		envelope[name] = value
	}
	for name, value := range e.Headers {
		attribute, ok := strings.CutPrefix(strings.ToLower(name), "ce-")
		switch {
		case !ok:
			override(message.Header, name, value)
		case value == "":
			delete(envelope, attribute)
		default:
			envelope[attribute] = value
		}
	}
	envelope["data"] = json.RawMessage(e.Data)
	if !json.Valid(e.Data) {
		delete(envelope, "data")
		envelope["data_base64"] = e.Data
	}
	var err error
	message.Data, err = json.Marshal(envelope)
	return message, err
}

// override sets or, with an empty value, removes a header whatever its case: NATS tells cases apart.
func override(header nats.Header, name, value string) {
	for other := range header {
		if strings.EqualFold(other, name) {
			delete(header, other)
		}
	}
	if value != "" {
		header[name] = []string{value}
	}
}
