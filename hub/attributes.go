package hub

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
)

// The media types of the two modes in which the event is in the body.
const (
	structuredType = event.ApplicationCloudEventsJSON
	batchType      = event.ApplicationCloudEventsBatchJSON
)

// attributes are those of an event that this package keeps, by name without a prefix, with the values as they were sent:
// a producer signature covers the very text, so that neither a time nor a URI may be parsed and written anew.
type attributes map[string]string

// kept is the allow-list: the attributes of the contract with the Hub, and the trace that the event belongs to.
var kept = [...]string{
	"specversion", "id", "source", "type", "time", "subject", "tenantid", "datacontenttype", "dataschema",
	"schemaversion", "resourcetype", "eventtype", "systemevent", "sigkid", "sigts", "sig", "traceparent",
}

// prefixes that the CloudEvents bindings put before an attribute's name: HTTP and NATS, Kafka, AMQP (two forms).
var prefixes = [...]string{"ce-", "ce_", "cloudevents:", "cloudevents_"}

// decoded is a message taken apart. Where its values can be understood in more than one way, readings holds every way,
// the likeliest first: a signature tells which one the producer meant.
type decoded struct {
	readings []attributes
	data     []byte
}

// decodeBinary reads an event whose attributes are headers (CloudEvents 1.0, binary content mode).
func decodeBinary(m Message) (decoded, error) {
	sent := attributes{}
	var bad error
	for header, values := range m.Headers {
		name, ok := attributeName(header)
		if !ok {
			continue
		}
		for _, value := range values {
			if earlier, twice := sent[name]; twice && earlier != value {
				bad = fmt.Errorf("attribute %s is given twice, differently", name)
			}
			sent[name] = value
		}
	}
	return decoded{readings: readings(sent, m.contentType()), data: m.Body}, bad
}

// attributeName returns the attribute that a header carries, and whether it is one that is kept.
func attributeName(header string) (string, bool) {
	header = strings.ToLower(header)
	if header == "traceparent" {
		return header, true
	}
	for _, prefix := range prefixes {
		if name, ok := strings.CutPrefix(header, prefix); ok {
			return name, slices.Contains(kept[:], name)
		}
	}
	return "", false
}

// readings of headers differ in two points. The bindings encode values with percent signs and lib-streaming does not;
// and the transport's content type stands for datacontenttype, or is the transport's own addition.
func readings(sent attributes, contentType string) []attributes {
	all := []attributes{sent}
	if plain := percentDecoded(sent); !maps.Equal(plain, sent) {
		all = []attributes{plain, sent}
	}
	if _, ok := sent["datacontenttype"]; ok || contentType == "" {
		return all
	}
	var typed []attributes
	for _, bare := range all {
		with := maps.Clone(bare)
		with["datacontenttype"] = contentType
		typed = append(typed, with)
	}
	return append(typed, all...)
}

func percentDecoded(sent attributes) attributes {
	plain := make(attributes, len(sent))
	for name, value := range sent {
		plain[name] = percentDecode(value)
	}
	return plain
}

// percentDecode undoes the encoding of the CloudEvents bindings, once. A value that no encoder can have written, since it
// has a space, a quote, a bare percent sign or bytes outside ASCII, or that does not decode to text, is taken as it stands.
func percentDecode(value string) string {
	if !strings.Contains(value, "%") {
		return value
	}
	plain := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c <= ' ' || c == '"' || c > '~':
			return value
		case c != '%':
			plain = append(plain, c)
		case i+2 >= len(value):
			return value
		default:
			b, err := hex.DecodeString(value[i+1 : i+3])
			if err != nil {
				return value
			}
			plain = append(plain, b[0])
			i += 2
		}
	}
	if !utf8.Valid(plain) {
		return value
	}
	return string(plain)
}

// decodeStructured reads an event that is one JSON object (CloudEvents 1.0, JSON event format). The SDK's own decoder is
// of no use here: it gives up on a time or a source it can't parse, and rewrites those it can.
func decodeStructured(body []byte) (decoded, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return decoded{readings: []attributes{{}}}, errors.New("not a JSON object, as a structured event must be")
	}
	attrs := attributes{}
	var bad error
	for _, name := range kept {
		value, ok, err := scalar(members[name])
		if err != nil {
			bad = fmt.Errorf("attribute %s is not a single value", name)
		} else if ok {
			attrs[name] = value
		}
	}
	d := decoded{readings: []attributes{attrs}}
	if bad != nil {
		return d, bad
	}
	var err error
	d.data, err = structuredData(members, attrs["datacontenttype"])
	return d, err
}

// scalar returns the text of a JSON string, or of a number or boolean as it stands. Null counts as absent.
func scalar(raw json.RawMessage) (value string, ok bool, err error) {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "", false, nil
	case raw[0] == '"':
		err = json.Unmarshal(raw, &value)
		return value, err == nil, err
	case raw[0] == '{' || raw[0] == '[':
		return "", false, errors.New("not a scalar")
	}
	return string(raw), true, nil
}

// structuredData follows the JSON event format 1.0, section 3.1: data_base64 is bytes; data is JSON, and a string of it
// is the text itself when the media type is not JSON.
func structuredData(members map[string]json.RawMessage, mediaType string) ([]byte, error) {
	data, encoded := members["data"], members["data_base64"]
	if data != nil && encoded != nil {
		return nil, errors.New("both data and data_base64 are present")
	}
	if encoded != nil {
		text, _, err := scalar(encoded)
		if err != nil {
			return nil, errors.New("data_base64 is not a string")
		}
		bytes, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, errors.New("data_base64 is not base64")
		}
		return bytes, nil
	}
	if len(data) > 0 && data[0] == '"' && !isJSON(mediaType) {
		text, _, err := scalar(data)
		return []byte(text), err
	}
	return data, nil
}

// isJSON reports whether a media type is JSON, as every type that ends in +json is; CloudEvents takes a missing one for it.
func isJSON(mediaType string) bool {
	mediaType = bareType(mediaType)
	return mediaType == "" || strings.HasSuffix(mediaType, "/json") || strings.HasSuffix(mediaType, "+json")
}

// bareType is a media type in lower case without its parameters, even when those are malformed.
func bareType(mediaType string) string {
	if t, _, err := mime.ParseMediaType(mediaType); err == nil {
		return t
	}
	t, _, _ := strings.Cut(mediaType, ";")
	return strings.ToLower(strings.TrimSpace(t))
}
