package hub

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"recibo/setting"
)

func TestDeletedConsumerIsCreatedAnewAndMissesNothing(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	l := &ledger{}
	n := subscribe(t, h.config(), NATSOptions{})
	run(t, n, l.admit)
	h.publish("a")
	until(t, "the first event", l.has("a"))
	<-n.Bound()
	h.deleteConsumer()
	h.publish("b")
	until(t, "the event stored in between", l.has("a", "b"))
	if got := n.Health(); got.Bindings < 2 {
		t.Errorf("%+v", got)
	}
	<-n.Bound()
}

func TestStreamDeletedAndCreatedAnew(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	l := &ledger{}
	n := subscribe(t, h.config(), NATSOptions{})
	run(t, n, l.admit)
	h.publish("a", "b")
	until(t, "the first events", l.has("a", "b"))
	h.deleteStream()
	until(t, "ill health", func() bool { return strings.Contains(n.Health().Detail, "stream not found") && unwell(n)() })
	h.createStream()
	h.publish("c")
	until(t, "the event of the new stream", l.has("a", "b", "c"))
}

func TestStreamThatIsNotThereYetIsWaitedFor(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	l := &ledger{}
	n := subscribe(t, h.config(), NATSOptions{})
	run(t, n, l.admit)
	until(t, "the reason", func() bool { return strings.Contains(n.Health().Detail, "stream not found") })
	h.createStream()
	h.publish("a")
	until(t, "the event", l.has("a"))
}

func TestServerThatStartsLaterIsFound(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.publish("a")
	h.stop()
	l := &ledger{}
	n := subscribe(t, h.config(), NATSOptions{})
	run(t, n, l.admit)
	until(t, "the reason", func() bool { return strings.Contains(n.Health().Detail, "not connected") })
	if n.Health().Healthy {
		t.Error("healthy without a server")
	}
	h.start()
	until(t, "the event", l.has("a"))
}

func TestServerRestart(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	l := &ledger{}
	n := subscribe(t, h.config(), NATSOptions{})
	run(t, n, l.admit)
	h.publish("a")
	until(t, "the first event", l.has("a"))
	h.stop()
	until(t, "ill health", unwell(n))
	h.start()
	h.publish("b")
	until(t, "the second event", l.has("a", "b"))
	until(t, "a new binding", bindings(n, 2))
}

func TestServerThatLostItsStateIsBoundAnew(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	l := &ledger{}
	n := subscribe(t, h.config(), NATSOptions{})
	run(t, n, l.admit)
	h.publish("a")
	until(t, "the first event", l.has("a"))
	<-n.Bound()
	h.stop()
	h.dir = t.TempDir()
	h.start()
	h.createStream()
	h.publish("b")
	until(t, "the event of the new server", l.has("a", "b"))
	<-n.Bound()
}

func TestAdmissionThatOutlastsTheConnectionIsRepeatedNotLost(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.createConsumer(func(*jetstream.ConsumerConfig) {})
	h.publish("a")
	l := &ledger{}
	inside, leave := make(chan struct{}, 1), make(chan struct{})
	n := subscribe(t, h.config(), NATSOptions{})
	run(t, n, func(ctx context.Context, batch []Delivery) ([]Outcome, error) {
		select {
		case inside <- struct{}{}:
			<-leave
		default:
		}
		return l.admit(ctx, batch)
	})
	<-inside
	h.stop()
	close(leave)
	until(t, "the admission", l.has("a"))
	h.start()
	h.publish("b")
	until(t, "the next event", l.has("a", "b"))
}

func TestRotatedPasswordIsReadAtTheNextConnection(t *testing.T) {
	t.Parallel()
	password := "first"
	h := &testHub{t: t, port: server.RANDOM_PORT, dir: t.TempDir(), login: []nats.Option{nats.UserInfo("recibo", "first")}}
	h.change = func(o *server.Options) { o.Username, o.Password = "recibo", password }
	t.Cleanup(h.stop)
	h.start()
	h.createStream()
	file := write(t, "password", "first\n")
	secret, err := setting.SecretFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := h.config()
	c.User, c.Password = "recibo", secret
	l := &ledger{}
	n := subscribe(t, c, NATSOptions{})
	run(t, n, l.admit)
	until(t, "health", healthy(n))

	h.stop()
	password, h.login = "second", []nats.Option{nats.UserInfo("recibo", "second")}
	h.start()
	until(t, "the refusal", func() bool { return strings.Contains(strings.ToLower(n.Health().Detail), "authorization violation") })
	replace(t, file, "second\n")
	h.publish("a")
	until(t, "the event", l.has("a"))
}

func TestRefusedCredentialsAtTheFirstConnectionAreOutlasted(t *testing.T) {
	t.Parallel()
	h := &testHub{t: t, port: server.RANDOM_PORT, dir: t.TempDir(), login: []nats.Option{nats.Token("right")}}
	h.change = func(o *server.Options) { o.Authorization = "right" }
	t.Cleanup(h.stop)
	h.start()
	h.createStream()
	file := write(t, "token", "wrong")
	secret, err := setting.SecretFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := h.config()
	c.Token = secret
	n := subscribe(t, c, NATSOptions{})
	run(t, n, (&ledger{}).admit)
	until(t, "the refusal", func() bool { return strings.Contains(strings.ToLower(n.Health().Detail), "authorization violation") })
	if strings.Contains(n.Health().Detail, "wrong") {
		t.Error("the health shows the token")
	}
	replace(t, file, "right")
	until(t, "health", healthy(n))
}

func TestMissingPermissionIsNamed(t *testing.T) {
	t.Parallel()
	h := &testHub{t: t, port: server.RANDOM_PORT, dir: t.TempDir(), login: []nats.Option{nats.UserInfo("admin", "a")}}
	h.change = func(o *server.Options) {
		o.Users = []*server.User{{Username: "admin", Password: "a"}, {Username: "recibo", Password: "r", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.CREATE.>"}}}}}
	}
	t.Cleanup(h.stop)
	h.start()
	h.createStream()
	c := h.config()
	c.User, c.Password = "recibo", setting.NewSecret("r")
	n := subscribe(t, c, NATSOptions{})
	run(t, n, (&ledger{}).admit)
	until(t, "the reason", func() bool { return strings.Contains(strings.ToLower(n.Health().Detail), "permissions violation") })
}

// A server that takes connections and never says a word: a stop ends the attempt, so that the second address, which is
// that of the same server, is never tried.
func TestStopDoesNotWaitForASilentServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 16)
	go func() {
		defer close(accepted)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	c := DefaultNATSConfig()
	port := listener.Addr().(*net.TCPAddr).Port
	c.URL = fmt.Sprintf("nats://127.0.0.1:%d,nats://127.0.0.1:%d/second", port, port)
	r := run(t, subscribe(t, c, NATSOptions{}), (&ledger{}).admit)
	first := <-accepted
	r.cancel()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	_ = first.Close()
	_ = listener.Close()
	for conn := range accepted {
		t.Error("connected again after the stop")
		_ = conn.Close()
	}
}
