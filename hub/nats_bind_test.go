package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestConsumerIsCreatedForTheLedger(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	n := subscribe(t, h.config(), NATSOptions{Owner: "ledger-1"})
	run(t, n, (&ledger{}).admit)
	until(t, "health", healthy(n))
	c := h.consumer().Config
	if c.AckPolicy != jetstream.AckExplicitPolicy || c.DeliverPolicy != jetstream.DeliverAllPolicy || c.AckWait != 30*time.Second ||
		c.MaxAckPending != 1024 || c.MaxDeliver != -1 || c.Metadata[OwnerKey] != "ledger-1" ||
		!slices.Equal(sorted(c.FilterSubjects), []string{ReportFinished, ReportPartial}) {
		t.Errorf("%+v", c)
	}
}

// tuned is what an administrator may have set without harm.
func tuned(c *jetstream.ConsumerConfig) {
	c.Description = "tuned"
	c.AckWait = 2 * time.Minute
	c.MaxAckPending = 40
	c.MaxRequestBatch = 10
	c.MaxRequestExpires = 3 * time.Second
	c.MaxWaiting = 64
	c.SampleFrequency = "100"
	c.InactiveThreshold = 24 * time.Hour
	c.Metadata = map[string]string{"team": "finance"}
}

func TestTunedFieldsSurvive(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.createConsumer(func(c *jetstream.ConsumerConfig) {
		tuned(c)
		c.FilterSubjects, c.FilterSubject = nil, "report.finished"
	})
	before := h.consumer().Config
	var ids []string
	for i := range 50 {
		ids = append(ids, fmt.Sprint("e", i))
	}
	h.publish(ids...)
	l := &ledger{}
	n := subscribe(t, h.config(), NATSOptions{Owner: "ledger-1"})
	run(t, n, l.admit)
	until(t, "every event", l.has(ids...))
	if largest := slices.Max(l.batches); largest > 10 {
		t.Errorf("a batch of %d, against max_batch", largest)
	}
	after := h.consumer().Config
	if !slices.Equal(sorted(after.FilterSubjects), []string{ReportFinished, ReportPartial}) || after.Metadata[OwnerKey] != "ledger-1" {
		t.Errorf("ours: %v %v", after.FilterSubjects, after.Metadata)
	}
	before.FilterSubject, before.FilterSubjects = "", after.FilterSubjects
	before.Metadata = maps.Clone(before.Metadata)
	before.Metadata[OwnerKey] = "ledger-1"
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}

func TestFieldsThatWouldLoseEventsAreMended(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.createConsumer(func(c *jetstream.ConsumerConfig) {
		c.MaxDeliver, c.AckWait, c.HeadersOnly = 3, time.Second, true
	})
	h.publish("a")
	l := &ledger{}
	run(t, subscribe(t, h.config(), NATSOptions{}), l.admit)
	until(t, "the event with its payload", l.has("a"))
	if c := h.consumer().Config; c.MaxDeliver != -1 || c.AckWait != 30*time.Second || c.HeadersOnly {
		t.Errorf("%+v", c)
	}
}

func TestBackOffOfTheConsumerSurvives(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.createConsumer(func(c *jetstream.ConsumerConfig) { c.BackOff = []time.Duration{time.Second, time.Minute} })
	n := subscribe(t, h.config(), NATSOptions{Owner: "ledger-1"})
	run(t, n, (&ledger{}).admit)
	until(t, "health", healthy(n))
	if c := h.consumer().Config; len(c.BackOff) != 2 || c.Metadata[OwnerKey] != "ledger-1" {
		t.Errorf("%+v", c)
	}
}

func TestDeliverPolicyIsToldAndLeft(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.createConsumer(func(c *jetstream.ConsumerConfig) { c.DeliverPolicy = jetstream.DeliverNewPolicy })
	created := h.consumer().Created
	l := &ledger{}
	n := subscribe(t, h.config(), NATSOptions{Owner: "ledger-1"})
	run(t, n, l.admit)
	until(t, "health", healthy(n))
	h.publish("a")
	until(t, "the event", l.has("a"))
	if detail := n.Health().Detail; !strings.Contains(detail, "deliver_policy is new") {
		t.Errorf("detail %q", detail)
	}
	if i := h.consumer(); !i.Created.Equal(created) || i.Config.Metadata[OwnerKey] != "ledger-1" {
		t.Error("the consumer was not left alone, or not claimed")
	}
}

func TestUnfitConsumersNeedAPerson(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*jetstream.ConsumerConfig){
		"no acknowledgement": func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckNonePolicy },
		"acknowledge all":    func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHub(t, nil).createStream()
			h.createConsumer(change)
			expectUnfit(t, h, "ack_policy")
		})
	}
	t.Run("push", func(t *testing.T) {
		t.Parallel()
		h := startHub(t, nil).createStream()
		h.client(func(ctx context.Context, nc *nats.Conn, _ jetstream.JetStream) {
			body := `{"stream_name":"STREAMING_HUB","config":{"durable_name":"recibo","ack_policy":"explicit","deliver_subject":"x"}}`
			if _, err := nc.RequestWithContext(ctx, "$JS.API.CONSUMER.DURABLE.CREATE.STREAMING_HUB.recibo", []byte(body)); err != nil {
				t.Fatal(err)
			}
		})
		expectUnfit(t, h, "push")
	})
}

func expectUnfit(t *testing.T, h *testHub, problem string) {
	t.Helper()
	n := subscribe(t, h.config(), NATSOptions{})
	var unfit *ConsumerError
	if err := run(t, n, (&ledger{}).admit).wait(); !errors.As(err, &unfit) || !strings.Contains(err.Error(), problem) {
		t.Errorf("run: %v", err)
	}
	if err := n.Check(t.Context()); !errors.As(err, &unfit) {
		t.Errorf("check: %v", err)
	}
	if got := n.Health(); got.Healthy || !strings.Contains(got.Detail, problem) {
		t.Errorf("%+v", got)
	}
}

func TestForeignOwnerIsRefusedUnlessTakenOver(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	first := subscribe(t, h.config(), NATSOptions{Owner: "ledger-1", TakeOver: true}) // which counts once
	first.recheck = 10 * time.Millisecond
	l := &ledger{}
	running := run(t, first, l.admit)
	until(t, "health", healthy(first))

	second := subscribe(t, h.config(), NATSOptions{Owner: "ledger-2"})
	var foreign *ForeignOwnerError
	if err := run(t, second, (&ledger{}).admit).wait(); !errors.As(err, &foreign) || foreign.Owner != "ledger-1" {
		t.Fatalf("a stranger got %v", err)
	}
	if err := second.Check(t.Context()); !errors.As(err, &foreign) {
		t.Errorf("check: %v", err)
	}

	insists := subscribe(t, h.config(), NATSOptions{Owner: "ledger-2", TakeOver: true})
	l2 := &ledger{}
	run(t, insists, l2.admit)
	until(t, "the take-over", func() bool { return h.consumer().Config.Metadata[OwnerKey] == "ledger-2" })
	// The first one looks at the consumer after a message, or when none came for a while.
	if err := running.wait(); !errors.As(err, &foreign) || foreign.Owner != "ledger-2" {
		t.Errorf("the former owner got %v", err)
	}
	h.publish("a")
	until(t, "the event at the new owner", l2.has("a"))
}

func TestOwnerComesBackToItsConsumer(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	l := &ledger{}
	for range 2 {
		if err := subscribe(t, h.config(), NATSOptions{Owner: "ledger-1"}).Drain(t.Context(), l.admit); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnmanagedConsumerIsOnlyBound(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	c := h.config()
	c.Manage = false
	l := &ledger{}
	n := subscribe(t, c, NATSOptions{Owner: "ledger-1"})
	run(t, n, l.admit)
	until(t, "the reason", func() bool { return strings.Contains(n.Health().Detail, "consumer not found") })
	if err := n.Check(t.Context()); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("check without a consumer: %v", err)
	}
	h.createConsumer(func(c *jetstream.ConsumerConfig) { c.FilterSubjects, c.MaxDeliver = []string{ReportFinished}, 5 })
	before := h.consumer().Config
	h.publish("a")
	until(t, "the event", l.has("a"))
	if diff := cmp.Diff(before, h.consumer().Config); diff != "" {
		t.Error(diff)
	}
	if detail := n.Health().Detail; !strings.Contains(detail, "filter_subjects") || !strings.Contains(detail, "max_deliver") {
		t.Errorf("detail %q", detail)
	}
	if err := n.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "does not filter") {
		t.Errorf("check: %v", err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil)
	check := func(change func(*NATSConfig)) error {
		c := h.config()
		change(&c)
		return subscribe(t, c, NATSOptions{Owner: "ledger-1"}).Check(t.Context())
	}
	same := func(*NATSConfig) {}
	if err := check(same); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("no stream: %v", err)
	}
	h.createStream()
	if err := check(same); err != nil {
		t.Errorf("a consumer to be created: %v", err)
	}
	if h.consumer().Name != "" {
		t.Error("check created the consumer")
	}
	if err := check(func(c *NATSConfig) { c.Subjects = []string{"orders.new"} }); err == nil || !strings.Contains(err.Error(), "never orders.new") {
		t.Errorf("foreign subject: %v", err)
	}
	h.createConsumer(func(*jetstream.ConsumerConfig) {})
	if err := check(same); err != nil {
		t.Errorf("a consumer to be claimed: %v", err)
	}
	if owner := h.consumer().Config.Metadata[OwnerKey]; owner != "" {
		t.Errorf("check claimed it for %q", owner)
	}
	h.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := subscribe(t, h.config(), NATSOptions{}).Check(ctx)
	if err == nil || !strings.Contains(err.Error(), "no connection to nats://127.0.0.1") {
		t.Errorf("no server: %v", err)
	}
}
