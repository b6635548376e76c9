package hub

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"recibo/setting"
)

// AMQPMessage is a message as RabbitMQ delivered it.
type AMQPMessage struct {
	Message
	Exchange    string
	RoutingKey  string
	Redelivered bool // it was given to a consumer before
}

// AMQPOptions is what a RabbitMQ subscription needs beside its section of the configuration.
type AMQPOptions struct {
	Log  *slog.Logger // nil: no log
	Name string       // of the connection, as the broker lists it; default recibo

	// Normalise judges a message. It is asked once for each delivery and must be given.
	Normalise func(AMQPMessage) Delivery
}

// AMQP is a subscription through a durable queue of RabbitMQ. Messages are acknowledged by hand, only once they were
// admitted (law 1: an event is acknowledged only once the ledger holds it on disk). A batch that can't be admitted stays
// unacknowledged while it is tried again; at a stop its channel is closed, and the broker delivers it again.
//
// A binding is a queue that is consumed on one channel of one connection. When connection, channel or consumer is gone the
// binding is over, and the next one is announced through Bound: what happened in between is found by a sweep.
type AMQP struct {
	*status
	config   AMQPConfig
	options  AMQPOptions
	log      *slog.Logger
	brokers  []amqp.URI
	first    atomic.Int32      // the broker to be tried first
	material *setting.Material // of amqps
	recheck  time.Duration     // how often the queue is looked at
	hold     time.Duration     // how long a batch that can't be admitted is kept from the broker
	retry    backoff           // between two attempts to admit it
}

const (
	amqpTransport   = "amqp"
	amqpRecheck     = 30 * time.Second
	amqpHold        = 5 * time.Minute // far below the time after which a broker closes the channel (30 min, older ones 15)
	amqpReconnect   = 8 * time.Second // with its jitter at most 10 s
	amqpDrainWindow = 200 * time.Millisecond
)

// NewAMQP returns a subscription that is not connected yet. It fails for a section that is not valid.
func NewAMQP(c AMQPConfig, o AMQPOptions) (*AMQP, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	if o.Normalise == nil {
		return nil, fmt.Errorf("amqp: nothing judges the messages of queue %s", c.Queue)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Name == "" {
		o.Name = "recibo"
	}
	brokers, err := c.brokers()
	if err != nil {
		return nil, err
	}
	material, err := setting.NewMaterial(c.TLS)
	if err != nil {
		return nil, fmt.Errorf("amqp: tls: %w", err)
	}
	return &AMQP{
		status:   newStatus(amqpTransport),
		config:   c,
		options:  o,
		log:      o.Log.With("transport", amqpTransport, "queue", c.Queue),
		brokers:  brokers,
		material: material,
		recheck:  amqpRecheck,
		hold:     amqpHold,
		retry:    giveBack(),
	}, nil
}

// Run receives until ctx ends, and then returns nil. It outlasts everything: a broker that is away, refused credentials, a
// missing right, a queue that is not there or goes. Health tells which.
func (a *AMQP) Run(ctx context.Context, admit AdmitFunc) error {
	wait := backoff{least: 200 * time.Millisecond, most: amqpReconnect}
	for ctx.Err() == nil {
		worked, err := a.session(ctx, admit)
		if ctx.Err() != nil {
			break
		}
		if worked {
			wait.reset()
		} else {
			a.first.Add(1) // this one, if any, took the connection and is of no use
		}
		a.tell(err.Error())
		pause(ctx, wait.next())
	}
	a.down("stopped")
	return nil
}

// tell reports why nothing can be received, and logs it once.
func (a *AMQP) tell(reason string) {
	if a.Health().Detail != reason {
		a.log.Warn("not receiving", "reason", reason)
	}
	a.down(reason)
}

// session connects, binds, and receives until that binding is over. worked tells that it was of use.
func (a *AMQP) session(ctx context.Context, admit AdmitFunc) (worked bool, err error) {
	link, err := a.connect(ctx)
	if err != nil {
		return false, err
	}
	defer link.close()
	b, err := a.bindQueue(ctx, link)
	if err != nil {
		return false, err
	}
	defer b.close()
	a.announce(b)
	return a.receive(ctx, b, admit)
}

// announce reports a binding. One whose queue is surely bound to nothing is none yet, although it receives what an
// earlier time left in the queue.
func (a *AMQP) announce(b *amqpBinding) {
	if b.route == routeMissing {
		a.tell(b.detail)
		return
	}
	a.bind(b.detail, b.backlog)
	a.log.Info("subscription bound", "broker", b.link.address)
	if len(b.notes) > 0 {
		a.log.Warn("the subscription may not get all that it should", "notes", strings.Join(b.notes, "; "))
	}
}

// works reports that the binding is of use again.
func (a *AMQP) works(b *amqpBinding) {
	if b.route == routeMissing {
		a.down(b.detail)
		return
	}
	a.up(b.detail)
}

// Drain receives what the queue holds now, without waiting for more, and ends with the first fault. Messages that another
// consumer took and has not acknowledged come back when its channel ends, not here.
func (a *AMQP) Drain(ctx context.Context, admit AdmitFunc) error {
	link, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer link.close()
	defer a.down("stopped")
	b, err := a.bindQueue(ctx, link)
	if err != nil {
		return err
	}
	defer b.close()
	a.announce(b)
	return a.drain(ctx, b, admit)
}

// Found is what Check saw.
type Found struct {
	Detail string // for people: broker, queue, and how many messages wait in it
	Lost   string // why events that are published now get lost; empty where nothing shows that they do
}

// Check reports whether a subscription would work, changing nothing: a broker is there and takes the credentials, and the
// queue is there or may be declared. Rights to declare and to read show only when they are used, and whether the queue is
// bound only to who binds it.
func (a *AMQP) Check(ctx context.Context) (Found, error) {
	link, err := a.connect(ctx)
	if err != nil {
		return Found{}, err
	}
	defer link.close()
	found := Found{Detail: fmt.Sprintf("queue %s at %s", a.config.Queue, link.address)}
	queue, err := a.inspect(ctx, link)
	switch {
	case err == nil:
		found.Detail += fmt.Sprintf(", %d messages waiting", queue.Messages)
	case isAMQP(err, amqp.NotFound) && a.config.Declare:
		found.Lost = "queue " + a.config.Queue + " is not there yet, and what is published before recibo run declares it is lost"
		return found, nil
	default:
		return found, a.explainQueue(err)
	}
	err = link.attempt(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(a.config.Exchange, amqp.ExchangeTopic, true, false, false, false, nil)
	})
	if isAMQP(err, amqp.NotFound) {
		found.Lost = "exchange " + a.config.Exchange + " is not there, so that nothing is bound to it"
	}
	return found, nil
}

var _ Subscription = (*AMQP)(nil)
