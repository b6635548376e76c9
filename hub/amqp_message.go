package hub

import (
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// amqpMessage brings a delivery into the one form of all transports.
func amqpMessage(queue string, d amqp.Delivery) AMQPMessage {
	headers := make(map[string][]string, len(d.Headers)+1)
	if d.ContentType != "" {
		headers["content-type"] = []string{d.ContentType}
	}
	for name, value := range d.Headers {
		if text, ok := amqpText(value); ok {
			headers[name] = []string{text}
		}
	}
	return AMQPMessage{
		Message: Message{
			Headers:     headers,
			ContentType: d.ContentType,
			Body:        d.Body,
			Transport:   amqpTransport,
			Origin:      fmt.Sprintf("%s:%s/%s", queue, d.Exchange, d.RoutingKey),
		},
		Exchange:    d.Exchange,
		RoutingKey:  d.RoutingKey,
		Redelivered: d.Redelivered,
	}
}

// amqpText turns the value of a header into text. Producers write the attributes of events as byte arrays; tables, arrays
// and void have no text.
func amqpText(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano), true
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32), true
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), true
	case bool, int, int8, int16, int32, int64, uint8, uint16, uint32, uint64:
		return fmt.Sprint(v), true
	}
	return "", false
}
