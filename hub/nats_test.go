package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestEventsArriveInOrderAndAreAcknowledged(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	var ids []string
	for i := range 600 {
		ids = append(ids, fmt.Sprintf("e%03d", i))
	}
	h.publish(ids...)
	l := &ledger{}
	n := subscribe(t, h.config(), NATSOptions{})
	run(t, n, l.admit)
	until(t, "every event", l.has(ids...))
	if got := l.admitted(); !slices.Equal(got, ids) {
		t.Error("the order is lost")
	}
	until(t, "acknowledgements", func() bool { i := h.consumer(); return i.NumAckPending == 0 && i.NumPending == 0 })
	if largest := slices.Max(l.batches); largest > maxBatch || largest < 2 {
		t.Errorf("batches of up to %d", largest)
	}
	health := n.Health()
	if !health.Healthy || health.Transport != "nats" || health.Received != 600 || health.Bindings != 1 || health.LastEvent.IsZero() {
		t.Errorf("%+v", health)
	}
	select {
	case <-n.Bound():
	default:
		t.Error("the binding was not announced")
	}
}

func TestPoisonIsTerminatedAndHoldsNothingUp(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.publish("a", "", "b")
	reasons := make(chan *nats.Msg, 4)
	nc, err := nats.Connect(h.config().URL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.ChanSubscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>", reasons); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	l := &ledger{}
	run(t, subscribe(t, h.config(), NATSOptions{}), l.admit)
	until(t, "the good events", l.has("a", "b"))
	until(t, "an end of all", func() bool { i := h.consumer(); return i.NumAckPending == 0 && i.AckFloor.Stream == 3 })
	advisory := <-reasons
	if !strings.Contains(string(advisory.Data), "no event id") {
		t.Errorf("terminated with %s", advisory.Data)
	}
	if len(l.bad) != 1 || l.bad[0].Origin != "STREAMING_HUB:2" || l.bad[0].Transport != "nats" {
		t.Errorf("quarantined: %+v", l.bad)
	}
}

func TestNothingIsAcknowledgedBeforeItIsAdmitted(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.publish("a")
	l := &ledger{}
	inside, leave := make(chan struct{}), make(chan struct{})
	n := subscribe(t, h.config(), NATSOptions{})
	run(t, n, func(ctx context.Context, batch []Delivery) ([]Outcome, error) {
		close(inside)
		<-leave
		return l.admit(ctx, batch)
	})
	<-inside
	if i := h.consumer(); i.NumAckPending != 1 || i.AckFloor.Stream != 0 {
		t.Errorf("while admitting: %d pending, floor %d", i.NumAckPending, i.AckFloor.Stream)
	}
	close(leave)
	until(t, "the acknowledgement", func() bool { return h.consumer().AckFloor.Stream == 1 })
}

func TestRefusedBatchComesBackWithDelay(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.publish("a", "b", "")
	nc, err := nats.Connect(h.config().URL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	answers := make(chan *nats.Msg, 64)
	if _, err := nc.ChanSubscribe("$JS.ACK.STREAMING_HUB.recibo.>", answers); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	l := &ledger{refuse: errors.New("disk full")}
	n := subscribe(t, h.config(), NATSOptions{})
	run(t, n, l.admit)
	until(t, "a refusal in the health", func() bool { return strings.Contains(n.Health().Detail, "disk full") })
	if n.Health().Healthy {
		t.Error("healthy while nothing can be stored")
	}
	for range 6 { // two rounds
		if answer := <-answers; !strings.HasPrefix(string(answer.Data), `-NAK {"delay": `) {
			t.Errorf("answered %q", answer.Data)
		}
	}
	l.setRefuse(nil)
	until(t, "both", l.has("a", "b"))
	until(t, "health", healthy(n))
	until(t, "acknowledgements", func() bool { return h.consumer().AckFloor.Stream == 3 })
}

func TestWrongNumberOfOutcomesAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.publish("a")
	n := subscribe(t, h.config(), NATSOptions{})
	run(t, n, func(context.Context, []Delivery) ([]Outcome, error) { return nil, nil })
	until(t, "the fault", func() bool { return strings.Contains(n.Health().Detail, "0 outcomes for 1") })
	if i := h.consumer(); i.AckFloor.Stream != 0 {
		t.Error("acknowledged")
	}
}

func TestStopLetsTheBatchInHandFinish(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.publish("a")
	l := &ledger{}
	inside, leave := make(chan struct{}), make(chan struct{})
	r := run(t, subscribe(t, h.config(), NATSOptions{}), func(ctx context.Context, batch []Delivery) ([]Outcome, error) {
		close(inside)
		<-leave
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return l.admit(ctx, batch)
	})
	<-inside
	r.cancel()
	close(leave)
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	if i := h.consumer(); !l.has("a")() || i.AckFloor.Stream != 1 {
		t.Errorf("admitted %v, floor %d", l.admitted(), i.AckFloor.Stream)
	}
}

func TestStopEndsAStuckAdmission(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.publish("a")
	inside := make(chan struct{})
	r := run(t, subscribe(t, h.config(), NATSOptions{}), func(ctx context.Context, _ []Delivery) ([]Outcome, error) {
		close(inside)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	<-inside
	r.cancel()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	if i := h.consumer(); i.AckFloor.Stream != 0 {
		t.Error("acknowledged")
	}
}

func TestStopIsPromptWhileIdle(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	n := subscribe(t, h.config(), NATSOptions{})
	r := run(t, n, (&ledger{}).admit)
	until(t, "health", healthy(n))
	r.cancel()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	if got := n.Health(); got.Healthy || got.Detail != "stopped" {
		t.Errorf("%+v", got)
	}
}

func TestDrainTakesWhatIsThereAndEnds(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	var ids []string
	for i := range 300 {
		ids = append(ids, fmt.Sprint("e", i))
	}
	h.publish(ids...)
	l := &ledger{}
	n := subscribe(t, h.config(), NATSOptions{})
	if err := n.Drain(t.Context(), l.admit); err != nil {
		t.Fatal(err)
	}
	if got := l.admitted(); !slices.Equal(got, ids) {
		t.Errorf("%d events", len(got))
	}
	if i := h.consumer(); i.NumAckPending != 0 || i.NumPending != 0 {
		t.Errorf("%d pending, %d unacknowledged", i.NumPending, i.NumAckPending)
	}
	if err := n.Drain(t.Context(), l.admit); err != nil {
		t.Errorf("drained again: %v", err)
	}
}

func TestDrainReportsFaults(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.publish("a")
	l := &ledger{refuse: errors.New("disk full")}
	if err := subscribe(t, h.config(), NATSOptions{}).Drain(t.Context(), l.admit); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("refused: %v", err)
	}
	c := h.config()
	c.Stream = "ELSEWHERE"
	if err := subscribe(t, c, NATSOptions{}).Drain(t.Context(), l.admit); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("no stream: %v", err)
	}
	h.stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := subscribe(t, h.config(), NATSOptions{}).Drain(ctx, l.admit); err == nil || !strings.Contains(err.Error(), "no connection") {
		t.Errorf("no server: %v", err)
	}
}

func TestDrainDoesNotWaitForAPausedConsumer(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	later := time.Now().Add(time.Hour)
	h.createConsumer(func(c *jetstream.ConsumerConfig) { c.PauseUntil = &later })
	h.publish("a")
	err := subscribe(t, h.config(), NATSOptions{}).Drain(t.Context(), (&ledger{}).admit)
	if err == nil || !strings.Contains(err.Error(), "1 events are pending and not delivered") {
		t.Errorf("%v", err)
	}
}

func TestReasonsFitTheProtocol(t *testing.T) {
	t.Parallel()
	if got := natsReason("a\r\nb"); got != "a  b" {
		t.Errorf("%q", got)
	}
	if got := natsReason(strings.Repeat("ü", 300)); got != strings.Repeat("ü", 100) {
		t.Errorf("%d bytes", len(got))
	}
}

func TestSkippedEventsAreAcknowledged(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	h.client(func(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) {
		message := &nats.Msg{Subject: ReportFinished, Header: finished("ce-schemaversion", "1.0.0"), Data: []byte(`{}`)}
		if _, err := js.PublishMsg(ctx, message); err != nil {
			t.Fatal(err)
		}
	})
	n := subscribe(t, h.config(), NATSOptions{})
	run(t, n, (&ledger{}).admit)
	until(t, "the acknowledgement", func() bool { return h.consumer().AckFloor.Stream == 1 })
	if got := n.Health(); got.Received != 1 || !got.LastEvent.IsZero() {
		t.Errorf("%+v: an event of others is no event", got)
	}
}
