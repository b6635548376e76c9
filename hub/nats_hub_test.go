package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// testHub is an embedded server with JetStream that keeps its port and its files over restarts.
type testHub struct {
	t      *testing.T
	port   int
	dir    string
	change func(*server.Options)
	server *server.Server
	login  []nats.Option // of the test's own client
}

// startHub starts a server, with the stream of the default configuration.
func startHub(t *testing.T, change func(*server.Options)) *testHub {
	t.Helper()
	h := &testHub{t: t, port: server.RANDOM_PORT, dir: t.TempDir(), change: change}
	t.Cleanup(h.stop)
	h.start()
	return h
}

func (h *testHub) start() {
	h.t.Helper()
	options := &server.Options{Host: "127.0.0.1", Port: h.port, JetStream: true, StoreDir: h.dir, NoLog: true, NoSigs: true}
	if h.change != nil {
		h.change(options)
	}
	s, err := server.NewServer(options)
	if err != nil {
		h.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		h.t.Fatal("the server does not start")
	}
	h.server, h.port = s, s.Addr().(*net.TCPAddr).Port
}

func (h *testHub) stop() {
	if h.server != nil {
		h.server.Shutdown()
		h.server.WaitForShutdown()
		h.server = nil
	}
}

func (h *testHub) config() NATSConfig {
	c := DefaultNATSConfig()
	c.URL = fmt.Sprintf("nats://127.0.0.1:%d", h.port)
	return c
}

// client runs f over a connection of the test's own.
func (h *testHub) client(f func(context.Context, *nats.Conn, jetstream.JetStream)) {
	h.t.Helper()
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", h.port), h.login...)
	if err != nil {
		h.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	f(ctx, nc, js)
}

func (h *testHub) createStream() *testHub {
	h.t.Helper()
	h.client(func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) {
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "STREAMING_HUB", Subjects: []string{"report.*"}}); err != nil {
			h.t.Fatal(err)
		}
	})
	return h
}

// publish stores a report.finished event per id; an id of "" gives an event that is quarantined.
func (h *testHub) publish(ids ...string) {
	h.t.Helper()
	h.client(func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) {
		for _, id := range ids {
			message := &nats.Msg{Subject: ReportFinished, Header: finished("ce-id", id, "ce-subject", "-"), Data: []byte(`{"report_id":"r-1"}`)}
			if _, err := js.PublishMsg(ctx, message); err != nil {
				h.t.Fatal(err)
			}
		}
	})
}

// consumer describes the consumer; one that is not there yet has empty information.
func (h *testHub) consumer() *jetstream.ConsumerInfo {
	h.t.Helper()
	info := &jetstream.ConsumerInfo{}
	h.client(func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) {
		consumer, err := js.Consumer(ctx, "STREAMING_HUB", "recibo")
		switch {
		case err == nil:
			info = consumer.CachedInfo()
		case !errors.Is(err, jetstream.ErrConsumerNotFound):
			h.t.Fatal(err)
		}
	})
	return info
}

// createConsumer stands for an administrator.
func (h *testHub) createConsumer(change func(*jetstream.ConsumerConfig)) {
	h.t.Helper()
	h.client(func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) {
		config := jetstream.ConsumerConfig{Durable: "recibo", AckPolicy: jetstream.AckExplicitPolicy,
			FilterSubjects: []string{ReportFinished, ReportPartial}, MaxDeliver: -1}
		change(&config)
		if _, err := js.CreateConsumer(ctx, "STREAMING_HUB", config); err != nil {
			h.t.Fatal(err)
		}
	})
}

func (h *testHub) deleteConsumer() {
	h.t.Helper()
	h.client(func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) {
		if err := js.DeleteConsumer(ctx, "STREAMING_HUB", "recibo"); err != nil {
			h.t.Fatal(err)
		}
	})
}

func (h *testHub) deleteStream() {
	h.t.Helper()
	h.client(func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) {
		if err := js.DeleteStream(ctx, "STREAMING_HUB"); err != nil {
			h.t.Fatal(err)
		}
	})
}

// ledger admits events in memory, the way the real one does on disk.
type ledger struct {
	mu      sync.Mutex
	ids     []string // admitted, in order
	again   int      // repetitions
	bad     []Delivery
	batches []int
	refuse  error // returned as long as it is set
}

func (l *ledger) admit(_ context.Context, batch []Delivery) ([]Outcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return nil, l.refuse
	}
	l.batches = append(l.batches, len(batch))
	outcomes := make([]Outcome, len(batch))
	for i, d := range batch {
		switch {
		case d.Verdict == Quarantine:
			l.bad = append(l.bad, d)
			outcomes[i] = Quarantined
		case d.Verdict != Accept:
			outcomes[i] = Skipped
		case slices.Contains(l.ids, d.Event.ID):
			l.again++
			outcomes[i] = Repeated
		default:
			l.ids = append(l.ids, d.Event.ID)
		}
	}
	return outcomes, nil
}

func (l *ledger) admitted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ids)
}

func (l *ledger) has(ids ...string) func() bool {
	return func() bool { return slices.Equal(sorted(l.admitted()), sorted(ids)) }
}

func (l *ledger) setRefuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = err
}

func subscribe(t *testing.T, c NATSConfig, o NATSOptions) *NATS {
	t.Helper()
	n, err := NewNATS(c, normaliser(t, nil), o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// running is a subscription that runs until stop, or the end of the test.
type running struct {
	t      *testing.T
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

func run(t *testing.T, n *NATS, admit AdmitFunc) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = n.Run(ctx, admit)
	}()
	t.Cleanup(r.stop)
	return r
}

func (r *running) stop() {
	r.cancel()
	if err := r.wait(); err != nil {
		var foreign *ForeignOwnerError
		var unfit *ConsumerError
		if !errors.As(err, &foreign) && !errors.As(err, &unfit) {
			r.t.Errorf("run: %v", err)
		}
	}
}

func (r *running) wait() error {
	select {
	case <-r.ended:
		return r.err
	case <-time.After(30 * time.Second):
		r.t.Fatal("the subscription does not end")
		return nil
	}
}

// until waits for a condition; the deadline is only there to end a failing test.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(45 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func healthy(n *NATS) func() bool { return func() bool { return n.Health().Healthy } }
func unwell(n *NATS) func() bool  { return func() bool { return !n.Health().Healthy } }

// bindings waits for the given number of them.
func bindings(n *NATS, count int) func() bool {
	return func() bool { h := n.Health(); return h.Healthy && h.Bindings >= count }
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// replace puts a file in place of another one, as a rotation does.
func replace(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
