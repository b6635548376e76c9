package sandbox

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Forgery is what is wrong with an event. All but Future and OtherID are what somebody without the key could send.
type Forgery int

// The forgeries.
const (
	Genuine         Forgery = iota
	TamperBody              // a digit of the body, or the error's text, changed after signing
	OtherRoutingKey         // signed for the job's status, published by the key of the other one
	OtherExchange           // signed for another exchange
	OtherTenant             // X-Tenant-ID changed after signing
	OtherTime               // t a second later than was signed
	OtherID                 // rightly signed, with the ce-id of another job: the ce headers are under no signature
	WrongKey                // signed with Fetcher's internal key
	WrongVersion            // signature-version v2, changed after signing
	LegacyForm              // signed as Fetcher 1.x did, everything else as today
	Unsigned                // no x-message-signature
	Future                  // rightly signed a day ahead of time
)

// Emission is one publishing of a job's event. The zero value is the genuine event, signed now.
type Emission struct {
	Status    string    // completed or failed; default: the job's
	At        time.Time // t and ce-time; default: now
	Forge     Forgery
	SameBytes bool // a replay: the headers and the body of the last genuine emission; other fields but Status mean nothing

	Exchange   string                   // signed for and published to; default: the Fetcher's
	RoutingKey string                   // signed for and published by; default: what follows from the status
	Body       func(body []byte) []byte // changes the body before it is signed
	Headers    map[string]any           // put in their places after signing; nil removes one
}

// Message is an event ready to be published.
type Message struct {
	Exchange, RoutingKey string
	amqp.Publishing
}

var errNotEnded = errors.New("sandbox: only a completed or failed job has an event")

// Message makes the event of a job's end without publishing it.
func (f *Fetcher) Message(id string, e Emission) (Message, error) {
	record := f.job(id)
	if record == nil {
		return Message{}, fmt.Errorf("%w: %s", ErrUnknownJob, id)
	}
	if e.SameBytes {
		return f.last(id, e)
	}
	status := cmp.Or(e.Status, record.Status)
	if status != JobCompleted && status != JobFailed {
		return Message{}, fmt.Errorf("%w: %s is %s", errNotEnded, id, status)
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	if e.Forge == Future {
		e.At = e.At.AddDate(0, 0, 1)
	}
	body, err := record.event(status, f.path(id))
	if err != nil {
		return Message{}, fmt.Errorf("sandbox: write the event of job %s: %w", id, err)
	}
	if e.Body != nil {
		body = e.Body(body)
	}
	message := Message{
		Exchange:   cmp.Or(e.Exchange, f.options.Exchange),
		RoutingKey: cmp.Or(e.RoutingKey, record.routingKey(status)),
		Publishing: amqp.Publishing{
			ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: body, Headers: f.headers(record, status, e.At),
		},
	}
	f.sign(&message, record, e)
	for name, value := range e.Headers {
		message.Headers[name] = value
		if value == nil {
			delete(message.Headers, name)
		}
	}
	return message, nil
}

// last is the message of a replay.
func (f *Fetcher) last(id string, e Emission) (Message, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	status := cmp.Or(e.Status, f.jobs[id].Status)
	message, ok := f.sent[eventID(status, id)]
	if !ok {
		return message, fmt.Errorf("sandbox: nothing to replay: no event tells that job %s is %s", id, status)
	}
	return message, nil
}

// eventID is the ce-id: the same on every emission of one end of a job.
func eventID(status, id string) string { return "fetcher.job." + status + "." + id }

func (r *jobRecord) routingKey(status string) string {
	if r.Legacy {
		return "job." + status + "." + legacySource(r.Metadata)
	}
	return "job." + status
}

// legacySource is the source in a routing key of Fetcher 1.x.
func legacySource(metadata map[string]any) string {
	source := "unknown"
	if given, ok := metadata["source"]; ok {
		source = fmt.Sprint(given)
	}
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, source)
}

// tenant is what a Fetcher without tenants writes in its place.
func (f *Fetcher) tenant() string { return cmp.Or(f.options.Tenant, "single-tenant") }

// headers without those of the signature. The ce attributes and traceparent are byte arrays, as lib-streaming writes
// them; Fetcher 1.x had none.
func (f *Fetcher) headers(record *jobRecord, status string, at time.Time) amqp.Table {
	headers := amqp.Table{"X-Request-Id": newID(), "x-retry-count": int32(0)}
	if record.Legacy {
		return headers
	}
	trace := newTrace()
	headers["X-Tenant-ID"], headers["Traceparent"] = f.tenant(), trace
	for name, value := range map[string]string{
		"ce-specversion":     "1.0",
		"ce-id":              eventID(status, record.ID),
		"ce-source":          f.options.Source,
		"ce-type":            "studio.lerian.job." + status,
		"ce-time":            at.UTC().Format(time.RFC3339Nano),
		"ce-schemaversion":   "1.0.0",
		"ce-resourcetype":    "job",
		"ce-eventtype":       status,
		"ce-subject":         record.ID,
		"ce-datacontenttype": "application/json",
		"ce-tenantid":        f.tenant(),
		"traceparent":        trace,
	} {
		headers[name] = []byte(value)
	}
	return headers
}

// sign adds the headers of the signature and commits the forgery.
func (f *Fetcher) sign(m *Message, record *jobRecord, e Emission) {
	at := e.At.Unix()
	signed := signedEnvelope{at, "v1", f.tenant(), record.ID, m.Exchange, m.RoutingKey}
	key := f.keys.external
	switch e.Forge {
	case OtherExchange:
		signed.exchange += ".other"
	case WrongKey:
		key = f.keys.internal
	}
	signature := signed.sign(key, m.Body)
	if record.Legacy || e.Forge == LegacyForm {
		signature = signLegacy(key, at, m.Body)
	}
	m.Headers["t"], m.Headers["x-message-signature"] = strconv.FormatInt(at, 10), signature
	if !record.Legacy {
		m.Headers["signature-version"] = "v1"
	}
	switch e.Forge {
	case TamperBody:
		m.Body = tampered(m.Body)
	case OtherRoutingKey:
		m.RoutingKey = otherKey(m.RoutingKey)
	case OtherTenant:
		m.Headers["X-Tenant-ID"] = f.tenant() + "-other"
	case OtherTime:
		m.Headers["t"] = strconv.FormatInt(at+1, 10)
	case OtherID:
		m.Headers["ce-id"] = []byte(eventID(cmp.Or(e.Status, record.Status), newID()))
	case WrongVersion:
		m.Headers["signature-version"] = "v2"
	case Unsigned:
		delete(m.Headers, "x-message-signature")
	}
}

// tampered changes a digit of the size or the row count, or what the error says; the body remains JSON.
func tampered(body []byte) []byte {
	body = bytes.Clone(body)
	if at := bytes.Index(body, []byte(`,"format"`)); at > 0 {
		body[at-1] = '0' + (body[at-1]-'0'+1)%10
		return body
	}
	return bytes.Replace(body, []byte(`{"message":"`), []byte(`{"message":"forged: `), 1)
}

func otherKey(key string) string {
	if strings.Contains(key, JobCompleted) {
		return strings.Replace(key, JobCompleted, JobFailed, 1)
	}
	return strings.Replace(key, JobFailed, JobCompleted, 1)
}

// newTrace is a sampled traceparent (W3C Trace Context §3.2).
func newTrace() string {
	var ids [24]byte
	_, _ = rand.Read(ids[:]) // never fails
	return "00-" + hex.EncodeToString(ids[:16]) + "-" + hex.EncodeToString(ids[16:]) + "-01"
}
