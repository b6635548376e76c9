package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// admitGrace is how long a batch in hand may still take once a stop was asked for.
	admitGrace = 5 * time.Second
	// drainRounds and drainPause bound how long Drain waits for messages that the server counts and does not deliver.
	drainRounds = 3
	drainPause  = 500 * time.Millisecond
)

// giveBack is how long a batch that could not be admitted stays with the server: never a bare Nak, which is delivered
// again at once and without end.
func giveBack() backoff { return backoff{least: time.Second, most: 30 * time.Second} }

// receive takes batches until the binding is over: ctx ends with the subscription, connected with the connection too.
func (n *NATS) receive(ctx, connected context.Context, link *natsLink, b *natsBinding, admit AdmitFunc) (worked bool, err error) {
	refused := giveBack()
	looked := time.Now()
	for {
		messages, err := b.gather(connected)
		if len(messages) > 0 {
			delay := refused.plain()
			if failure := n.admitBatch(ctx, link, messages, admit, delay); failure != nil && ctx.Err() == nil {
				n.down("events can't be stored: " + failure.Error())
				n.log.Error("events given back", "count", len(messages), "delay", delay, "error", failure)
				pause(connected, delay)
			} else {
				refused.reset()
				n.up(b.detail)
			}
		}
		if err != nil || connected.Err() != nil {
			return worked, errors.Join(err, connected.Err())
		}
		worked = true
		if time.Since(looked) >= n.recheck {
			if err := n.stillOurs(connected, b); err != nil {
				return worked, err
			}
			looked = time.Now()
		}
	}
}

// drain takes batches until the server has no more.
func (n *NATS) drain(ctx, connected context.Context, link *natsLink, b *natsBinding, admit AdmitFunc) error {
	for empty := 0; ; {
		messages, err := b.more(nil)
		if len(messages) > 0 {
			empty = 0
			if failure := n.admitBatch(ctx, link, messages, admit, time.Second); failure != nil {
				return fmt.Errorf("events can't be stored: %w", failure)
			}
		}
		if err = errors.Join(err, connected.Err()); err != nil {
			return err
		}
		if len(messages) > 0 {
			continue
		}
		info, err := b.consumer.Info(connected)
		switch {
		case err != nil:
			return err
		case info.NumPending == 0:
			return nil
		case empty == drainRounds:
			return fmt.Errorf("%d events are pending and not delivered: is the consumer paused, or too much of it unacknowledged?",
				info.NumPending)
		}
		empty++
		pause(connected, drainPause)
	}
}

// gather waits for one message and takes what is there behind it. It never waits for a full batch: the first messages
// would be delivered again while it does. Messages count even when there is an error beside them.
func (b *natsBinding) gather(ctx context.Context) ([]jetstream.Msg, error) {
	bounded, cancel := context.WithTimeout(ctx, b.wait)
	defer cancel()
	options := []jetstream.FetchOpt{jetstream.FetchContext(bounded)}
	if deadline, _ := bounded.Deadline(); b.wait == fetchWait && time.Until(deadline) > 2*heartbeat {
		options = append(options, jetstream.FetchHeartbeat(heartbeat))
	}
	fetched, err := b.consumer.Fetch(1, options...)
	if err != nil {
		return nil, err
	}
	first, err := collect(fetched)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nil // nothing came
	}
	if err != nil || len(first) == 0 {
		return first, err
	}
	return b.more(first)
}

// more adds what the server has now to batch, in order, up to the bounds of a batch.
func (b *natsBinding) more(batch []jetstream.Msg) ([]jetstream.Msg, error) {
	size := 0
	for len(batch) < b.batch && size < maxBytes {
		ask := min(chunk, b.batch-len(batch))
		fetched, err := b.consumer.FetchNoWait(ask)
		if err != nil {
			return batch, err
		}
		came, err := collect(fetched)
		batch = append(batch, came...)
		for _, message := range came {
			size += len(message.Data())
		}
		if err != nil || len(came) < ask {
			return batch, err
		}
	}
	return batch, nil
}

func collect(fetched jetstream.MessageBatch) ([]jetstream.Msg, error) {
	var messages []jetstream.Msg
	for message := range fetched.Messages() {
		messages = append(messages, message)
	}
	return messages, fetched.Error()
}

// admitBatch makes a batch durable and only then acknowledges it (law 1). When that fails all of it is given back. A stop
// lets the batch in hand be finished, within a bound.
func (n *NATS) admitBatch(ctx context.Context, link *natsLink, messages []jetstream.Msg, admit AdmitFunc, delay time.Duration) error {
	deliveries := make([]Delivery, len(messages))
	for i, message := range messages {
		deliveries[i] = n.normaliser.Delivery(natsMessage(message))
	}
	n.received(deliveries)
	lasting, cancel := outlast(ctx, admitGrace)
	defer cancel()
	outcomes, failure := admit(lasting, deliveries)
	if failure == nil && len(outcomes) != len(deliveries) {
		failure = fmt.Errorf("%d outcomes for %d deliveries", len(outcomes), len(deliveries))
	}
	for i, message := range messages {
		var err error
		switch {
		case failure != nil:
			err = message.NakWithDelay(delay)
		case outcomes[i] == Quarantined:
			err = message.TermWithReason(natsReason(deliveries[i].Reason))
		default:
			err = message.Ack()
		}
		if err != nil {
			n.log.Debug("acknowledgement not sent; the event will be delivered again", "origin", deliveries[i].Origin, "error", err)
		}
	}
	if at, err := messages[len(messages)-1].Metadata(); err == nil && failure == nil {
		n.left(at.NumPending)
	}
	if err := link.flush(); err != nil {
		n.log.Debug("acknowledgements not confirmed; the events may be delivered again", "count", len(messages), "error", err)
	}
	return failure
}

func natsMessage(message jetstream.Msg) Message {
	m := Message{Headers: message.Headers(), Body: message.Data(), Transport: natsTransport, Origin: message.Subject()}
	if at, err := message.Metadata(); err == nil {
		m.Origin = fmt.Sprintf("%s:%d", at.Stream, at.Sequence.Stream)
	}
	return m
}

// natsReason makes a reason fit for the protocol: one line, at most 200 bytes.
func natsReason(reason string) string {
	line := make([]rune, 0, 200)
	size := 0
	for _, r := range reason {
		if r < ' ' || r == 0x7f {
			r = ' '
		}
		if size += len(string(r)); size > 200 {
			break
		}
		line = append(line, r)
	}
	return string(line)
}

// outlast returns a context that ends only some time after ctx did.
func outlast(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		pause(lasting, grace)
		cancel()
	})
	return lasting, func() {
		stop()
		cancel()
	}
}
