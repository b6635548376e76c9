package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Bounds of the publisher.
const (
	confirmWindow = 1024 // messages on their way at once
	dialPatience  = 10 * time.Second
	firstPause    = 50 * time.Millisecond // before the next connection, doubled up to longestPause
	longestPause  = time.Second
)

// sender publishes messages in their order and returns once all of them are confirmed.
type sender interface {
	send(ctx context.Context, messages []Message) error
	close()
}

// publisher sends to a broker and outlives its restarts: what was not confirmed is published again, so that a message
// may come twice and none is lost.
type publisher struct {
	url, exchange, queue string
	declare              bool
	log                  *slog.Logger
	ended                context.Context // the publisher's life
	end                  context.CancelCauseFunc

	mu   sync.Mutex // one send at a time; guards what follows
	link *link      // nil when there is none
}

var errPublisherClosed = errors.New("the Fetcher is closed")

// startPublisher connects once, so that a wrong address is seen at once, and declares the exchange where it has to.
func startPublisher(ctx context.Context, o FetcherOptions) (*publisher, error) {
	if _, err := amqp.ParseURI(o.AMQPURL); err != nil {
		return nil, errors.New("the broker's address can't be read") // the parser's text shows the password
	}
	p := &publisher{url: o.AMQPURL, exchange: o.Exchange, queue: o.Queue, declare: o.Declare, log: o.Log}
	p.ended, p.end = context.WithCancelCause(context.WithoutCancel(ctx))
	var err error
	if p.link, err = p.dial(ctx); err != nil {
		p.close()
		return nil, fmt.Errorf("broker: %w", err)
	}
	return p, nil
}

// close gives up what is being sent and waits for it.
func (p *publisher) close() {
	p.end(errPublisherClosed)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop()
}

// send implements sender. Only an exchange that is missing or forbidden makes it give up before ctx ends.
func (p *publisher) send(ctx context.Context, messages []Message) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ended, func() { cancel(context.Cause(p.ended)) })()
	p.mu.Lock()
	defer p.mu.Unlock()
	for pause := firstPause; len(messages) > 0; {
		left, err := p.attempt(ctx, messages)
		if len(left) < len(messages) {
			pause = firstPause
		}
		messages = left
		if err == nil {
			continue
		}
		p.drop()
		if hopeless(err) {
			return err
		}
		p.log.Debug("sandbox: publishing goes on with another connection", "left", len(left), "error", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
	return nil
}

// hopeless tells what another connection would not change.
func hopeless(err error) bool {
	var answer *amqp.Error
	return errors.As(err, &answer) && answer.Server && (answer.Code == amqp.NotFound || answer.Code == amqp.AccessRefused)
}

// attempt publishes a window and returns what was not confirmed, in its order.
func (p *publisher) attempt(ctx context.Context, messages []Message) (left []Message, err error) {
	if p.link == nil {
		if p.link, err = p.dial(ctx); err != nil {
			return messages, err
		}
	}
	link := p.link
	defer context.AfterFunc(ctx, link.cut)() // neither a write nor a wait for a confirmation outlives ctx
	window := messages[:min(len(messages), confirmWindow)]
	confirmations := make([]*amqp.DeferredConfirmation, 0, len(window))
	for _, message := range window {
		confirmation, publishErr := link.channel.PublishWithDeferredConfirmWithContext(ctx,
			message.Exchange, message.RoutingKey, false, false, message.Publishing)
		if publishErr != nil {
			err = publishErr
			break
		}
		confirmations = append(confirmations, confirmation)
	}
	for i, confirmation := range confirmations {
		if !confirmation.Wait() { // the end of the channel counts as a refusal
			left = append(left, window[i])
		}
	}
	if len(left) > 0 && err == nil {
		err = errors.New("not confirmed")
	}
	select {
	case reason := <-link.closed:
		if reason != nil {
			err = reason
		}
	default:
	}
	return append(append(left, window[len(confirmations):]...), messages[len(window):]...), err
}

// drop needs the lock.
func (p *publisher) drop() {
	if p.link != nil {
		p.link.close()
		p.link = nil
	}
}

// link is a connection with a channel in confirm mode.
type link struct {
	conn    *amqp.Connection
	channel *amqp.Channel
	closed  chan *amqp.Error // why the channel ended
	raw     net.Conn
}

func (p *publisher) dial(ctx context.Context) (*link, error) {
	l := &link{}
	dial := func(network, address string) (conn net.Conn, err error) {
		dialer := net.Dialer{Timeout: dialPatience}
		if conn, err = dialer.DialContext(ctx, network, address); err != nil {
			return nil, err
		}
		l.raw = conn
		return conn, conn.SetDeadline(time.Now().Add(dialPatience)) // of the handshake, which lifts it
	}
	var err error
	if l.conn, err = amqp.DialConfig(p.url, amqp.Config{Heartbeat: dialPatience, Locale: "en_US", Dial: dial}); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, l.cut)()
	if err := l.open(p); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *link) open(p *publisher) (err error) {
	if l.channel, err = l.conn.Channel(); err != nil {
		return err
	}
	l.closed = l.channel.NotifyClose(make(chan *amqp.Error, 1))
	if p.declare {
		if err := l.declare(p); err != nil {
			return err
		}
	}
	return l.channel.Confirm(false)
}

func (l *link) declare(p *publisher) error {
	err := l.channel.ExchangeDeclare(p.exchange, amqp.ExchangeTopic, true, false, false, false, nil)
	if err != nil || p.queue == "" {
		return err
	}
	_, err = l.channel.QueueDeclare(p.queue, true, false, false, false, nil)
	for _, status := range [...]string{JobCompleted, JobFailed} {
		err = errors.Join(err, l.channel.QueueBind(p.queue, "job."+status, p.exchange, false, nil))
	}
	return err
}

// cut ends the connection without a word.
func (l *link) cut() { _ = l.raw.Close() }

func (l *link) close() {
	_ = l.raw.SetDeadline(time.Now().Add(dialPatience)) // a broker that does not answer holds nobody
	_ = l.conn.Close()
}
