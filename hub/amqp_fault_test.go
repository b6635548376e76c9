package hub

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"recibo/setting"
)

// The subscription starts before its broker, and the broker goes and comes while events flow.
func TestAMQPBrokerThatComesLateAndRestarts(t *testing.T) {
	t.Parallel()
	newRabbit(t) // installs RabbitMQ, or skips
	b, err := startBroker()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.Stop()
	r := &rabbit{t: t, broker: b, exchange: "reporter.events", queue: "recibo.reports"}
	l := &ledger{}
	a := consume(t, r.config())
	running := start(t, a, l.admit)
	until(t, "the reason", says(a, "not connected: "+b.URL()))
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "a binding", isHealthy(a))

	ctx, cancel := context.WithCancel(t.Context())
	ids := make(chan []string)
	go func() { ids <- flow(ctx, r) }()
	until(t, "events", func() bool { return len(l.admitted()) > 20 })
	if err := b.Restart(); err != nil {
		t.Fatal(err)
	}
	before := len(l.admitted())
	until(t, "events after the restart", func() bool { return len(l.admitted()) > before+20 })
	cancel()
	until(t, "every event that the broker confirmed", l.holds(<-ids))
	if h := a.Health(); h.Bindings != 2 {
		t.Errorf("%+v", h)
	}
	running.stop()
}

// flow publishes one event after the other until ctx ends, and returns those that the broker confirmed.
func flow(ctx context.Context, r *rabbit) []string {
	var confirmed []string
	for i := 0; ctx.Err() == nil; i++ {
		if id := fmt.Sprint("e", i); r.send(id) == nil {
			confirmed = append(confirmed, id)
		}
	}
	return confirmed
}

func TestAMQPConnectionClosedByTheBroker(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	r.vhost = t.Name() // so that no other test loses its connection
	r.addVhost()
	l := &ledger{}
	a := consume(t, r.config())
	start(t, a, l.admit)
	until(t, "a binding", isHealthy(a))
	if want := "queue " + r.queue + " at " + r.broker.URL() + "/" + r.vhost; !strings.HasPrefix(a.Health().Detail, want) {
		t.Errorf("%q does not begin with %q", a.Health().Detail, want)
	}
	r.publish("a")
	until(t, "the first event", l.has("a"))
	<-a.Bound()
	r.ctl("close_all_connections", "--vhost", r.vhost, "maintenance")
	<-a.Bound()
	r.publish("b")
	until(t, "the second event", l.has("a", "b"))
}

// An acknowledgement that the broker does not know makes it close the channel, and the channel alone.
func TestAMQPChannelClosedByTheBrokerEndsTheBinding(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	a := consume(t, r.config())
	link, err := a.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer link.close()
	b, err := a.bindQueue(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if err := b.channel.Ack(4711, false); err != nil {
		t.Fatal(err)
	}
	if _, err := a.receive(t.Context(), b, (&ledger{}).admit); !isAMQP(err, amqp.PreconditionFailed) {
		t.Errorf("%v", err)
	}
	if link.conn.IsClosed() {
		t.Error("the connection is gone too")
	}
}

func TestAMQPDeletedQueueIsDeclaredAndBoundAnew(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	l := &ledger{}
	a := consume(t, r.config())
	start(t, a, l.admit)
	<-a.Bound()
	r.client(func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(r.queue, false, false, false)
		return err
	})
	<-a.Bound()
	r.publish("a")
	until(t, "the event", l.has("a"))
}

// With an exchange its bindings go, and nothing tells the consumer.
func TestAMQPQueueIsBoundToAnExchangeThatWasDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(*rabbit){
		"and is gone":            func(*rabbit) {},
		"and declared by others": func(r *rabbit) { r.declareExchange() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRabbit(t)
			l := &ledger{}
			a := consume(t, r.config())
			a.recheck = 50 * time.Millisecond
			start(t, a, l.admit)
			<-a.Bound()
			r.publish("a")
			r.client(func(ch *amqp.Channel) error { return ch.ExchangeDelete(r.exchange, false, false) })
			after(r)
			until(t, "the binding", func() bool { return r.send("b") == nil })
			until(t, "both events", l.has("a", "b"))
		})
	}
}

func TestAMQPMissingExchangeIsDeclaredDurable(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	l := &ledger{}
	a := consume(t, r.config())
	start(t, a, l.admit)
	until(t, "a binding", isHealthy(a))
	r.declareExchange().declareQueue() // the broker refuses other properties than those that are there
	r.publish("a")
	until(t, "the event", l.has("a"))
}

func TestAMQPWithoutTheRightToConfigure(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	r.user("writer", "w", "", ".*", ".*")
	c := r.config()
	c.Username, c.Password = "writer", setting.NewSecret("w")
	l := &ledger{}
	a := consume(t, c)
	a.recheck = 50 * time.Millisecond
	start(t, a, l.admit)
	until(t, "the missing queue", says(a, "queue "+r.queue+" does not exist, and the user may not declare it"))
	r.declareQueue()
	until(t, "the missing exchange", says(a, "bound to nothing (exchange "+r.exchange+" does not exist, and the user may not declare it)"))
	if a.Health().Bindings != 0 {
		t.Error("counted as bound")
	}
	r.declareExchange()
	<-a.Bound()
	r.publish("a")
	until(t, "the event", l.has("a"))
}

func TestAMQPWithTheRightToReadOnly(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	r.user("reader", "r", "", "", ".*")
	c := r.config()
	c.Username, c.Password = "reader", setting.NewSecret("r")
	l := &ledger{}
	a := consume(t, c)
	start(t, a, l.admit)
	<-a.Bound()
	r.publish("a")
	until(t, "the event", l.has("a"))
	if h := a.Health(); !h.Healthy || !strings.Contains(h.Detail, "is not known (the user may not bind the queue to exchange") {
		t.Errorf("%+v", h)
	}
}

func TestAMQPWithoutTheRightToRead(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	r.user("nobody", "n", "", "", "")
	c := r.config()
	c.Username, c.Password, c.Declare = "nobody", setting.NewSecret("n"), false
	a := consume(t, c)
	start(t, a, (&ledger{}).admit)
	until(t, "the reason", says(a, "consume queue "+r.queue+": Exception (403)"))
}

func TestAMQPDeclareOffLeavesEverythingToTheAdministrator(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	c := r.config()
	c.Declare = false
	l := &ledger{}
	a := consume(t, c)
	start(t, a, l.admit)
	until(t, "the reason", says(a, "queue "+r.queue+" does not exist, and declare is off"))
	r.declare()
	<-a.Bound()
	r.publish("a")
	until(t, "the event", l.has("a"))
	if h := a.Health(); !strings.HasSuffix(h.Detail, "; whether it is bound to the exchange is not known") {
		t.Error(h.Detail)
	}
}

func TestAMQPRefusedCredentialsAreOutlasted(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	r.user("late", "right-4711", ".*", ".*", ".*")
	file, secret := secretIn(t, "wrong-4711")
	c := r.config()
	c.Username, c.Password = "late", secret
	a := consume(t, c)
	start(t, a, (&ledger{}).admit)
	until(t, "the refusal", says(a, errRefused.Error()))
	if strings.Contains(a.Health().Detail, "4711") {
		t.Error("the health shows the password")
	}
	replace(t, file, "right-4711")
	until(t, "a binding", isHealthy(a))
}

func TestAMQPMissingVirtualHostIsNamed(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	r.vhost = "nowhere"
	a := consume(t, r.config())
	start(t, a, (&ledger{}).admit)
	until(t, "the refusal", says(a, r.url()+": "+errRefused.Error()))
}

func TestAMQPBrokersAreTriedInTurn(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	for name, first := range map[string]string{"dead": "amqp://127.0.0.1:1", "of no use": r.broker.URL() + "/nowhere"} {
		c := r.config()
		c.URLs = []string{first, r.url()}
		a := consume(t, c)
		running := start(t, a, (&ledger{}).admit)
		until(t, "a binding", isHealthy(a))
		if running.stop(); a.first.Load() != 1 {
			t.Errorf("%s: broker %d", name, a.first.Load())
		}
	}
}

// The first broker takes the credentials, but its queue can't be had.
func TestAMQPBrokerWithoutTheQueueIsLeftForTheNext(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	first := r.url()
	r.vhost = t.Name()
	r.addVhost()
	r.declare()
	c := r.config()
	c.URLs, c.Declare = []string{first, r.url()}, false
	a := consume(t, c)
	start(t, a, (&ledger{}).admit)
	until(t, "a binding", isHealthy(a))
}

// A broker that takes connections and never says a word.
func TestAMQPStopDoesNotWaitForASilentBroker(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	c := DefaultAMQPConfig()
	c.URLs = []string{"amqp://" + listener.Addr().String()}
	running := start(t, consume(t, c), (&ledger{}).admit)
	silent, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	if _, err := io.ReadFull(silent, make([]byte, 8)); err != nil { // the header of the protocol
		t.Fatal(err)
	}
	running.cancel()
	if err := running.wait(); err != nil {
		t.Error(err)
	}
}

func TestAMQPCertificatesAreReadAnewAtEachConnection(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	a := newAuthority(t)
	front := startTLSFront(t, r.broker.URL())
	front.present(a)
	cert, key := a.pair()
	c := r.config()
	c.URLs = []string{"amqps://" + front.listener.Addr().String()}
	c.TLS = setting.TLS{CAFile: write(t, "ca.pem", a.pem), CertFile: write(t, "cert.pem", cert), KeyFile: write(t, "key.pem", key)}
	sub := consume(t, c)
	start(t, sub, (&ledger{}).admit)
	<-sub.Bound()

	a = newAuthority(t)
	front.present(a)
	front.cut()
	until(t, "the refusal", says(sub, "certificate"))
	cert, key = a.pair()
	replace(t, c.TLS.CAFile, a.pem)
	replace(t, c.TLS.CertFile, cert)
	replace(t, c.TLS.KeyFile, key)
	until(t, "a binding", isHealthy(sub))
}

// tlsFront asks for certificates in front of a plain broker.
type tlsFront struct {
	t        *testing.T
	backend  string
	listener net.Listener
	group    sync.WaitGroup

	mu     sync.Mutex
	config *tls.Config
	conns  []net.Conn
}

func startTLSFront(t *testing.T, backend string) *tlsFront {
	t.Helper()
	u, err := url.Parse(backend)
	if err != nil {
		t.Fatal(err)
	}
	f := &tlsFront{t: t, backend: u.Host}
	if f.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	f.group.Go(f.serve)
	t.Cleanup(func() {
		_ = f.listener.Close()
		f.cut()
		f.group.Wait()
	})
	return f
}

// present changes the certificates of connections to come.
func (f *tlsFront) present(a *authority) {
	f.t.Helper()
	pair, err := tls.X509KeyPair(byteses(a.pair()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: a.pool(), ClientAuth: tls.RequireAndVerifyClientCert}
}

func byteses(a, b string) ([]byte, []byte) { return []byte(a), []byte(b) }

// cut ends every connection.
func (f *tlsFront) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		_ = conn.Close()
	}
	f.conns = nil
}

func (f *tlsFront) serve() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", f.backend)
		if err != nil {
			_ = client.Close()
			continue
		}
		f.mu.Lock()
		secure := tls.Server(client, f.config)
		f.conns = append(f.conns, client, server)
		f.mu.Unlock()
		pass := func(to, from net.Conn) {
			_, _ = io.Copy(to, from)
			_ = to.Close()
			_ = from.Close()
		}
		f.group.Go(func() { pass(server, secure) })
		f.group.Go(func() { pass(secure, server) })
	}
}
