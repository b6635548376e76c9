package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrStopped is returned by what needs a running Hub.
var ErrStopped = errors.New("sandbox: the Hub is stopped")

// hubPatience bounds every step of the Hub that has no context of its own.
const hubPatience = 15 * time.Second

// Hub is an embedded Streaming Hub: a NATS server with JetStream and the stream of events. Its methods may be called
// from several goroutines.
type Hub struct {
	options  HubOptions
	dir      string
	stream   string
	subjects []string
	log      *slog.Logger

	mu     sync.Mutex // guards what follows
	port   int        // the same one over every start
	server *server.Server
	conn   *nats.Conn
	js     jetstream.JetStream
}

func startHub(ctx context.Context, o Options) (*Hub, error) {
	h := &Hub{options: o.Hub, dir: o.Dir, stream: o.Stream, subjects: o.Subjects, log: o.Log, port: o.Hub.Port}
	if h.options.Host == "" {
		h.options.Host = "127.0.0.1"
	}
	if h.port == 0 {
		h.port = server.RANDOM_PORT
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h, h.start(ctx)
}

// URL is the address, without credentials; it stays the same over every start.
func (h *Hub) URL() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return "nats://" + h.address()
}

func (h *Hub) address() string { return net.JoinHostPort(h.options.Host, strconv.Itoa(h.port)) }

// Start brings a stopped Hub back on its port, with everything that its store holds.
func (h *Hub) Start() error {
	ctx, cancel := context.WithTimeout(context.Background(), hubPatience)
	defer cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.start(ctx)
}

// Stop ends the server and waits for its end. Clients lose their connections. It may be called again.
func (h *Hub) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stop()
}

// Restart stops and starts again.
func (h *Hub) Restart() error {
	h.Stop()
	return h.Start()
}

// start needs the lock.
func (h *Hub) start(ctx context.Context) error {
	if h.server != nil {
		return nil
	}
	if h.port > 0 {
		if err := awaitPort(ctx, h.address()); err != nil {
			return err
		}
	}
	started, err := server.NewServer(&server.Options{
		ServerName: "recibo-sandbox", Host: h.options.Host, Port: h.port, Username: h.options.User, Password: h.options.Password,
		JetStream: true, StoreDir: h.dir, DisableJetStreamBanner: true, JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 64 << 30,
		NoSigs: true, // signals belong to the program around
	})
	if err != nil {
		return err
	}
	started.SetLoggerV2(hubLog{h.log}, false, false, false)
	h.server = started
	started.Start()
	if err := h.join(ctx); err != nil {
		h.stop()
		return err
	}
	return nil
}

// awaitPort waits until a port that was just given up can be taken again.
func awaitPort(ctx context.Context, address string) error {
	for {
		var config net.ListenConfig
		probe, err := config.Listen(ctx, "tcp", address)
		if err == nil {
			return probe.Close()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// join connects the Hub's own publisher, within the process, and makes sure of the stream.
func (h *Hub) join(ctx context.Context) error {
	if !h.server.ReadyForConnections(hubPatience) {
		return fmt.Errorf("the server on %s is not ready", h.address())
	}
	h.port = h.server.Addr().(*net.TCPAddr).Port
	conn, err := nats.Connect("", nats.InProcessServer(h.server), nats.NoReconnect(), nats.Name("recibo-sandbox"),
		nats.UserInfo(h.options.User, h.options.Password))
	if err != nil {
		return err
	}
	h.conn = conn
	h.js, err = jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(publishWindow), jetstream.WithPublishAsyncTimeout(hubPatience))
	if err != nil {
		return err
	}
	return h.createStream(ctx, h.js)
}

// stop needs the lock.
func (h *Hub) stop() {
	if h.conn != nil {
		h.conn.Close()
	}
	if h.server != nil {
		h.server.Shutdown()
		h.server.WaitForShutdown()
	}
	h.conn, h.js, h.server = nil, nil, nil
}

// running returns the JetStream of a Hub that is up.
func (h *Hub) running() (jetstream.JetStream, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.js == nil {
		return nil, ErrStopped
	}
	return h.js, nil
}

// with calls f with a running JetStream and a bound.
func (h *Hub) with(f func(context.Context, jetstream.JetStream) error) error {
	js, err := h.running()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), hubPatience)
	defer cancel()
	return f(ctx, js)
}

// CreateStream creates the stream of events where there is none.
func (h *Hub) CreateStream() error { return h.with(h.createStream) }

func (h *Hub) createStream(ctx context.Context, js jetstream.JetStream) error {
	_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: h.stream, Subjects: h.subjects, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy,
	})
	return err
}

// DeleteStream deletes the stream with its events and consumers.
func (h *Hub) DeleteStream() error {
	return h.with(func(ctx context.Context, js jetstream.JetStream) error { return js.DeleteStream(ctx, h.stream) })
}

// DeleteConsumer deletes a durable consumer, as an administrator would while its client runs.
func (h *Hub) DeleteConsumer(durable string) error {
	return h.with(func(ctx context.Context, js jetstream.JetStream) error {
		return js.DeleteConsumer(ctx, h.stream, durable)
	})
}

// Consumer returns how many events the durable has not been given yet, and how many it was given and did not
// acknowledge.
func (h *Hub) Consumer(ctx context.Context, durable string) (pending, ackPending uint64, err error) {
	js, err := h.running()
	if err != nil {
		return 0, 0, err
	}
	consumer, err := js.Consumer(ctx, h.stream, durable)
	if err != nil {
		return 0, 0, err
	}
	info := consumer.CachedInfo() // asked for just now
	return info.NumPending, uint64(max(info.NumAckPending, 0)), nil
}

// hubLog passes the server's log on. What it calls fatal ends nothing: the start reports it.
type hubLog struct{ log *slog.Logger }

func (l hubLog) Noticef(format string, v ...any) { l.debug(format, v) }
func (l hubLog) Debugf(format string, v ...any)  { l.debug(format, v) }
func (l hubLog) Tracef(format string, v ...any)  { l.debug(format, v) }
func (l hubLog) Warnf(format string, v ...any)   { l.debug(format, v) }
func (l hubLog) Errorf(format string, v ...any)  { l.log.Warn("hub: " + fmt.Sprintf(format, v...)) }
func (l hubLog) Fatalf(format string, v ...any)  { l.log.Error("hub: " + fmt.Sprintf(format, v...)) }

func (l hubLog) debug(format string, v []any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("hub: " + fmt.Sprintf(format, v...))
	}
}
