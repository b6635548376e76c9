package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"recibo/setting"
)

// NATSOptions is what a NATS subscription needs beside its section of the configuration.
type NATSOptions struct {
	Log      *slog.Logger // nil: no log
	Owner    string       // instance id of the ledger, kept in the consumer's metadata; empty: ownership is not looked at
	TakeOver bool         // take a consumer that another ledger owns, once
	Name     string       // of the connection, as the server lists it; default recibo

	Retention time.Duration // how long the ledger remembers ids; a stream that keeps events for longer is told about; 0: for ever
}

// NATS is a subscription through a durable pull consumer of JetStream. A message is acknowledged only once it was admitted
// (law 1: an event is acknowledged only once the ledger holds it on disk), and one that was not is given back with a delay.
//
// A binding is a consumer found or created over one connection. When either is gone the binding is over, and the next one
// is announced through Bound: what happened in between is found by a sweep.
type NATS struct {
	*status
	config     NATSConfig
	options    NATSOptions
	log        *slog.Logger
	normaliser *Normaliser
	material   *setting.Material // nil without files
	takeOver   atomic.Bool       // still to be done
	recheck    time.Duration     // how often the consumer's owner is looked at
}

const (
	natsTransport = "nats"
	recheckEvery  = 30 * time.Second
	// connectWait bounds Check and Drain, which report an absent server instead of waiting for it.
	connectWait = 5 * time.Second
)

// NewNATS returns a subscription that is not connected yet. It fails for a section that is not valid.
func NewNATS(c NATSConfig, n *Normaliser, o NATSOptions) (*NATS, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Name == "" {
		o.Name = "recibo"
	}
	sub := &NATS{
		status:     newStatus(natsTransport),
		config:     c,
		options:    o,
		log:        o.Log.With("transport", natsTransport, "stream", c.Stream, "consumer", c.Durable),
		normaliser: n,
		recheck:    recheckEvery,
	}
	sub.takeOver.Store(o.TakeOver)
	if c.TLS != (setting.TLS{}) {
		material, err := setting.NewMaterial(c.TLS)
		if err != nil {
			return nil, fmt.Errorf("hub.nats.tls: %w", err)
		}
		sub.material = material
	}
	return sub, nil
}

// Run receives until ctx ends. It returns a *ForeignOwnerError or a *ConsumerError, which a person must resolve, and
// outlasts everything else: a server that is away, refused credentials, a stream or a consumer that is not there.
func (n *NATS) Run(ctx context.Context, admit AdmitFunc) error {
	link, err := n.connect(ctx)
	if err != nil {
		return err
	}
	defer link.close()
	wait := backoff{least: 200 * time.Millisecond, most: 5 * time.Second}
	for ctx.Err() == nil {
		worked, err := n.hold(ctx, link, admit)
		if ctx.Err() != nil {
			break
		}
		if needsPerson(err) {
			n.down(err.Error())
			return err
		}
		if worked {
			wait.reset()
		}
		n.tell(err.Error())
		pause(ctx, wait.next())
	}
	n.down("stopped")
	return nil
}

// tell reports why nothing can be received, and logs it once.
func (n *NATS) tell(reason string) {
	if n.Health().Detail != reason {
		n.log.Warn("not receiving", "reason", reason)
	}
	n.down(reason)
}

// hold waits for the connection, binds, and receives until that binding is over. worked tells that it was of use.
func (n *NATS) hold(ctx context.Context, link *natsLink, admit AdmitFunc) (worked bool, err error) {
	if err := link.wait(ctx, n.tell); err != nil {
		return false, err
	}
	connected, cancel := link.while(ctx)
	defer cancel()
	b, err := n.bindConsumer(connected, link.js)
	if err != nil {
		return false, link.explain(connected, err)
	}
	n.bind(b.detail, b.consumer.CachedInfo().NumPending)
	if n.log.Info("subscription bound"); len(b.notes) > 0 {
		n.log.Warn("the consumer differs from what recibo would create", "notes", b.notes)
	}
	worked, err = n.receive(ctx, connected, link, b, admit)
	return worked, link.explain(connected, err)
}

// Drain receives what the server has for the consumer now, without waiting for more, and ends with the first fault.
// The health is that of Run alone. Messages that another process took and has not acknowledged come back after the consumer's ack_wait, not here.
func (n *NATS) Drain(ctx context.Context, admit AdmitFunc) error {
	link, err := n.reach(ctx)
	if err != nil {
		return err
	}
	defer link.close()
	connected, cancel := link.while(ctx)
	defer cancel()
	b, err := n.bindConsumer(connected, link.js)
	if err != nil {
		return link.explain(connected, err)
	}
	return link.explain(connected, n.drain(ctx, connected, link, b, admit))
}

// reach connects, and gives up after a bounded time.
func (n *NATS) reach(ctx context.Context) (*natsLink, error) {
	link, err := n.connect(ctx)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	if err := link.wait(bounded, func(string) {}); err != nil {
		reason := link.why()
		link.close()
		return nil, fmt.Errorf("no connection to %s: %s (%w)", n.config.URL, reason, err)
	}
	return link, nil
}

// Check reports whether a subscription would work, changing nothing: the server is there, the stream and its subjects
// are, and the consumer is fit or may be created. It returns a *ForeignOwnerError when another ledger owns the consumer.
func (n *NATS) Check(ctx context.Context) error {
	link, err := n.reach(ctx)
	if err != nil {
		return err
	}
	defer link.close()
	connected, cancel := link.while(ctx)
	defer cancel()
	return link.explain(connected, n.checkConsumer(connected, link.js))
}

func (n *NATS) checkConsumer(ctx context.Context, js jetstream.JetStream) error {
	consumer, err := n.lookup(ctx, js)
	if errors.Is(err, jetstream.ErrConsumerNotFound) && n.config.Manage {
		return n.checkStream(ctx, js)
	}
	if err != nil {
		return err
	}
	plan, err := n.plan(consumer.CachedInfo().Config)
	if err != nil {
		return err
	}
	if !n.config.Manage && plan.filters {
		return fmt.Errorf("consumer %s of stream %s does not filter for %v, and hub.nats.manage is off: "+
			"set its filter subjects, or hub.nats.subjects", n.config.Durable, n.config.Stream, n.config.Subjects)
	}
	return nil
}

// checkStream finds a configured subject that the stream never stores, which would be a subscription to nothing.
func (n *NATS) checkStream(ctx context.Context, js jetstream.JetStream) error {
	stream, err := js.Stream(ctx, n.config.Stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", n.config.Stream, err)
	}
	config := stream.CachedInfo().Config
	if config.Mirror != nil || len(config.Sources) > 0 {
		return nil // its subjects are those of other streams
	}
	for _, subject := range n.config.Subjects {
		stored := false
		for _, pattern := range config.Subjects {
			stored = stored || overlap(subject, pattern)
		}
		if !stored {
			return fmt.Errorf("stream %s stores %v and never %s (hub.nats.subjects)", n.config.Stream, config.Subjects, subject)
		}
	}
	return nil
}

var _ Subscription = (*NATS)(nil)
