package hub

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
)

// finished is a report.finished event as lib-streaming sends it, with changes; a change to "-" removes the header.
func finished(changes ...string) map[string][]string {
	headers := map[string][]string{
		"ce-specversion":     {"1.0"},
		"ce-id":              {"0190a1b2-0000-7000-8000-000000000001"},
		"ce-source":          {"reporter"},
		"ce-type":            {"studio.lerian.reporter.report.finished"},
		"ce-time":            {"2026-03-01T10:00:00.123456789Z"},
		"ce-schemaversion":   {"2.0.0"},
		"ce-resourcetype":    {"report"},
		"ce-eventtype":       {"finished"},
		"ce-subject":         {"r-1"},
		"ce-datacontenttype": {"application/json"},
	}
	for i := 0; i < len(changes); i += 2 {
		headers[changes[i]] = []string{changes[i+1]}
		if changes[i+1] == "-" {
			delete(headers, changes[i])
		}
	}
	return headers
}

func normaliser(t testing.TB, change func(*Config)) *Normaliser {
	t.Helper()
	c := DefaultConfig()
	if change != nil {
		change(&c)
	}
	n, err := NewNormaliser(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestBinaryEventIsReadWhole(t *testing.T) {
	t.Parallel()
	headers := finished("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"Authorization", "Bearer x", "ce-tenantid", "acme", "ce-surprise", "x", "Nats-Msg-Id", "y")
	body := []byte(`{"report_id": "r-1", "more": [1, 2]}`)
	got := normaliser(t, nil).Delivery(Message{Headers: headers, Body: body, Transport: "nats", Origin: "S:7"})
	want := Delivery{
		Transport: "nats", Origin: "S:7", Raw: body,
		Event: Event{
			ID: "0190a1b2-0000-7000-8000-000000000001", Name: ReportFinished, Version: "2.0.0", Source: "reporter",
			Type: "studio.lerian.reporter.report.finished", Tenant: "acme", ReportID: "r-1", Data: body,
			Time: time.Date(2026, 3, 1, 10, 0, 0, 123456789, time.UTC),
			Headers: map[string]string{
				"specversion": "1.0", "id": "0190a1b2-0000-7000-8000-000000000001", "source": "reporter",
				"type": "studio.lerian.reporter.report.finished", "time": "2026-03-01T10:00:00.123456789Z",
				"schemaversion": "2.0.0", "resourcetype": "report", "eventtype": "finished", "subject": "r-1",
				"datacontenttype": "application/json", "tenantid": "acme",
				"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	accept := func(c *Config) { c.MissingVersion = MissingAccept }
	acme := func(c *Config) { c.Tenant = "acme" }
	const body = `{"report_id":"r-1"}`
	for name, c := range map[string]struct {
		config  func(*Config)
		changes []string
		body    string
		want    Verdict
		reason  string // part of it
	}{
		"finished":                  {},
		"partial":                   {changes: []string{"ce-eventtype", "partial", "ce-type", "studio.lerian.reporter.report.partial"}},
		"type of the older form":    {changes: []string{"ce-type", "studio.lerian.report.finished"}},
		"name from the type":        {changes: []string{"ce-resourcetype", "-", "ce-eventtype", "-"}},
		"name from the older type":  {changes: []string{"ce-resourcetype", "-", "ce-eventtype", "-", "ce-type", "studio.lerian.report.finished"}},
		"half of the name":          {changes: []string{"ce-resourcetype", "-"}},
		"type of another form":      {changes: []string{"ce-type", "com.example.thing"}},
		"no type":                   {changes: []string{"ce-type", "-"}},
		"free text source":          {changes: []string{"ce-source", "//lerian.reporter v2 %"}},
		"no source":                 {changes: []string{"ce-source", "-"}},
		"another event":             {changes: []string{"ce-eventtype", "created", "ce-type", "studio.lerian.reporter.report.created"}, want: Skip, reason: `"report.created"`},
		"another resource":          {changes: []string{"ce-resourcetype", "transaction", "ce-type", "studio.lerian.midaz.transaction.finished"}, want: Skip, reason: "transaction.finished"},
		"another type without name": {changes: []string{"ce-resourcetype", "-", "ce-eventtype", "-", "ce-type", "com.example.x"}, want: Skip, reason: "com.example.x"},
		"another event, broken":     {changes: []string{"ce-eventtype", "created", "ce-type", "-", "ce-id", "-", "ce-specversion", "0.3"}, want: Skip},
		"two names, one ours":       {changes: []string{"ce-type", "studio.lerian.reporter.report.partial"}, want: Quarantine, reason: "another event"},
		"two names, type ours":      {changes: []string{"ce-resourcetype", "transaction"}, want: Quarantine, reason: "another event"},
		"half a name disagrees":     {changes: []string{"ce-resourcetype", "-", "ce-eventtype", "partial"}, want: Quarantine, reason: "another event"},
		"no name at all":            {changes: []string{"ce-resourcetype", "-", "ce-eventtype", "-", "ce-type", "-"}, want: Quarantine, reason: "no event name"},
		"half a name only":          {changes: []string{"ce-resourcetype", "-", "ce-type", "com.example.x"}, want: Quarantine, reason: "no event name"},

		"version 2":               {changes: []string{"ce-schemaversion", "2"}},
		"version v2.1":            {changes: []string{"ce-schemaversion", "v2.1"}},
		"version 2.0.0-rc.1":      {changes: []string{"ce-schemaversion", "2.0.0-rc.1"}},
		"version 1":               {changes: []string{"ce-schemaversion", "1.4.0"}, want: Skip, reason: "major version 1, not 2"},
		"version 3, bad payload":  {changes: []string{"ce-schemaversion", "v3"}, body: `[`, want: Skip, reason: "major version 3"},
		"version 20":              {changes: []string{"ce-schemaversion", "20.0"}, want: Skip, reason: "major version 20"},
		"version missing":         {changes: []string{"ce-schemaversion", "-"}, want: Quarantine, reason: "version"},
		"version unreadable":      {changes: []string{"ce-schemaversion", "two"}, want: Quarantine, reason: "version"},
		"version 2x":              {changes: []string{"ce-schemaversion", "2x"}, want: Quarantine, reason: "version"},
		"version -2":              {changes: []string{"ce-schemaversion", "-2"}, want: Quarantine, reason: "version"},
		"version missing, taken":  {config: accept, changes: []string{"ce-schemaversion", "-"}},
		"version 1, missing fine": {config: accept, changes: []string{"ce-schemaversion", "1"}, want: Skip},

		"tenant fits":       {config: acme, changes: []string{"ce-tenantid", "acme"}},
		"tenant absent":     {config: acme},
		"tenant differs":    {config: acme, changes: []string{"ce-tenantid", "other"}, want: Quarantine, reason: `"other"`},
		"tenant not wanted": {changes: []string{"ce-tenantid", "other"}},

		"specversion 0.3":       {changes: []string{"ce-specversion", "0.3"}, want: Quarantine, reason: "specversion"},
		"specversion missing":   {changes: []string{"ce-specversion", "-"}, want: Quarantine, reason: "specversion"},
		"id missing":            {changes: []string{"ce-id", "-"}, want: Quarantine, reason: "no event id"},
		"id empty":              {changes: []string{"ce-id", ""}, want: Quarantine, reason: "no event id"},
		"id of 1024 bytes":      {changes: []string{"ce-id", strings.Repeat("i", 1024)}},
		"id of 1025 bytes":      {changes: []string{"ce-id", strings.Repeat("i", 1025)}, want: Quarantine, reason: "1025"},
		"id with a line":        {changes: []string{"ce-id", "a\nb"}, want: Quarantine, reason: "control"},
		"id encoding a NUL":     {changes: []string{"ce-id", "a%00b"}, want: Quarantine, reason: "control"},
		"id that is no text":    {changes: []string{"ce-id", "a\xff"}, want: Quarantine, reason: "text"},
		"id with umlaut":        {changes: []string{"ce-id", "Bericht-ü"}},
		"time unreadable":       {changes: []string{"ce-time", "yesterday"}},
		"json by suffix":        {changes: []string{"ce-datacontenttype", "application/vnd.lerian+json; charset=UTF-8"}},
		"json, bad parameters":  {changes: []string{"ce-datacontenttype", "application/json; charset"}},
		"no media type":         {changes: []string{"ce-datacontenttype", "-"}},
		"subject not a path":    {changes: []string{"ce-subject", "../x"}}, // data counts
		"xml with a subject":    {changes: []string{"ce-datacontenttype", "application/xml"}, body: "<r/>"},
		"xml without subject":   {changes: []string{"ce-datacontenttype", "application/xml", "ce-subject", "-"}, body: "<r/>", want: Quarantine, reason: "not a JSON object"},
		"cut payload, subject":  {body: `{"report_id":"r-`},
		"cut payload":           {changes: []string{"ce-subject", "-"}, body: `{"report_id":"r-`, want: Quarantine, reason: "not a JSON object"},
		"payload is a list":     {changes: []string{"ce-subject", "-"}, body: `["r-1"]`, want: Quarantine, reason: "not a JSON object"},
		"payload is null":       {changes: []string{"ce-subject", "-"}, body: `null`, want: Quarantine, reason: "not a JSON object"},
		"camel case":            {changes: []string{"ce-subject", "-"}, body: `{"reportId":"r-1"}`},
		"subject only":          {body: `{}`},
		"no report id":          {changes: []string{"ce-subject", "-"}, body: `{"Report_ID":"r-1"}`, want: Quarantine, reason: "no report id"},
		"report id a number":    {body: `{"report_id":7}`, want: Quarantine, reason: "data.report_id is not a plain id"},
		"report id null":        {body: `{"report_id":null}`, want: Quarantine, reason: "data.report_id is not a plain id"},
		"report id an object":   {body: `{"report_id":{}}`, want: Quarantine, reason: "data.report_id"},
		"report id empty":       {body: `{"report_id":""}`, want: Quarantine, reason: "data.report_id"},
		"report id a path":      {body: `{"report_id":"a/b"}`, want: Quarantine, reason: "data.report_id"},
		"report id climbs":      {body: `{"report_id":"..\\x"}`, want: Quarantine, reason: "data.report_id"},
		"report id hidden":      {body: `{"report_id":".r"}`, want: Quarantine, reason: "data.report_id"},
		"report id has a query": {body: `{"report_id":"r-1?x"}`, want: Quarantine, reason: "data.report_id"},
		"report id of 129":      {body: `{"report_id":"` + strings.Repeat("r", 129) + `"}`, want: Quarantine, reason: "data.report_id"},
		"camel case a number":   {body: `{"reportId":7}`, want: Quarantine, reason: "data.reportId"},
		"subject a path":        {changes: []string{"ce-subject", "a/b"}, body: `{}`, want: Quarantine, reason: "ce-subject"},
		"two faults, both told": {changes: []string{"ce-id", "-"}, body: `{"report_id":7}`, want: Quarantine, reason: "no event id; data.report_id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.body == "" {
				c.body = body
			}
			got := normaliser(t, c.config).Delivery(Message{Headers: finished(c.changes...), Body: []byte(c.body), Transport: "nats"})
			if got.Verdict != c.want || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("verdict %d, reason %q; want %d and %q", got.Verdict, got.Reason, c.want, c.reason)
			}
			if (got.Reason == "") != (got.Verdict == Accept) {
				t.Errorf("verdict %d with reason %q", got.Verdict, got.Reason)
			}
			if got.Verdict == Accept && (got.Event.ReportID != "r-1" || got.Event.ID == "" || got.Event.Name == "") {
				t.Errorf("accepted %+v", got.Event)
			}
		})
	}
}

func TestReportIDPrefersTheDocumentedField(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, id, note string }{
		"snake before camel": {`{"reportId":"b","report_id":"a"}`, "a", "data.report_id differs from ce-subject"},
		"camel":              {`{"reportId":"b"}`, "b", "data.reportId differs from ce-subject"},
		"agrees":             {`{"report_id":"r-1"}`, "r-1", ""},
		"subject":            {`{}`, "r-1", ""},
		"no JSON":            {`<r/>`, "r-1", "that of ce-subject"},
	} {
		got := normaliser(t, nil).Delivery(Message{Headers: finished(), Body: []byte(c.body)})
		if got.Verdict != Accept || got.Event.ReportID != c.id || !strings.Contains(got.Note, c.note) || (c.note == "") != (got.Note == "") {
			t.Errorf("%s: %d %q %q", name, got.Verdict, got.Event.ReportID, got.Note)
		}
	}
}

func TestQuarantinedEventIsDescribed(t *testing.T) {
	t.Parallel()
	n := normaliser(t, func(c *Config) { c.Tenant = "acme" })
	got := n.Delivery(Message{Headers: finished("ce-tenantid", "other"), Body: []byte(`{"report_id":"r-9"}`)})
	if e := got.Event; got.Verdict != Quarantine || e.ID == "" || e.Name != ReportFinished || e.ReportID != "r-9" || e.Headers["tenantid"] != "other" {
		t.Errorf("%d %+v", got.Verdict, e)
	}
}

func TestHeaderNamesAndValuesArriveInManyForms(t *testing.T) {
	t.Parallel()
	rename := func(to func(string) string) map[string][]string {
		out := map[string][]string{}
		for name, values := range finished("ce-subject", "-") {
			out[to(name)] = values
		}
		return out
	}
	title := func(s string) string {
		name := strings.TrimPrefix(s, "ce-")
		return "Ce-" + strings.ToUpper(name[:1]) + name[1:]
	}
	typed := finished("ce-datacontenttype", "-", "Content-Type", "application/xml")
	for name, c := range map[string]struct {
		headers map[string][]string
		id      string
		want    Verdict
	}{
		"canonical":              {headers: rename(title)},
		"upper case":             {headers: rename(strings.ToUpper)},
		"kafka binding":          {headers: rename(func(s string) string { return strings.Replace(s, "-", "_", 1) })},
		"amqp binding":           {headers: rename(func(s string) string { return strings.Replace(s, "ce-", "cloudEvents:", 1) })},
		"content type counts":    {headers: with(typed, "ce-subject"), want: Quarantine},
		"percent-encoded":        {headers: finished("ce-id", "a%20%C3%BC%25"), id: "a ü%"},
		"bare percent sign":      {headers: finished("ce-id", "100%"), id: "100%"},
		"percent sign and space": {headers: finished("ce-id", "50%25 off"), id: "50%25 off"},
		"no text when decoded":   {headers: finished("ce-id", "a%FF"), id: "a%FF"},
		"no hex digits":          {headers: finished("ce-id", "a%ZZ%20"), id: "a%ZZ%20"},
		"given twice, equally":   {headers: with(finished(), "Ce-Id", "0190a1b2-0000-7000-8000-000000000001")},
		"given twice":            {headers: with(finished(), "Ce-Id", "other"), want: Quarantine},
	} {
		got := normaliser(t, nil).Delivery(Message{Headers: c.headers, Body: []byte(`{"report_id":"r-1"}`)})
		if got.Verdict != c.want || c.id != "" && got.Event.ID != c.id {
			t.Errorf("%s: verdict %d, id %q, reason %s", name, got.Verdict, got.Event.ID, got.Reason)
		}
	}
}

// with sets one header, or removes it.
func with(headers map[string][]string, name string, values ...string) map[string][]string {
	headers = maps.Clone(headers)
	headers[name] = values
	return headers
}

func TestMessagesThatAreNoEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		message Message
		reason  string
		event   bool
	}{
		"plain":            {Message{Body: []byte(`{"report_id":"r-1"}`)}, "not a CloudEvent", false},
		"trace only":       {Message{Headers: map[string][]string{"traceparent": {"x"}}}, "not a CloudEvent", false},
		"foreign headers":  {Message{Headers: map[string][]string{"ce-surprise": {"x"}}}, "not a CloudEvent", false},
		"other format":     {Message{ContentType: "application/cloudevents+protobuf", Body: []byte{1}}, "not supported", true},
		"batch":            {Message{ContentType: "application/cloudevents-batch+json", Body: []byte(`[]`)}, "not supported", true},
		"no object":        {Message{ContentType: "application/cloudevents+json", Body: []byte(`[]`)}, "not a JSON object", true},
		"null":             {Message{ContentType: "application/cloudevents+json", Body: []byte(`null`)}, "not a JSON object", true},
		"cut":              {Message{ContentType: "application/cloudevents+json", Body: []byte(`{"id":`)}, "not a JSON object", true},
		"attribute a list": {Message{ContentType: "application/cloudevents+json", Body: []byte(`{"id":["a"]}`)}, "attribute id", true},
		"two payloads":     {Message{ContentType: "application/cloudevents+json", Body: []byte(`{"data":1,"data_base64":"aQ=="}`)}, "both", true},
		"bad base64":       {Message{ContentType: "application/cloudevents+json", Body: []byte(`{"data_base64":"?"}`)}, "base64", true},
	} {
		got := normaliser(t, nil).Delivery(c.message)
		if got.Verdict != Quarantine || !strings.Contains(got.Reason, c.reason) {
			t.Errorf("%s: verdict %d, reason %q", name, got.Verdict, got.Reason)
		}
		if c.message.IsCloudEvent() != c.event {
			t.Errorf("%s: IsCloudEvent is %t", name, !c.event)
		}
	}
}

// structured lets the SDK write an event, as another implementation of the format.
func structured(t *testing.T, change func(*event.Event)) []byte {
	t.Helper()
	e := event.New()
	e.SetID("s-1")
	e.SetSource("//lerian.reporter")
	e.SetType("studio.lerian.report.partial")
	e.SetTime(time.Date(2026, 3, 1, 10, 0, 0, 5, time.UTC))
	e.SetSubject("r-2")
	e.SetExtension("schemaversion", "2.1.0")
	e.SetExtension("resourcetype", "report")
	e.SetExtension("eventtype", "partial")
	if err := e.SetData("application/json", map[string]string{"report_id": "r-2"}); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&e)
	}
	body, err := e.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestStructuredEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*event.Event)
		data   string
		note   string
	}{
		"json":             {nil, `{"report_id":"r-2"}`, ""},
		"base64":           {func(e *event.Event) { e.DataBase64 = true }, `{"report_id":"r-2"}`, ""},
		"text":             {func(e *event.Event) { _ = e.SetData("text/plain", "R-2 is \"ready\"") }, `R-2 is "ready"`, "ce-subject"},
		"version a number": {func(e *event.Event) { e.SetExtension("schemaversion", 2) }, `{"report_id":"r-2"}`, ""},
		"no data":          {func(e *event.Event) { e.DataEncoded = nil }, ``, "ce-subject"},
	} {
		body := structured(t, c.change)
		got := normaliser(t, nil).Delivery(Message{
			Headers: map[string][]string{"Content-Type": {"application/cloudevents+json; charset=utf-8"}}, Body: body})
		e := got.Event
		if got.Verdict != Accept || e.ID != "s-1" || e.Name != ReportPartial || e.ReportID != "r-2" || e.Source != "//lerian.reporter" {
			t.Errorf("%s: %d %s %+v", name, got.Verdict, got.Reason, e)
		}
		if string(e.Data) != c.data || string(got.Raw) != string(body) || !strings.Contains(got.Note, c.note) {
			t.Errorf("%s: data %q, note %q", name, e.Data, got.Note)
		}
		if !e.Time.Equal(time.Date(2026, 3, 1, 10, 0, 0, 5, time.UTC)) {
			t.Errorf("%s: time %s", name, e.Time)
		}
	}
}

func TestStructuredEventWithAnUnreadableTimeIsTaken(t *testing.T) {
	t.Parallel()
	body := []byte(`{"specversion":"1.0","id":"1","source":"a b","type":"studio.lerian.report.finished","time":"now",
		"subject":null,"schemaversion":2.0,"data":{"report_id":"r-1"}}`)
	got := normaliser(t, nil).Delivery(Message{ContentType: structuredType, Body: body})
	if got.Verdict != Accept || !got.Event.Time.IsZero() || got.Event.Version != "2.0" || got.Event.Source != "a b" {
		t.Errorf("%d %s %+v", got.Verdict, got.Reason, got.Event)
	}
	if _, ok := got.Event.Headers["subject"]; ok {
		t.Error("a null attribute counts as present")
	}
}

func TestBatchMemberCostsOnlyItself(t *testing.T) {
	t.Parallel()
	good := structured(t, nil)
	body, err := json.Marshal([]json.RawMessage{good, []byte(`7`), []byte(`{"id":{}}`), good})
	if err != nil {
		t.Fatal(err)
	}
	n := normaliser(t, nil)
	var verdicts []Verdict
	var origins []string
	for _, d := range n.Deliveries(Message{ContentType: batchType, Body: body, Transport: "webhook", Origin: "o"}) {
		verdicts, origins = append(verdicts, d.Verdict), append(origins, d.Origin)
	}
	if !slices.Equal(verdicts, []Verdict{Accept, Quarantine, Quarantine, Accept}) || !slices.Equal(origins, []string{"o#0", "o#1", "o#2", "o#3"}) {
		t.Errorf("%v %v", verdicts, origins)
	}
	if got := n.Deliveries(Message{ContentType: batchType, Body: []byte(`{}`)}); len(got) != 1 || got[0].Verdict != Quarantine {
		t.Errorf("no array: %+v", got)
	}
	if got := n.Deliveries(Message{Headers: finished(), Body: []byte(`{}`)}); len(got) != 1 || got[0].Verdict != Accept {
		t.Errorf("no batch: %+v", got)
	}
}

func FuzzDelivery(f *testing.F) {
	f.Add("ce-id", "a%20b", "ce-schemaversion", "v2", "application/json", []byte(`{"report_id":"r-1"}`))
	f.Add("Ce-Type", "studio.lerian.report.partial", "ce_subject", "r", "application/cloudevents+json", []byte(`{"id":"x","data":{"report_id":"r"}}`))
	f.Add("ce-id", "%", "ce-sig", "v1.x", "application/cloudevents-batch+json", []byte(`[{"id":"x","data_base64":"aQ"}]`))
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2, contentType string, body []byte) {
		n := normaliser(t, nil)
		m := Message{Headers: finished(name1, value1, name2, value2), ContentType: contentType, Body: body}
		for _, d := range n.Deliveries(m) {
			checkInvariants(t, d)
		}
	})
}

func checkInvariants(t *testing.T, d Delivery) {
	t.Helper()
	e := d.Event
	if (d.Verdict == Accept) != (d.Reason == "") || len(d.Reason) > 2000 {
		t.Errorf("verdict %d with reason %q", d.Verdict, d.Reason)
	}
	if d.Verdict == Accept && (validateID(e.ID) != nil || !PlainID(e.ReportID) || e.Name != ReportFinished && e.Name != ReportPartial) {
		t.Errorf("accepted %+v", e)
	}
	for name := range e.Headers {
		if !slices.Contains(kept[:], name) {
			t.Errorf("header %q is kept", name)
		}
	}
}
