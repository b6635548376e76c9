package sandbox

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// openBroker starts a broker that ends with the test, and skips it where RabbitMQ is not installed.
func openBroker(t *testing.T) *Broker {
	t.Helper()
	b, err := StartBroker(t.Context(), BrokerOptions{})
	if errors.Is(err, ErrNoRabbitMQ) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// queued binds a durable queue to the exchange.
func queued(t *testing.T, b *Broker, exchange, queue string) {
	t.Helper()
	withChannel(t, b, func(channel *amqp.Channel) error {
		_, err := channel.QueueDeclare(queue, true, false, false, false, nil)
		return errors.Join(err, channel.QueueBind(queue, "job.#", exchange, false, nil))
	})
}

func withChannel(t *testing.T, b *Broker, do func(*amqp.Channel) error) {
	t.Helper()
	conn, err := amqp.Dial(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err == nil {
		err = do(channel)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// drained takes everything out of a queue that nothing is published to.
func drained(t *testing.T, b *Broker, queue string) (all []amqp.Delivery) {
	t.Helper()
	withChannel(t, b, func(channel *amqp.Channel) error {
		state, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			return err
		}
		deliveries, err := channel.Consume(queue, "", true, false, false, false, nil)
		for err == nil && len(all) < state.Messages {
			delivery, ok := <-deliveries
			if !ok {
				return errors.New("the broker ended the deliveries")
			}
			all = append(all, delivery)
		}
		return err
	})
	return all
}

func TestEventsReachRabbitMQ(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	missingExchangeIsTold(t, b)
	f, err := StartFetcher(t.Context(), FetcherOptions{AMQPURL: b.URL(), Declare: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	queued(t, b, f.Exchange(), "jobs")
	eventsComeAsTheyWereMade(t, b, f)
	eventsOutliveARestart(t, b, f)
	waitsForTheBrokerEnd(t, b, f)
}

func missingExchangeIsTold(t *testing.T, b *Broker) {
	t.Helper()
	f, err := StartFetcher(t.Context(), FetcherOptions{AMQPURL: b.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var answer *amqp.Error
	if _, err := f.Run(t.Context(), Job{}); !errors.As(err, &answer) || answer.Code != amqp.NotFound {
		t.Errorf("published to no exchange: %v", err)
	}
}

func eventsComeAsTheyWereMade(t *testing.T, b *Broker, f *Fetcher) {
	t.Helper()
	run(t, f, Job{})
	all := drained(t, b, "jobs")
	if len(all) != 1 {
		t.Fatalf("%d messages", len(all))
	}
	got := all[0]
	message := Message{got.Exchange, got.RoutingKey, amqp.Publishing{Headers: got.Headers, Body: got.Body}}
	if !verified(f, message, time.Now()) ||
		got.ContentType != "application/json" || got.DeliveryMode != amqp.Persistent || got.MessageId != "" {
		t.Errorf("%+v", got)
	}
	for name, value := range got.Headers {
		_, raw := value.([]byte)
		_, number := value.(int32)
		if want := strings.HasPrefix(name, "ce-") || name == "traceparent"; raw != want || number != (name == "x-retry-count") {
			t.Errorf("%s comes as %T", name, value)
		}
	}
}

func eventsOutliveARestart(t *testing.T, b *Broker, f *Fetcher) {
	t.Helper()
	s := NewJobScenario(JobScenarioOptions{Jobs: 3 * confirmWindow, Seed: 1, Repeat: 1, MinSize: 500, MaxSize: 1000})
	played := make(chan error, 1)
	go func() { played <- f.Play(t.Context(), s) }()
	eventually(t, "the first events are confirmed", func() bool { return len(f.All()) > confirmWindow+1 })
	if err := b.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := <-played; err != nil {
		t.Fatal(err)
	}
	came := map[string]bool{}
	for _, delivery := range drained(t, b, "jobs") {
		came[string(delivery.Headers["ce-id"].([]byte))] = true
	}
	if len(came) != len(s.Jobs) {
		t.Errorf("%d events of %d", len(came), len(s.Jobs))
	}
}

func waitsForTheBrokerEnd(t *testing.T, b *Broker, f *Fetcher) {
	t.Helper()
	id := f.All()[0].ID
	b.Stop()
	emitted := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { emitted <- f.Emit(ctx, id, Emission{}) }()
	cancel()
	if err := <-emitted; !errors.Is(err, context.Canceled) {
		t.Errorf("a wait for the broker ended with %v", err)
	}
	go func() { emitted <- f.Emit(t.Context(), id, Emission{}) }()
	f.Close()
	if err := <-emitted; !errors.Is(err, errPublisherClosed) {
		t.Errorf("after the end of the Fetcher: %v", err)
	}
}
