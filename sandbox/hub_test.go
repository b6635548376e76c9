package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// client is a subscriber of its own, over TCP.
func client(t *testing.T, h *Hub, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(h.URL(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func durable(t *testing.T, js jetstream.JetStream) jetstream.Consumer {
	t.Helper()
	consumer, err := js.CreateOrUpdateConsumer(t.Context(), "STREAMING_HUB", jetstream.ConsumerConfig{
		Durable: "recibo", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return consumer
}

// take fetches n messages without acknowledging them.
func take(t *testing.T, consumer jetstream.Consumer, n int) []jetstream.Msg {
	t.Helper()
	batch, err := consumer.Fetch(n, jetstream.FetchMaxWait(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	var messages []jetstream.Msg
	for message := range batch.Messages() {
		messages = append(messages, message)
	}
	if len(messages) != n {
		t.Fatalf("%d messages instead of %d: %v", len(messages), n, batch.Error())
	}
	return messages
}

func TestEventsInBinaryMode(t *testing.T) {
	t.Parallel()
	full := func(changed map[string]string) map[string]string {
		header := map[string]string{
			"ce-specversion": "1.0", "ce-id": "e", "ce-source": "reporter", "ce-type": "studio.lerian.reporter.report.finished",
			"ce-time": "2026-03-14T12:00:00.123456789Z", "ce-schemaversion": "2.0.0", "ce-resourcetype": "report",
			"ce-eventtype": "finished", "ce-subject": "r", "ce-datacontenttype": "application/json",
		}
		for name, value := range changed {
			if header[name] = value; value == "" {
				delete(header, name)
			}
		}
		return header
	}
	const data = `{"report_id":"r","status":"Finished","occurred_at":"2026-03-14T12:00:00.123456789Z"}`
	base := Event{ID: "e", ReportID: "r", Time: noon}
	with := func(change func(*Event)) Event { event := base; change(&event); return event }
	tests := map[string]struct {
		event   Event
		subject string
		header  map[string]string
		data    string
	}{
		"defaults": {base, "report.finished", full(nil), data},
		"partial of a tenant": {
			with(func(e *Event) { e.Name, e.Tenant, e.Version = "report.partial", "acme", "v2.1" }), "report.partial",
			full(map[string]string{
				"ce-type": "studio.lerian.reporter.report.partial", "ce-eventtype": "partial", "ce-tenantid": "acme", "ce-schemaversion": "v2.1",
			}),
			`{"report_id":"r","status":"Partial","occurred_at":"2026-03-14T12:00:00.123456789Z"}`,
		},
		"free-text source": {
			with(func(e *Event) { e.Source = "//lerian.reporter" }), "report.finished",
			full(map[string]string{"ce-source": "//lerian.reporter", "ce-type": "studio.lerian.report.finished"}), data,
		},
		"headers added, replaced whatever their case, and removed": {
			with(func(e *Event) {
				e.Headers = map[string]string{"traceparent": "00-a", "Ce-Id": "other", "ce-subject": "", "CE-Schemaversion": ""}
			}), "report.finished",
			full(map[string]string{"traceparent": "00-a", "ce-id": "", "Ce-Id": "other", "ce-subject": "", "ce-schemaversion": ""}), data,
		},
		"own data on another subject": {
			with(func(e *Event) { e.Data, e.Subject = []byte("not json"), "report.partial" }), "report.partial", full(nil), "not json",
		},
	}
	s := open(t, Options{Dir: t.TempDir()})
	consumer := durable(t, client(t, s.Hub))
	for name, test := range tests {
		if err := s.Hub.Publish(t.Context(), test.event); err != nil {
			t.Fatal(err)
		}
		got := take(t, consumer, 1)[0]
		header := map[string]string{}
		for key, values := range got.Headers() {
			header[key] = values[0]
		}
		if diff := cmp.Diff(test.header, header); diff != "" || got.Subject() != test.subject || string(got.Data()) != test.data {
			t.Errorf("%s: subject %s, data %s (-want +got):\n%s", name, got.Subject(), got.Data(), diff)
		}
	}
}

func TestEventsInStructuredMode(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	consumer := durable(t, client(t, s.Hub))
	for data, want := range map[string]map[string]any{
		`{"report_id":"r"}`: {"data": map[string]any{"report_id": "r"}},
		`not json`:          {"data_base64": "bm90IGpzb24="},
	} {
		event := Event{
			ID: "e", ReportID: "r", Time: noon, Data: []byte(data), Structured: true,
			Headers: map[string]string{"ce-subject": "", "ce-extra": "x", "traceparent": "00-a"},
		}
		for key, value := range map[string]any{
			"specversion": "1.0", "id": "e", "source": "reporter", "type": "studio.lerian.reporter.report.finished",
			"time": "2026-03-14T12:00:00.123456789Z", "schemaversion": "2.0.0", "resourcetype": "report", "eventtype": "finished",
			"datacontenttype": "application/json", "extra": "x",
		} {
			want[key] = value
		}
		if err := s.Hub.Publish(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		message := take(t, consumer, 1)[0]
		var got map[string]any
		if err := json.Unmarshal(message.Data(), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		wantHeader := nats.Header{"content-type": {"application/cloudevents+json; charset=utf-8"}, "traceparent": {"00-a"}}
		if diff := cmp.Diff(wantHeader, message.Headers()); diff != "" {
			t.Errorf("header (-want +got):\n%s", diff)
		}
	}
}

func TestAnEventWithoutAnIDGetsOne(t *testing.T) {
	t.Parallel()
	message, err := Event{}.message()
	if err != nil || len(message.Header.Get("ce-id")) != 36 || message.Header.Get("ce-time") == "" {
		t.Errorf("header %v, error %v", message.Header, err)
	}
}

func TestABatchKeepsItsOrder(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	const many = publishWindow + 100
	events := make([]Event, many)
	for i := range events {
		events[i] = Event{ID: fmt.Sprint(i), Name: []string{"report.finished", "report.partial"}[i%2]}
	}
	if err := s.Hub.PublishBatch(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	consumer := durable(t, client(t, s.Hub))
	for i, message := range take(t, consumer, many) {
		if id := message.Headers().Get("ce-id"); id != fmt.Sprint(i) {
			t.Fatalf("event %s in place %d", id, i)
		}
	}
}

func TestAHubComesBackWithItsAddressAndItsEvents(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Dir: t.TempDir()})
	before := s.NATSURL()
	reconnected := make(chan struct{}, 1)
	js := client(t, s.Hub, nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1),
		nats.ReconnectHandler(func(*nats.Conn) { reconnected <- struct{}{} }))
	consumer := durable(t, js)
	if err := s.Hub.PublishBatch(t.Context(), []Event{{ID: "1"}, {ID: "2"}, {ID: "3"}}); err != nil {
		t.Fatal(err)
	}
	if err := take(t, consumer, 2)[0].DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	if pending, ackPending, err := s.Hub.Consumer(t.Context(), "recibo"); pending != 1 || ackPending != 1 || err != nil {
		t.Errorf("%d pending, %d given, error %v", pending, ackPending, err)
	}

	s.Hub.Stop()
	s.Hub.Stop()
	for what, err := range map[string]error{
		"publish": s.Hub.Publish(t.Context(), Event{}), "stream": s.Hub.CreateStream(), "consumer": s.Hub.DeleteConsumer("recibo"),
	} {
		if !errors.Is(err, ErrStopped) {
			t.Errorf("%s while stopped: %v", what, err)
		}
	}
	if err := s.Hub.Start(); err != nil {
		t.Fatal(err)
	}
	<-reconnected
	if s.NATSURL() != before {
		t.Errorf("came back at %s instead of %s", s.NATSURL(), before)
	}
	if id := take(t, consumer, 1)[0].Headers().Get("ce-id"); id != "3" {
		t.Errorf("event %s after the restart", id)
	}
	if err := s.Hub.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := s.Hub.Publish(t.Context(), Event{}); err != nil {
		t.Error(err)
	}
}

func TestConsumersAndStreamsAreDeleted(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	js := client(t, s.Hub)
	durable(t, js)
	if err := s.Hub.DeleteConsumer("recibo"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Hub.Consumer(t.Context(), "recibo"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("the consumer after its deletion: %v", err)
	}
	if err := s.Hub.DeleteStream(); err != nil {
		t.Fatal(err)
	}
	if err := s.Hub.Publish(t.Context(), Event{}); err == nil {
		t.Error("published without a stream")
	}
	if err := s.Hub.CreateStream(); err != nil {
		t.Fatal(err)
	}
	if err := s.Hub.Publish(t.Context(), Event{ID: "new"}); err != nil {
		t.Fatal(err)
	}
	if id := take(t, durable(t, js), 1)[0].Headers().Get("ce-id"); id != "new" {
		t.Errorf("event %s on the new stream", id)
	}
}

func TestAHubAsksForCredentials(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Hub: HubOptions{User: "user", Password: "word"}, Stream: "OTHER", Subjects: []string{"events.>"}})
	if conn, err := nats.Connect(s.NATSURL()); err == nil {
		conn.Close()
		t.Error("connected without credentials")
	}
	js := client(t, s.Hub, nats.UserInfo("user", "word"))
	if err := s.Hub.Publish(t.Context(), Event{Subject: "events.x"}); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "OTHER")
	if err != nil || stream.CachedInfo().State.Msgs != 1 {
		t.Errorf("stream %v, error %v", stream, err)
	}
}

func TestPublishingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if err := s.Hub.PublishBatch(ctx, make([]Event, 100)); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
}

func BenchmarkPublishBatch(b *testing.B) {
	s := open(b, Options{})
	events := make([]Event, 1000)
	for b.Loop() {
		if err := s.Hub.PublishBatch(b.Context(), events); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "events/s")
}
