package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/uuid"
)

// MaxID is the longest event id that is taken, in bytes; the ledger's keys end not far above it.
const MaxID = 1024

// maxReportID bounds report ids, in bytes. They become file names.
const maxReportID = 128

// notForUs returns why an event is to be skipped, empty for one to look at. The major version counts before the payload:
// another major may mean something else by every field of it.
func (n *Normaliser) notForUs(attrs attributes) string {
	claimed := claims(attrs)
	if len(claimed) == 0 && attrs["type"] != "" && attrs["resourcetype"] == "" && attrs["eventtype"] == "" {
		return fmt.Sprintf("event type %s is not asked for", shown(attrs["type"]))
	}
	ours := len(claimed) == 0
	for _, name := range claimed {
		ours = ours || name == ReportFinished || name == ReportPartial
	}
	if !ours {
		return fmt.Sprintf("event %s is not asked for", shown(claimed[0]))
	}
	if major, ok := majorOf(attrs["schemaversion"]); ok && major != n.major {
		return fmt.Sprintf("major version %d, not %d", major, n.major)
	}
	return ""
}

// check returns everything that forbids to process an event that is for us.
func (n *Normaliser) check(attrs attributes) error {
	var errs []error
	if v := attrs["specversion"]; v != event.CloudEventsVersionV1 {
		errs = append(errs, fmt.Errorf("specversion %s is not 1.0", shown(v)))
	}
	if err := validateID(attrs["id"]); err != nil {
		errs = append(errs, err)
	}
	if err := checkName(attrs); err != nil {
		errs = append(errs, err)
	}
	if _, ok := majorOf(attrs["schemaversion"]); !ok && !n.acceptMissing {
		errs = append(errs, errors.New("no readable schema version"))
	}
	if tenant := attrs["tenantid"]; n.tenant != "" && tenant != "" && tenant != n.tenant {
		errs = append(errs, fmt.Errorf("tenant %s is not the configured one", shown(tenant)))
	}
	return errors.Join(errs...)
}

func validateID(id string) error {
	switch {
	case id == "":
		return errors.New("no event id")
	case len(id) > MaxID:
		return fmt.Errorf("event id of %d bytes is longer than %d", len(id), MaxID)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl):
		return errors.New("event id holds control characters or is not text")
	}
	return nil
}

// claims lists the names that an event goes by: that of its two attributes, and that of its type.
func claims(attrs attributes) []string {
	var names []string
	if resource, kind := attrs["resourcetype"], attrs["eventtype"]; resource != "" && kind != "" {
		names = append(names, resource+"."+kind)
	}
	if resource, kind, ok := splitType(attrs["type"]); ok {
		names = append(names, resource+"."+kind)
	}
	return names
}

// nameOf returns the event's name, <resourcetype>.<eventtype>, or that of its type when one of the two is missing.
func nameOf(attrs attributes) string {
	if names := claims(attrs); len(names) > 0 {
		return names[0]
	}
	return ""
}

// checkName refuses an event that goes by two names: one of them is wrong, and which one can't be told.
func checkName(attrs attributes) error {
	resource, kind, ok := splitType(attrs["type"])
	if !ok {
		if nameOf(attrs) == "" {
			return errors.New("no event name: ce-resourcetype or ce-eventtype is missing, and ce-type does not tell")
		}
		return nil
	}
	differs := func(name, typed string) bool { return attrs[name] != "" && attrs[name] != typed }
	if differs("resourcetype", resource) || differs("eventtype", kind) {
		return errors.New("ce-type names another event than ce-resourcetype and ce-eventtype")
	}
	return nil
}

// splitType reads studio.lerian.<source>.<resource>.<event>, and the older form without the source.
func splitType(ceType string) (resource, kind string, ok bool) {
	rest, found := strings.CutPrefix(ceType, "studio.lerian.")
	segments := strings.Split(rest, ".")
	if !found || len(segments) < 2 {
		return "", "", false
	}
	resource, kind = segments[len(segments)-2], segments[len(segments)-1]
	return resource, kind, resource != "" && kind != ""
}

// majorOf returns the first number of a version such as 2, v2.1 or 2.0.0-rc.1.
func majorOf(version string) (int, bool) {
	version = strings.TrimSpace(version)
	if len(version) > 0 && (version[0] == 'v' || version[0] == 'V') {
		version = version[1:]
	}
	digits := version
	if end := strings.IndexAny(version, ".-+"); end >= 0 {
		digits = version[:end]
	}
	major, err := strconv.ParseUint(digits, 10, 31)
	return int(major), err == nil
}

// timeOf returns the time, zero when it can't be read: it is information only.
func timeOf(value string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		return time.Time{}
	}
	return t
}

// reportID finds the report: data.report_id, then data.reportId, then ce-subject. A field that is there must hold a plain
// id; a broken one is never replaced by the next, since that would be a guess.
func reportID(attrs attributes, data []byte) (id, note string, err error) {
	fields, isObject := objectOf(attrs["datacontenttype"], data)
	subject := attrs["subject"]
	for _, field := range [...]string{"report_id", "reportId"} {
		raw, ok := fields[field]
		if !ok {
			continue
		}
		id, text, err := scalar(raw)
		if err != nil || !text || raw[0] != '"' || !PlainID(id) {
			return "", "", fmt.Errorf("data.%s is not a plain id", field)
		}
		if subject != "" && subject != id {
			note = fmt.Sprintf("data.%s differs from ce-subject and counts", field)
		}
		return id, note, nil
	}
	switch {
	case subject != "" && !PlainID(subject):
		return "", "", errors.New("ce-subject is not a plain id")
	case subject != "" && !isObject:
		return subject, "the payload is not a JSON object; the report is that of ce-subject", nil
	case subject != "":
		return subject, "", nil
	case !isObject:
		return "", "", errors.New("the payload is not a JSON object and there is no ce-subject: no report id")
	}
	return "", "", errors.New("no report id in data.report_id, data.reportId or ce-subject")
}

// objectOf reads the members of a JSON payload. Names count exactly as written, which struct tags would not ensure.
func objectOf(mediaType string, data []byte) (map[string]json.RawMessage, bool) {
	if !isJSON(mediaType) {
		return nil, false
	}
	var fields map[string]json.RawMessage
	err := json.Unmarshal(data, &fields)
	return fields, err == nil && fields != nil
}

// CanonicalID brings a UUID to lower case: capitals are another way to write the same one, and must make no second receipt.
// Any other id stays as it is.
func CanonicalID(id string) string {
	if len(id) == 36 && uuid.Validate(id) == nil {
		return strings.ToLower(id)
	}
	return id
}

// PlainID reports whether an id may stand in a URL path and in a file name as it is.
func PlainID(id string) bool {
	if id == "" || len(id) > maxReportID || id[0] == '.' {
		return false
	}
	for _, c := range []byte(id) {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
		if !plain {
			return false
		}
	}
	return true
}
