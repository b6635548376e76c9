package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// amqpPrefetch is how many messages the broker hands over ahead of their acknowledgement: two batches, so that the next
// one is here while the first is admitted.
const amqpPrefetch = 2 * maxBatch

// route tells what is known of the way from the exchange into the queue. AMQP has no question for it: whoever was allowed
// to bind knows, and nobody else.
type route int

const (
	routeUnknown route = iota // it is up to an administrator
	routeBound                // bound by every routing key just now
	routeMissing              // the exchange is not there, so that nothing can be bound to it
)

// amqpBinding is a queue in use.
type amqpBinding struct {
	link      *amqpLink
	channel   *amqp.Channel
	messages  <-chan amqp.Delivery
	connected context.Context // ends with the binding; its cause says why
	cancel    context.CancelCauseFunc
	watched   chan struct{} // closed when nobody watches over it any more
	route     route
	backlog   uint64
	detail    string
	notes     []string // what was not allowed, and may mean that events don't arrive
}

// bindQueue makes sure of exchange, queue and binding as far as that is allowed, and consumes the queue.
func (a *AMQP) bindQueue(ctx context.Context, link *amqpLink) (*amqpBinding, error) {
	b := &amqpBinding{link: link}
	queue, err := a.ensureQueue(ctx, link)
	if err != nil {
		return nil, err
	}
	b.backlog = uint64(max(queue.Messages, 0))
	if err := a.ensureRoute(ctx, b); err != nil {
		return nil, err
	}
	// Exclusively: what another consumer takes is lost to this ledger. A queue with a single active consumer takes no
	// exclusive one, and sees to it by itself.
	err = a.consume(ctx, b, true)
	switch {
	case err == nil || !isAMQP(err, amqp.AccessRefused):
	case queue.Consumers == 0:
		err = a.consume(ctx, b, false)
	default:
		err = fmt.Errorf("queue %s has another consumer, perhaps another agent, and each agent needs a queue of its own: %w", a.config.Queue, err)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// ensureQueue finds the queue, or declares it durable and without arguments. The broker's own settings decide on the rest.
func (a *AMQP) ensureQueue(ctx context.Context, link *amqpLink) (amqp.Queue, error) {
	queue, err := a.inspect(ctx, link)
	if isAMQP(err, amqp.NotFound) && a.config.Declare {
		err = link.attempt(ctx, func(ch *amqp.Channel) (err error) {
			queue, err = ch.QueueDeclare(a.config.Queue, true, false, false, false, nil)
			return err
		})
		if isAMQP(err, amqp.AccessRefused) {
			return queue, fmt.Errorf("queue %s does not exist, and the user may not declare it: %w", a.config.Queue, err)
		}
		if err == nil {
			a.log.Info("queue declared")
		}
	}
	return queue, a.explainQueue(err)
}

// inspect asks for the queue without touching it. That needs no right.
func (a *AMQP) inspect(ctx context.Context, link *amqpLink) (queue amqp.Queue, err error) {
	err = link.attempt(ctx, func(ch *amqp.Channel) (err error) {
		queue, err = ch.QueueDeclarePassive(a.config.Queue, true, false, false, false, nil)
		return err
	})
	return queue, err
}

func (a *AMQP) explainQueue(err error) error {
	switch {
	case err == nil:
		return nil
	case isAMQP(err, amqp.NotFound) && !a.config.Declare:
		return fmt.Errorf("queue %s does not exist, and declare is off: %w", a.config.Queue, err)
	}
	return fmt.Errorf("queue %s: %w", a.config.Queue, err)
}

// ensureRoute binds the queue to the exchange, declaring that where it is missing, and writes down what can be said of it.
func (a *AMQP) ensureRoute(ctx context.Context, b *amqpBinding) error {
	b.route, b.notes = routeUnknown, nil
	defer func() { b.detail = a.detail(b) }()
	if !a.config.Declare {
		return nil
	}
	switch err := a.ensureExchange(ctx, b.link); {
	case isAMQP(err, amqp.AccessRefused):
		b.route = routeMissing
		b.notes = append(b.notes, fmt.Sprintf("exchange %s does not exist, and the user may not declare it", a.config.Exchange))
		return nil
	case err != nil:
		return fmt.Errorf("exchange %s: %w", a.config.Exchange, err)
	}
	b.route = routeBound
	for _, key := range a.config.RoutingKeys {
		err := b.link.attempt(ctx, func(ch *amqp.Channel) error {
			return ch.QueueBind(a.config.Queue, key, a.config.Exchange, false, nil)
		})
		if isAMQP(err, amqp.AccessRefused) {
			b.route = routeUnknown
			b.notes = append(b.notes, fmt.Sprintf("the user may not bind the queue to exchange %s by %s", a.config.Exchange, key))
		} else if err != nil {
			return fmt.Errorf("bind queue %s to exchange %s by %s: %w", a.config.Queue, a.config.Exchange, key, err)
		}
	}
	return nil
}

func (a *AMQP) ensureExchange(ctx context.Context, link *amqpLink) error {
	err := link.attempt(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(a.config.Exchange, amqp.ExchangeTopic, true, false, false, false, nil)
	})
	if !isAMQP(err, amqp.NotFound) {
		return err
	}
	err = link.attempt(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(a.config.Exchange, amqp.ExchangeTopic, true, false, false, false, nil)
	})
	if err == nil {
		a.log.Info("exchange declared", "exchange", a.config.Exchange)
	}
	return err
}

func (a *AMQP) detail(b *amqpBinding) string {
	detail := fmt.Sprintf("queue %s at %s", a.config.Queue, b.link.address)
	switch b.route {
	case routeBound:
		detail += fmt.Sprintf(", bound to exchange %s by %s", a.config.Exchange, strings.Join(a.config.RoutingKeys, ", "))
	case routeMissing:
		detail += ", bound to nothing"
	case routeUnknown:
		detail += "; whether it is bound to the exchange is not known"
	}
	if len(b.notes) > 0 {
		detail += " (" + strings.Join(b.notes, "; ") + ")"
	}
	return detail
}

// consume opens the channel of the binding and has it watched until close.
func (a *AMQP) consume(ctx context.Context, b *amqpBinding, exclusive bool) error {
	var closed chan *amqp.Error
	var cancelled chan string
	err := b.link.within(ctx, func() (err error) {
		if b.channel, err = b.link.conn.Channel(); err != nil {
			return err
		}
		closed = b.channel.NotifyClose(make(chan *amqp.Error, 1))
		cancelled = b.channel.NotifyCancel(make(chan string, 1))
		if err = b.channel.Qos(amqpPrefetch, 0, false); err != nil {
			return err
		}
		b.messages, err = b.channel.Consume(a.config.Queue, "", false, exclusive, false, false, nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("consume queue %s: %w", a.config.Queue, err)
	}
	b.connected, b.cancel = context.WithCancelCause(ctx)
	b.watched = make(chan struct{})
	go b.watch(closed, cancelled)
	return nil
}

var (
	errConsumerCancelled = errors.New("the broker ended the consumer: the queue was deleted, or its node went down")
	errChannelClosed     = errors.New("channel closed")
)

// watch ends the binding with whatever ends first: connection (the library passes its end on to each channel), channel,
// consumer, or the subscription.
func (b *amqpBinding) watch(closed <-chan *amqp.Error, cancelled <-chan string) {
	defer close(b.watched)
	select {
	case reply := <-closed:
		if reply != nil {
			b.cancel(fmt.Errorf("connection or channel lost: %w", reply))
		} else {
			b.cancel(errChannelClosed)
		}
	case <-cancelled:
		b.cancel(errConsumerCancelled)
	case <-b.connected.Done():
	}
}

// close gives back what was not acknowledged: the broker delivers it again once the channel is gone.
func (b *amqpBinding) close() {
	b.cancel(nil)
	<-b.watched
}
