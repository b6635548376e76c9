package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	amqpDialWait  = 10 * time.Second // bounds one attempt to connect, up to the login
	amqpRPCWait   = 15 * time.Second // bounds one question to the broker
	amqpHeartbeat = 10 * time.Second // a connection that died without a word is found within three of them
	amqpCloseWait = 2 * time.Second  // bounds the farewell, with which the broker has read every acknowledgement
	amqpFrame     = 128 << 10        // RabbitMQ's own default
)

// amqpLink is one connection to one broker. It is never mended: another one takes its place. It never publishes, so that
// connection.blocked, by which a broker short of memory or disk holds publishers back, does not concern it.
type amqpLink struct {
	conn    *amqp.Connection
	socket  net.Conn
	address string // without credentials
}

// connect tries the brokers in turn, once each. It reads credentials and certificates anew, so that a rotation needs no
// restart.
func (a *AMQP) connect(ctx context.Context) (*amqpLink, error) {
	var errs []error
	first := int(a.first.Load())
	for i := range a.brokers {
		turn := (first + i) % len(a.brokers)
		link, err := a.dial(ctx, a.brokers[turn])
		if err == nil {
			a.first.Store(int32(turn))
			return link, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", shownBroker(a.brokers[turn]), err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("not connected: %w", oneLine(errs))
}

// dial opens a socket, secures it and logs in. The end of ctx ends it at once.
func (a *AMQP) dial(ctx context.Context, broker amqp.URI) (*amqpLink, error) {
	ctx, cancel := context.WithTimeout(ctx, amqpDialWait)
	defer cancel()
	var dialer net.Dialer
	socket, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(broker.Host, strconv.Itoa(broker.Port)))
	if err != nil {
		return nil, err
	}
	link := &amqpLink{socket: socket, address: shownBroker(broker)}
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	err = a.login(ctx, link, broker)
	if !stop() {
		err = fmt.Errorf("no answer to the login: %w", ctx.Err())
	}
	if err != nil {
		link.close()
		return nil, err
	}
	return link, nil
}

// login fills in the link's connection, also one that failed and must be closed.
func (a *AMQP) login(ctx context.Context, link *amqpLink, broker amqp.URI) error {
	secured := link.socket
	if broker.Scheme == "amqps" {
		name := broker.ServerName
		if name == "" {
			name = broker.Host
		}
		config, err := a.material.Client(name)
		if err != nil {
			return err
		}
		client := tls.Client(link.socket, config)
		if err := client.HandshakeContext(ctx); err != nil {
			return err
		}
		secured = client
	}
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(a.options.Name)
	var err error
	link.conn, err = amqp.Open(secured, amqp.Config{
		SASL:       []amqp.Authentication{a.config.login(broker)},
		Vhost:      broker.Vhost,
		Heartbeat:  amqpHeartbeat,
		FrameSize:  amqpFrame,
		Locale:     "en_US",
		Properties: properties,
	})
	return explainLogin(err)
}

// errRefused says that a broker does not take the credentials, or not for this virtual host.
var errRefused = errors.New("credentials or virtual host refused")

func explainLogin(err error) error {
	if isAMQP(err, amqp.AccessRefused) || isAMQP(err, amqp.NotAllowed) {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}

// attempt runs f on a channel of its own, since the broker closes the channel of a question that it answers with an error.
// The library's calls have no context: when ctx ends, or no answer comes, the socket is closed, and that ends them.
func (l *amqpLink) attempt(ctx context.Context, f func(*amqp.Channel) error) error {
	return l.within(ctx, func() error {
		ch, err := l.conn.Channel()
		if err != nil {
			return err
		}
		defer func() { _ = ch.Close() }()
		return f(ch)
	})
}

func (l *amqpLink) within(ctx context.Context, f func() error) error {
	bounded, cancel := context.WithTimeout(ctx, amqpRPCWait)
	defer cancel()
	stop := context.AfterFunc(bounded, func() { _ = l.socket.Close() })
	err := f()
	if !stop() {
		return fmt.Errorf("%s: no answer: %w", l.address, bounded.Err())
	}
	return err
}

// close says farewell, within a bound, and waits for the library's goroutines as far as it can be told.
func (l *amqpLink) close() {
	if l.conn != nil {
		_ = l.conn.CloseDeadline(time.Now().Add(amqpCloseWait))
	}
	_ = l.socket.Close()
}

// isAMQP reports whether the broker answered with a reply code of AMQP 0-9-1.
func isAMQP(err error, code int) bool {
	var reply *amqp.Error
	return errors.As(err, &reply) && reply.Code == code
}

// oneLine joins errors for a single line of text.
func oneLine(errs []error) error {
	joined := errs[0]
	for _, err := range errs[1:] {
		joined = fmt.Errorf("%w; %w", joined, err)
	}
	return joined
}
