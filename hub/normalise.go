package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// Message is what a transport received, before anything about it is known.
type Message struct {
	Headers     map[string][]string // as received: names in any case, every value; byte arrays turned into text
	ContentType string              // the transport's own; when empty, the header content-type
	Body        []byte              // kept, not copied
	Transport   string              // nats, webhook, amqp, kafka
	Origin      string              // where in the transport, such as stream and sequence
}

// IsCloudEvent reports whether the message claims to be an event at all. Transports with a way to refuse, such as HTTP,
// ask before anything is stored.
func (m Message) IsCloudEvent() bool {
	if strings.HasPrefix(bareType(m.contentType()), cloudEventsType) {
		return true
	}
	for header := range m.Headers {
		if name, ok := attributeName(header); ok && name != "traceparent" {
			return true
		}
	}
	return false
}

// cloudEventsType starts the media type of every message whose body holds the attributes too.
const cloudEventsType = "application/cloudevents"

func (m Message) contentType() string {
	if m.ContentType != "" {
		return m.ContentType
	}
	for header, values := range m.Headers {
		if len(values) > 0 && strings.EqualFold(header, "content-type") {
			return values[0]
		}
	}
	return ""
}

// Normaliser is the one door for all transports: it turns messages into deliveries by the contract with the Hub. It keeps
// no state and may be used by several goroutines.
type Normaliser struct {
	major         int
	acceptMissing bool
	tenant        string
	keys          []SigningKey
}

// NewNormaliser returns a normaliser for a valid configuration.
func NewNormaliser(c Config) (*Normaliser, error) {
	if c.MajorVersion < 1 {
		return nil, fmt.Errorf("hub.major_version: %d is not a major version; 1 or more", c.MajorVersion)
	}
	for i, key := range c.SigningKeys {
		if err := key.validate(); err != nil {
			return nil, fmt.Errorf("hub.signing_keys[%d].%w", i, err)
		}
	}
	return &Normaliser{
		major:         c.MajorVersion,
		acceptMissing: c.MissingVersion == MissingAccept,
		tenant:        c.Tenant,
		keys:          c.SigningKeys,
	}, nil
}

// Delivery judges one message. It never fails: what is no event for us becomes a delivery with another verdict than
// Accept, and a reason.
//
// What nobody asked for is skipped before its signature is looked at, since a shared topic carries events of other
// producers, whose keys we don't have, and a skip leaves no trace. Everything else is verified before it is trusted.
func (n *Normaliser) Delivery(m Message) Delivery {
	d := Delivery{Transport: m.Transport, Origin: m.Origin, Raw: m.Body}
	parts, err := decode(m)
	d.Event, d.Note, _ = describe(parts.readings[0], parts.data)
	if err != nil {
		return d.judged(Quarantine, err.Error())
	}
	if reason := n.notForUs(parts.readings[0]); reason != "" {
		return d.judged(Skip, reason)
	}
	attrs, verdict, reason := n.authenticate(parts)
	if verdict != Accept {
		return d.judged(verdict, reason)
	}
	var reportErr error
	d.Event, d.Note, reportErr = describe(attrs, parts.data)
	if reason := n.notForUs(attrs); reason != "" {
		return d.judged(Skip, reason)
	}
	if err := errors.Join(n.check(attrs), reportErr); err != nil {
		return d.judged(Quarantine, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return d
}

// Deliveries judges one message that may be a batch (application/cloudevents-batch+json, CloudEvents over HTTP only).
// A bad member of a batch costs only itself.
func (n *Normaliser) Deliveries(m Message) []Delivery {
	if bareType(m.contentType()) != batchType {
		return []Delivery{n.Delivery(m)}
	}
	var members []json.RawMessage
	if err := json.Unmarshal(m.Body, &members); err != nil {
		d := Delivery{Event: Event{Headers: map[string]string{}}, Transport: m.Transport, Origin: m.Origin, Raw: m.Body}
		return []Delivery{d.judged(Quarantine, "not a JSON array, as a batch of events must be")}
	}
	deliveries := make([]Delivery, len(members))
	for i, member := range members {
		deliveries[i] = n.Delivery(Message{
			ContentType: structuredType,
			Body:        member,
			Transport:   m.Transport,
			Origin:      fmt.Sprintf("%s#%d", m.Origin, i),
		})
	}
	return deliveries
}

func (d Delivery) judged(v Verdict, reason string) Delivery {
	d.Verdict, d.Reason = v, reason
	return d
}

// decode always returns at least one reading, an empty one in the worst case.
func decode(m Message) (decoded, error) {
	media := bareType(m.contentType())
	switch {
	case media == structuredType:
		return decodeStructured(m.Body)
	case strings.HasPrefix(media, cloudEventsType):
		return decoded{readings: []attributes{{}}}, fmt.Errorf("event format %s is not supported here", shown(media))
	case !m.IsCloudEvent():
		return decoded{readings: []attributes{{}}, data: m.Body}, errors.New("not a CloudEvent: no ce- attributes and no structured body")
	}
	return decodeBinary(m)
}

// describe fills in all that can be told of an event, also of one that will not be accepted, so that a person who
// releases it finds it complete. note is for people; the error says why there is no report id.
func describe(attrs attributes, data []byte) (e Event, note string, err error) {
	e = Event{
		Name:    nameOf(attrs),
		Version: attrs["schemaversion"],
		Source:  attrs["source"],
		Type:    attrs["type"],
		Tenant:  attrs["tenantid"],
		Time:    timeOf(attrs["time"]),
		Headers: maps.Clone(attrs),
		Data:    data,
	}
	if validateID(attrs["id"]) == nil {
		e.ID = attrs["id"]
	}
	e.ReportID, note, err = reportID(attrs, data)
	e.ReportID = CanonicalID(e.ReportID)
	return e, note, err
}

// shown quotes a value for a reason, cut short: whoever sends events decides what is in it.
func shown(value string) string {
	const most = 64
	if len(value) > most {
		return fmt.Sprintf("%q...", value[:most])
	}
	return fmt.Sprintf("%q", value)
}
