package hub

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
)

func TestAMQPHeadersBecomeText(t *testing.T) {
	t.Parallel()
	got := amqpMessage("q", amqp.Delivery{
		Exchange: "x", RoutingKey: "report.finished", Redelivered: true, ContentType: "application/json", Body: []byte("{}"),
		Headers: amqp.Table{
			"ce-id": []byte("e-1"), "Ce-Source": "reporter", "x-retry-count": int32(-3), "small": int8(7), "byte": byte(9), "long": int64(1 << 40),
			"yes": true, "half": 0.5, "at": time.Date(2026, 11, 29, 10, 0, 0, 0, time.FixedZone("", 3600)),
			"table": amqp.Table{"a": "b"}, "list": []any{"a"}, "void": nil, "decimal": amqp.Decimal{Scale: 1, Value: 2},
		},
	})
	want := AMQPMessage{
		Message: Message{
			Headers: map[string][]string{
				"content-type": {"application/json"}, "ce-id": {"e-1"}, "Ce-Source": {"reporter"}, "x-retry-count": {"-3"}, "small": {"7"},
				"byte": {"9"}, "long": {"1099511627776"}, "yes": {"true"}, "half": {"0.5"}, "at": {"2026-11-29T09:00:00Z"},
			},
			ContentType: "application/json", Body: []byte("{}"), Transport: "amqp", Origin: "q:x/report.finished",
		},
		Exchange: "x", RoutingKey: "report.finished", Redelivered: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A header of that name, as the CloudEvents binding for NATS writes it, does not stand against the property.
func TestAMQPContentTypeIsTheProperty(t *testing.T) {
	t.Parallel()
	m := amqpMessage("q", amqp.Delivery{ContentType: "application/json", Headers: amqp.Table{"Content-Type": "text/plain"}})
	if got := m.contentType(); got != "application/json" {
		t.Error(got)
	}
	m = amqpMessage("q", amqp.Delivery{Headers: amqp.Table{"Content-Type": []byte("application/cloudevents+json")}})
	if !m.IsCloudEvent() {
		t.Error("the header does not count without a property")
	}
}
