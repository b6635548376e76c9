package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// amqpGap is how long a batch waits for the next message of a burst: the library hands them over one by one.
const amqpGap = 5 * time.Millisecond

// receive takes batches until the binding is over. worked tells that it lasted for a while or that a batch was admitted.
func (a *AMQP) receive(ctx context.Context, b *amqpBinding, admit AdmitFunc) (worked bool, err error) {
	look := time.NewTicker(a.recheck)
	defer look.Stop()
	for {
		batch, err := b.gather(look.C)
		if err != nil {
			return worked, err
		}
		if len(batch) == 0 {
			worked = true
			if err := a.lookAgain(ctx, b); err != nil {
				return worked, err
			}
			continue
		}
		if err := a.admitBatch(ctx, b, batch, admit); err != nil {
			return worked, err
		}
		worked = true
		a.works(b)
	}
}

// drain takes batches until the queue says that it is empty and nothing is on its way.
func (a *AMQP) drain(ctx context.Context, b *amqpBinding, admit AdmitFunc) error {
	empty, stuck := false, 0
	for {
		timer := time.NewTimer(amqpDrainWindow)
		batch, err := b.gather(timer.C)
		timer.Stop()
		if err != nil {
			return err
		}
		if len(batch) > 0 {
			empty, stuck = false, 0
			if err := a.admitOnce(ctx, b, batch, a.judge(batch), admit); err != nil {
				return fmt.Errorf("events can't be stored: %w", err)
			}
			continue
		}
		queue, err := a.inspect(ctx, b.link)
		switch {
		case err != nil:
			return a.explainQueue(err)
		case queue.Messages == 0 && empty:
			return nil
		case queue.Messages > 0:
			if stuck++; stuck > drainRounds {
				return fmt.Errorf("%d events wait and are not delivered: is another consumer the only active one?", queue.Messages)
			}
		}
		empty = queue.Messages == 0 // what left the queue just before the question is still on its way
	}
}

// lookAgain asks for the queue's backlog, and binds the queue again, since the exchange may have come to be, or been declared
// anew without its bindings. A missing right is not tried again before the next binding: the broker logs each refusal.
func (a *AMQP) lookAgain(ctx context.Context, b *amqpBinding) error {
	queue, err := a.inspect(ctx, b.link)
	if err != nil {
		return b.explain(a.explainQueue(err))
	}
	b.backlog = uint64(max(queue.Messages, 0))
	a.left(b.backlog)
	before := b.route
	if before == routeUnknown {
		a.works(b) // a Drain beside Run may have said otherwise
		return nil
	}
	if err := a.ensureRoute(ctx, b); err != nil {
		return b.explain(err)
	}
	if b.route == before && b.route == routeBound {
		a.works(b)
		return nil
	}
	a.announce(b)
	return nil
}

// explain prefers the reason for which the binding is over.
func (b *amqpBinding) explain(err error) error {
	if b.connected.Err() != nil {
		return context.Cause(b.connected)
	}
	return err
}

// gather waits for one message and takes what is there behind it, up to the bounds of a batch. It returns an empty batch
// when idle fires first, and an error once the binding is over.
func (b *amqpBinding) gather(idle <-chan time.Time) ([]amqp.Delivery, error) {
	var batch []amqp.Delivery
	if b.connected.Err() != nil { // a stop comes before the next message
		return nil, context.Cause(b.connected)
	}
	select {
	case <-b.connected.Done():
		return nil, context.Cause(b.connected)
	case <-idle:
		return nil, nil
	case message, open := <-b.messages:
		if !open {
			return nil, b.ended()
		}
		batch = append(batch, message)
	}
	gap := time.NewTimer(amqpGap)
	defer gap.Stop()
	for size := len(batch[0].Body); len(batch) < maxBatch && size < maxBytes; {
		select {
		case message, open := <-b.messages:
			if !open {
				return nil, b.ended() // they can't be acknowledged any more, and come again
			}
			batch = append(batch, message)
			size += len(message.Body)
			gap.Reset(amqpGap)
		case <-gap.C:
			return batch, nil
		case <-b.connected.Done():
			return nil, context.Cause(b.connected)
		}
	}
	return batch, nil
}

// ended waits for the reason why there are no more messages: the library closes that channel last, or nearly so.
func (b *amqpBinding) ended() error {
	pause(b.connected, amqpCloseWait)
	if b.connected.Err() != nil {
		return context.Cause(b.connected)
	}
	return errChannelClosed
}

// admitBatch makes a batch durable and only then acknowledges it (law 1). What can't be admitted is held and tried again:
// given back, the broker would deliver it again at once, without end. It returns an error when the binding is of no use
// any more, also because the batch was held for too long.
func (a *AMQP) admitBatch(ctx context.Context, b *amqpBinding, batch []amqp.Delivery, admit AdmitFunc) error {
	deliveries := a.judge(batch)
	wait := a.retry
	held := time.Now()
	for {
		err := a.admitOnce(ctx, b, batch, deliveries, admit)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		delay := wait.next()
		reason := "events can't be stored: " + err.Error()
		a.down(reason)
		a.log.Error("events held back", "count", len(batch), "delay", delay, "error", err)
		if time.Since(held)+delay > a.hold {
			return errors.New(reason + "; given back to the broker")
		}
		if !pause(b.connected, delay) {
			return context.Cause(b.connected)
		}
	}
}

// judge normalises a batch and counts it.
func (a *AMQP) judge(batch []amqp.Delivery) []Delivery {
	deliveries := make([]Delivery, len(batch))
	for i, message := range batch {
		deliveries[i] = a.options.Normalise(amqpMessage(a.config.Queue, message))
	}
	a.received(deliveries)
	return deliveries
}

// admitOnce acknowledges the whole batch with its last message: all before it on this channel are acknowledged already. A
// quarantined message is acknowledged like the others, since it is on disk too. A stop lets the batch in hand be finished,
// within a bound.
func (a *AMQP) admitOnce(ctx context.Context, b *amqpBinding, batch []amqp.Delivery, deliveries []Delivery, admit AdmitFunc) error {
	lasting, cancel := outlast(ctx, admitGrace)
	defer cancel()
	outcomes, err := admit(lasting, deliveries)
	if err != nil {
		return err
	}
	if len(outcomes) != len(deliveries) {
		return fmt.Errorf("%d outcomes for %d deliveries", len(outcomes), len(deliveries))
	}
	if err := batch[len(batch)-1].Ack(true); err != nil {
		a.log.Debug("acknowledgement not sent; the events will be delivered again", "count", len(batch), "error", err)
	}
	return nil
}
