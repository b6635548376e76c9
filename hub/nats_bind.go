package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"recibo/setting"
)

// OwnerKey is the key of a consumer's metadata under which the owning ledger's instance id is kept.
const OwnerKey = "recibo.owner"

const (
	maxBatch   = 256             // messages that are admitted together
	chunk      = 32              // messages that are asked for at a time, to bound what a batch holds in memory
	maxBytes   = 8 << 20         // of bodies, after which a batch asks for no more
	fetchWait  = 5 * time.Second // of one request for the first message
	heartbeat  = 2 * time.Second // a server that is silent for two of them has lost the consumer
	minAckWait = 5 * time.Second // less would redeliver what is being admitted
)

// ForeignOwnerError says that another ledger owns the subscription: two agents would get half of the events each.
type ForeignOwnerError struct {
	Transport    string
	Subscription string // such as STREAMING_HUB/recibo
	Owner        string // the other ledger's instance id
}

func (e *ForeignOwnerError) Error() string {
	return fmt.Sprintf("%s subscription %s belongs to the ledger %s: stop its agent, or take the subscription over",
		e.Transport, e.Subscription, e.Owner)
}

// ConsumerError says that the consumer can't be used as it is, in a point that can't be changed. It is never deleted by
// this package: that would throw away what its administrator set, and where it stands.
type ConsumerError struct {
	Stream, Consumer string
	Problem          string
}

func (e *ConsumerError) Error() string {
	return fmt.Sprintf("consumer %s of stream %s %s: delete it, so that it is created anew, or name another one in hub.nats.durable",
		e.Consumer, e.Stream, e.Problem)
}

// needsPerson reports whether time alone can't mend an error.
func needsPerson(err error) bool {
	var foreign *ForeignOwnerError
	var unfit *ConsumerError
	return errors.As(err, &foreign) || errors.As(err, &unfit)
}

// natsBinding is a consumer in use.
type natsBinding struct {
	consumer jetstream.Consumer
	created  time.Time // tells a consumer from another one that took its name
	batch    int       // most messages in hand
	wait     time.Duration
	detail   string
	notes    []string // what differs from what we would have created
}

// bindConsumer finds the consumer, or creates it, and brings our own fields of it into shape.
func (n *NATS) bindConsumer(ctx context.Context, js jetstream.JetStream) (*natsBinding, error) {
	consumer, err := n.lookup(ctx, js)
	if errors.Is(err, jetstream.ErrConsumerNotFound) && n.config.Manage {
		if consumer, err = js.CreateConsumer(ctx, n.config.Stream, n.fresh()); err != nil {
			err = fmt.Errorf("create consumer %s of stream %s: %w", n.config.Durable, n.config.Stream, err)
		}
	}
	if err != nil {
		return nil, err
	}
	plan, err := n.plan(consumer.CachedInfo().Config)
	if err != nil {
		return nil, err
	}
	if n.config.Manage && len(plan.changes) > 0 {
		n.log.Info("consumer updated", "fields", plan.changes)
		if consumer, err = js.UpdateConsumer(ctx, n.config.Stream, plan.config); err != nil {
			return nil, fmt.Errorf("consumer %s of stream %s: %s can't be changed: %w",
				n.config.Durable, n.config.Stream, strings.Join(plan.changes, ", "), err)
		}
	}
	if n.config.Manage {
		n.takeOver.Store(false) // two agents that both insist must not take it from each other for ever
	} else {
		plan.notes = append(plan.notes, plan.changes...)
	}
	return n.newBinding(consumer, append(plan.notes, n.streamNotes(ctx, js)...)), nil
}

// streamNotes tells of a stream that remembers events for longer than the ledger does: a consumer made anew would deliver
// them once more, and nothing would know them as repetitions. Who may not read the stream's settings is not told.
func (n *NATS) streamNotes(ctx context.Context, js jetstream.JetStream) []string {
	if n.options.Retention <= 0 {
		return nil
	}
	stream, err := js.Stream(ctx, n.config.Stream)
	if err != nil {
		return nil
	}
	if age := stream.CachedInfo().Config.MaxAge; age > n.options.Retention {
		return []string{fmt.Sprintf("the stream keeps events for %s, longer than store.retention", setting.FormatDuration(age))}
	}
	return nil
}

// lookup finds the consumer by name. The error is jetstream.ErrConsumerNotFound, a *ConsumerError, or the server's.
func (n *NATS) lookup(ctx context.Context, js jetstream.JetStream) (jetstream.Consumer, error) {
	consumer, err := js.Consumer(ctx, n.config.Stream, n.config.Durable)
	switch {
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		return nil, n.unfit("is a push consumer")
	case err != nil:
		return nil, fmt.Errorf("consumer %s of stream %s: %w", n.config.Durable, n.config.Stream, err)
	}
	return consumer, nil
}

// fresh is the consumer as it is created. It delivers everything: the ledger suppresses repetitions, and any other start
// would lose events when the consumer or the stream is made anew.
func (n *NATS) fresh() jetstream.ConsumerConfig {
	config := jetstream.ConsumerConfig{
		Durable:        n.config.Durable,
		Description:    "events for recibo",
		DeliverPolicy:  jetstream.DeliverAllPolicy,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        30 * time.Second, // short: after a crash the messages in hand are back soon
		MaxAckPending:  1024,             // at least two batches, so that one given back does not block the next
		MaxDeliver:     -1,
		FilterSubjects: n.config.Subjects,
	}
	if n.options.Owner != "" {
		config.Metadata = map[string]string{OwnerKey: n.options.Owner}
	}
	return config
}

// consumerPlan is what has to become of a consumer that exists.
type consumerPlan struct {
	config  jetstream.ConsumerConfig // as read, with only our fields changed
	changes []string                 // the names of the fields that differ
	filters bool                     // the filter subjects are among them
	notes   []string                 // what is odd, and stays
}

// plan starts from the configuration as read, so that whatever an administrator tuned stays. Of the fields that can be
// tuned, only values are changed with which events would get lost.
func (n *NATS) plan(read jetstream.ConsumerConfig) (consumerPlan, error) {
	if read.AckPolicy != jetstream.AckExplicitPolicy {
		return consumerPlan{}, n.unfit(fmt.Sprintf("has ack_policy %s instead of explicit, which can't be changed", read.AckPolicy))
	}
	if err := n.checkOwner(read); err != nil {
		return consumerPlan{}, err
	}
	p := consumerPlan{config: read}
	if !slices.Equal(filtersOf(read), sorted(n.config.Subjects)) {
		p.config.FilterSubject, p.config.FilterSubjects = "", n.config.Subjects
		p.changes, p.filters = append(p.changes, "filter_subjects"), true
	}
	if read.MaxDeliver != -1 {
		p.config.MaxDeliver = -1 // a message given back too often would be dropped
		p.changes = append(p.changes, "max_deliver")
	}
	if len(read.BackOff) == 0 && read.AckWait < minAckWait {
		p.config.AckWait = 30 * time.Second
		p.changes = append(p.changes, "ack_wait")
	}
	if read.HeadersOnly {
		p.config.HeadersOnly = false
		p.changes = append(p.changes, "headers_only")
	}
	if owner := n.options.Owner; n.config.Manage && owner != "" && read.Metadata[OwnerKey] != owner {
		p.config.Metadata = maps.Clone(read.Metadata)
		if p.config.Metadata == nil {
			p.config.Metadata = map[string]string{}
		}
		p.config.Metadata[OwnerKey] = owner
		p.changes = append(p.changes, "metadata "+OwnerKey)
	}
	if read.DeliverPolicy != jetstream.DeliverAllPolicy {
		p.notes = append(p.notes, fmt.Sprintf("deliver_policy is %s, not all, and can't be changed: older events are found by "+
			"polling only; delete the consumer to have it created anew", read.DeliverPolicy))
	}
	return p, nil
}

func (n *NATS) checkOwner(read jetstream.ConsumerConfig) error {
	owner := read.Metadata[OwnerKey]
	if n.options.Owner == "" || owner == "" || owner == n.options.Owner || n.takeOver.Load() {
		return nil
	}
	return &ForeignOwnerError{Transport: natsTransport, Subscription: n.config.Stream + "/" + n.config.Durable, Owner: owner}
}

func (n *NATS) unfit(problem string) error {
	return &ConsumerError{Stream: n.config.Stream, Consumer: n.config.Durable, Problem: problem}
}

// newBinding keeps within the limits that an administrator set for requests, instead of lifting them.
func (n *NATS) newBinding(consumer jetstream.Consumer, notes []string) *natsBinding {
	info := consumer.CachedInfo()
	b := &natsBinding{consumer: consumer, created: info.Created, batch: maxBatch, wait: fetchWait, notes: notes}
	if most := info.Config.MaxAckPending; most > 0 {
		b.batch = min(b.batch, max(1, most/2))
	}
	if most := info.Config.MaxRequestBatch; most > 0 {
		b.batch = min(b.batch, most)
	}
	if most := info.Config.MaxRequestExpires; most > 0 {
		b.wait = min(b.wait, most)
	}
	b.detail = fmt.Sprintf("stream %s, consumer %s", n.config.Stream, n.config.Durable)
	if len(notes) > 0 {
		b.detail += " (differs: " + strings.Join(notes, ", ") + ")"
	}
	return b
}

// stillOurs looks at the consumer anew: another ledger may have taken it over, or another consumer its name.
func (n *NATS) stillOurs(ctx context.Context, b *natsBinding) error {
	info, err := b.consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("consumer %s of stream %s: %w", n.config.Durable, n.config.Stream, err)
	}
	if !info.Created.Equal(b.created) {
		return fmt.Errorf("consumer %s of stream %s was created anew by someone else", n.config.Durable, n.config.Stream)
	}
	return n.checkOwner(info.Config)
}

func filtersOf(c jetstream.ConsumerConfig) []string {
	if c.FilterSubject != "" {
		return []string{c.FilterSubject}
	}
	return sorted(c.FilterSubjects)
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }
