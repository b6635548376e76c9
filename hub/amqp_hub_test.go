package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"recibo/sandbox"
	"recibo/setting"
)

// sharedBroker is the RabbitMQ of all tests, started by the first that needs it.
var sharedBroker = sync.OnceValues(func() (*sandbox.Broker, error) {
	b, err := startBroker()
	brokerStarted = b
	return b, err
})

var brokerStarted *sandbox.Broker

// withBroker ends the shared broker after the tests, before goroutines are counted.
type withBroker struct{ *testing.M }

func (m withBroker) Run() int {
	code := m.M.Run()
	if brokerStarted != nil {
		brokerStarted.Close()
	}
	return code
}

// startBroker installs RabbitMQ where that is missing and possible.
func startBroker() (*sandbox.Broker, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	b, err := sandbox.StartBroker(ctx, sandbox.BrokerOptions{})
	if errors.Is(err, sandbox.ErrNoRabbitMQ) && os.Getuid() == 0 {
		if out, failure := exec.CommandContext(ctx, "../scripts/rabbitmq", "install").CombinedOutput(); failure != nil {
			return nil, errors.Join(err, failure, errors.New(string(out)))
		}
		return sandbox.StartBroker(ctx, sandbox.BrokerOptions{})
	}
	return b, err
}

// rabbit is a broker with an exchange and a queue that are the test's own.
type rabbit struct {
	t               *testing.T
	broker          *sandbox.Broker
	vhost           string
	exchange, queue string
}

func newRabbit(t *testing.T) *rabbit {
	t.Helper()
	b, err := sharedBroker()
	if errors.Is(err, sandbox.ErrNoRabbitMQ) {
		t.Skip("RabbitMQ is not installed: scripts/rabbitmq install")
	}
	if err != nil {
		t.Fatal(err)
	}
	return &rabbit{t: t, broker: b, exchange: "x." + t.Name(), queue: "q." + t.Name()}
}

func (r *rabbit) url() string { return r.broker.URL() + "/" + r.vhost }

func (r *rabbit) config() AMQPConfig {
	c := DefaultAMQPConfig()
	c.URLs, c.Exchange, c.Queue = []string{r.url()}, r.exchange, r.queue
	return c
}

func (r *rabbit) ctl(args ...string) string {
	r.t.Helper()
	out, err := r.broker.Ctl(context.Background(), args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// user makes a user with rights by three patterns: to configure, to write, to read.
func (r *rabbit) user(name, password, configure, write, read string) {
	r.t.Helper()
	r.ctl("eval", fmt.Sprintf(`ok = rabbit_auth_backend_internal:add_user(<<"%s">>, <<"%s">>, <<"test">>),
		ok = rabbit_auth_backend_internal:set_permissions(<<"%s">>, <<"/">>, <<"%s">>, <<"%s">>, <<"%s">>, <<"test">>).`,
		name, password, name, configure, write, read)) // one run of rabbitmqctl takes a second or two
}

// addVhost makes the virtual host of the test.
func (r *rabbit) addVhost() {
	r.t.Helper()
	r.ctl("eval", fmt.Sprintf(`ok = rabbit_vhost:add(<<"%s">>, <<"test">>),
		ok = rabbit_auth_backend_internal:set_permissions(<<"guest">>, <<"%s">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>).`,
		r.vhost, r.vhost))
}

// client runs f on a channel of an administrator's connection.
func (r *rabbit) client(f func(*amqp.Channel) error) {
	r.t.Helper()
	if err := r.try(f); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rabbit) try(f func(*amqp.Channel) error) error {
	conn, err := amqp.Dial(r.url())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return f(ch)
}

func (r *rabbit) declareExchange() *rabbit {
	r.t.Helper()
	r.client(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(r.exchange, "topic", true, false, false, false, nil)
	})
	return r
}

func (r *rabbit) declareQueue() *rabbit {
	r.t.Helper()
	r.client(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(r.queue, true, false, false, false, nil)
		return err
	})
	return r
}

// declare makes exchange, queue and bindings, as an administrator would.
func (r *rabbit) declare() *rabbit {
	r.t.Helper()
	r.declareExchange().declareQueue().client(func(ch *amqp.Channel) error {
		return ch.QueueBind(r.queue, "report.*", r.exchange, false, nil)
	})
	return r
}

// publish sends a report.finished event per id, as lib-streaming does: attributes are byte arrays. An id of "" gives an
// event that is quarantined.
func (r *rabbit) publish(ids ...string) {
	r.t.Helper()
	if err := r.send(ids...); err != nil {
		r.t.Fatal(err)
	}
}

// send is publish for a broker that may go away. Without an error every event is in a queue.
func (r *rabbit) send(ids ...string) error {
	return r.try(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		returned := ch.NotifyReturn(make(chan amqp.Return, len(ids)))
		for _, id := range ids {
			confirmed, err := ch.PublishWithDeferredConfirm(r.exchange, ReportFinished, true, false, amqpEvent(id))
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			ok, err := confirmed.WaitContext(ctx)
			cancel()
			if err != nil || !ok {
				return errors.Join(err, errors.New("not confirmed"))
			}
		}
		select {
		case <-returned:
			return errors.New("no queue is bound")
		default:
			return nil
		}
	})
}

func amqpEvent(id string) amqp.Publishing {
	headers := amqp.Table{}
	for name, values := range finished("ce-id", id, "ce-subject", "-") {
		headers[name] = []byte(values[0])
	}
	return amqp.Publishing{ContentType: "application/json", DeliveryMode: amqp.Persistent, Headers: headers, Body: []byte(`{"report_id":"r-1"}`)}
}

// ready counts the messages that wait in the queue; those in a consumer's hands don't.
func (r *rabbit) ready() int {
	r.t.Helper()
	var queue amqp.Queue
	r.client(func(ch *amqp.Channel) (err error) {
		queue, err = ch.QueueDeclarePassive(r.queue, true, false, false, false, nil)
		return err
	})
	return queue.Messages
}

// unacknowledged counts the messages in consumers' hands.
func (r *rabbit) unacknowledged() string {
	r.t.Helper()
	for line := range strings.Lines(r.ctl("list_queues", "name", "messages_unacknowledged")) {
		if count, ok := strings.CutPrefix(strings.TrimSpace(line), r.queue+"\t"); ok {
			return count
		}
	}
	return "no queue"
}

// consume returns a subscription that tries again soon.
func consume(t *testing.T, c AMQPConfig) *AMQP {
	t.Helper()
	n := normaliser(t, nil)
	a, err := NewAMQP(c, AMQPOptions{Name: t.Name(), Normalise: func(m AMQPMessage) Delivery { return n.Delivery(m.Message) }})
	if err != nil {
		t.Fatal(err)
	}
	a.retry = backoff{least: time.Millisecond, most: 10 * time.Millisecond}
	return a
}

// start runs any subscription until stop, or the end of the test.
func start(t *testing.T, s Subscription, admit AdmitFunc) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = s.Run(ctx, admit)
	}()
	t.Cleanup(r.stop)
	return r
}

func isHealthy(s Subscription) func() bool { return func() bool { return s.Health().Healthy } }

// says waits for an unhealthy subscription that gives a reason.
func says(s Subscription, reason string) func() bool {
	return func() bool { h := s.Health(); return !h.Healthy && strings.Contains(h.Detail, reason) }
}

// holds waits until the ledger has all the ids, whatever else it has.
func (l *ledger) holds(ids []string) func() bool {
	return func() bool {
		have := l.admitted()
		return !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(have, id) })
	}
}

// secretIn returns a secret that follows a file.
func secretIn(t *testing.T, value string) (file string, secret setting.Secret) {
	t.Helper()
	file = write(t, "password", value)
	secret, err := setting.SecretFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, secret
}
