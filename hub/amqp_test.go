package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestAMQPEventsArriveInOrderAndAreAcknowledged(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	var ids []string
	for i := range 600 {
		ids = append(ids, fmt.Sprintf("e%03d", i))
	}
	r.publish(ids...)
	l := &ledger{}
	a := consume(t, r.config())
	running := start(t, a, l.admit)
	until(t, "every event", l.has(ids...))
	if got := l.admitted(); !slices.Equal(got, ids) {
		t.Error("the order is lost")
	}
	if largest := slices.Max(l.batches); largest > maxBatch || largest < 2 {
		t.Errorf("batches of up to %d", largest)
	}
	h := a.Health()
	if !h.Healthy || h.Transport != "amqp" || h.Received != 600 || h.Bindings != 1 || h.LastEvent.IsZero() || h.Backlog != 600 {
		t.Errorf("%+v", h)
	}
	if !strings.Contains(h.Detail, "bound to exchange "+r.exchange+" by report.finished, report.partial") {
		t.Error(h.Detail)
	}
	select {
	case <-a.Bound():
	default:
		t.Error("the binding was not announced")
	}
	running.stop()
	if left := r.ready(); left != 0 {
		t.Errorf("%d came back", left)
	}
}

func TestAMQPPoisonIsAcknowledgedAndHoldsNothingUp(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	r.publish("a", "", "b")
	l := &ledger{}
	running := start(t, consume(t, r.config()), l.admit)
	until(t, "the good events", l.has("a", "b"))
	running.stop()
	if left := r.ready(); left != 0 {
		t.Errorf("%d came back", left)
	}
	if len(l.bad) != 1 || l.bad[0].Transport != "amqp" || l.bad[0].Origin != r.queue+":"+r.exchange+"/report.finished" {
		t.Errorf("quarantined: %+v", l.bad)
	}
}

func TestAMQPNothingIsAcknowledgedBeforeItIsAdmitted(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	r.publish("a")
	l := &ledger{}
	inside, leave := make(chan struct{}), make(chan struct{})
	start(t, consume(t, r.config()), func(ctx context.Context, batch []Delivery) ([]Outcome, error) {
		close(inside)
		<-leave
		return l.admit(ctx, batch)
	})
	<-inside
	if got := r.unacknowledged(); got != "1" {
		t.Errorf("while admitting: %s unacknowledged", got)
	}
	close(leave)
	until(t, "the acknowledgement", func() bool { return r.unacknowledged() == "0" })
}

func TestAMQPRefusedBatchIsHeldAndTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	r.publish("a", "", "b")
	l := &ledger{refuse: errors.New("disk full")}
	var tries atomic.Int32
	a := consume(t, r.config())
	running := start(t, a, func(ctx context.Context, batch []Delivery) ([]Outcome, error) {
		tries.Add(1)
		return l.admit(ctx, batch)
	})
	until(t, "the reason", says(a, "disk full"))
	until(t, "more attempts", func() bool { return tries.Load() > 3 })
	l.setRefuse(nil)
	until(t, "both", l.has("a", "b"))
	until(t, "health", isHealthy(a))
	if h := a.Health(); h.Received != 3 || h.Bindings != 1 {
		t.Errorf("%+v: the batch did not stay", h)
	}
	running.stop()
	if left := r.ready(); left != 0 {
		t.Errorf("%d came back", left)
	}
}

func TestAMQPBatchHeldForTooLongGoesBackToTheBroker(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	r.publish("a")
	l := &ledger{refuse: errors.New("disk full")}
	a := consume(t, r.config())
	a.hold = 0
	again := make(chan bool, 1000)
	judge := a.options.Normalise
	a.options.Normalise = func(m AMQPMessage) Delivery { again <- m.Redelivered; return judge(m) }
	start(t, a, l.admit)
	if first, second := <-again, <-again; first || !second {
		t.Errorf("redelivered: %t, then %t", first, second)
	}
	until(t, "the reason", says(a, "disk full"))
	l.setRefuse(nil)
	until(t, "the event", l.has("a"))
}

func TestAMQPWrongNumberOfOutcomesAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	r.publish("a")
	a := consume(t, r.config())
	running := start(t, a, func(context.Context, []Delivery) ([]Outcome, error) { return nil, nil })
	until(t, "the fault", says(a, "0 outcomes for 1"))
	running.stop()
	until(t, "the event's return", func() bool { return r.ready() == 1 })
}

func TestAMQPStopLetsTheBatchInHandFinish(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	r.publish("a")
	l := &ledger{}
	inside, leave := make(chan struct{}), make(chan struct{})
	running := start(t, consume(t, r.config()), func(ctx context.Context, batch []Delivery) ([]Outcome, error) {
		close(inside)
		<-leave
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return l.admit(ctx, batch)
	})
	<-inside
	running.cancel()
	close(leave)
	if err := running.wait(); err != nil {
		t.Error(err)
	}
	if left := r.ready(); !l.has("a")() || left != 0 {
		t.Errorf("admitted %v, %d came back", l.admitted(), left)
	}
}

func TestAMQPStopEndsAStuckAdmission(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	r.publish("a")
	inside := make(chan struct{})
	running := start(t, consume(t, r.config()), func(ctx context.Context, _ []Delivery) ([]Outcome, error) {
		close(inside)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	<-inside
	running.cancel()
	if err := running.wait(); err != nil {
		t.Error(err)
	}
	until(t, "the event's return", func() bool { return r.ready() == 1 })
}

func TestAMQPStopIsPromptWhileIdleAndWhileHolding(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	l := &ledger{refuse: errors.New("disk full")}
	for name, publish := range map[string]bool{"idle": false, "holding": true} {
		a := consume(t, r.config())
		a.retry = backoff{least: time.Hour, most: time.Hour}
		a.hold = 24 * time.Hour
		running := start(t, a, l.admit)
		if until(t, "health", isHealthy(a)); publish {
			r.publish("a")
			until(t, "the refusal", says(a, "disk full"))
		}
		running.cancel()
		if err := running.wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := a.Health(); got.Healthy || got.Detail != "stopped" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestAMQPDrainTakesWhatIsThereAndEnds(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	var ids []string
	for i := range 600 {
		ids = append(ids, fmt.Sprint("e", i))
	}
	r.publish(ids...)
	l := &ledger{}
	a := consume(t, r.config())
	if err := a.Drain(t.Context(), l.admit); err != nil {
		t.Fatal(err)
	}
	if got := l.admitted(); !slices.Equal(got, ids) {
		t.Errorf("%d events", len(got))
	}
	if left := r.ready(); left != 0 {
		t.Errorf("%d came back", left)
	}
	if err := a.Drain(t.Context(), l.admit); err != nil {
		t.Errorf("drained again: %v", err)
	}
}

func TestAMQPDrainReportsFaults(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	r.publish("a")
	l := &ledger{refuse: errors.New("disk full")}
	if err := consume(t, r.config()).Drain(t.Context(), l.admit); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("refused: %v", err)
	}
	until(t, "the event's return", func() bool { return r.ready() == 1 })
	c := r.config()
	c.Queue, c.Declare = "elsewhere", false
	if err := consume(t, c).Drain(t.Context(), l.admit); !isAMQP(err, amqp.NotFound) {
		t.Errorf("no queue: %v", err)
	}
	c.URLs = []string{"amqp://127.0.0.1:1"}
	if err := consume(t, c).Drain(t.Context(), l.admit); err == nil || !strings.Contains(err.Error(), "not connected: amqp://127.0.0.1:1") {
		t.Errorf("no broker: %v", err)
	}
}

// A queue with a single active consumer keeps its messages from every other one.
// What another consumer takes is lost to this ledger, so a queue that has one is refused.
func TestAMQPAQueueBelongsToOneConsumer(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declare()
	first := consume(t, r.config())
	start(t, first, (&ledger{}).admit)
	until(t, "the first to receive", isHealthy(first))
	second := consume(t, r.config())
	if err := second.Drain(t.Context(), (&ledger{}).admit); err == nil || !strings.Contains(err.Error(), "has another consumer") {
		t.Errorf("the second one: %v", err)
	}
}

// A queue with a single active consumer, as administrators make them for a standby, takes no exclusive one.
func TestAMQPAQueueWithASingleActiveConsumerIsTaken(t *testing.T) {
	t.Parallel()
	r := newRabbit(t).declareExchange()
	r.client(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(r.queue, true, false, false, false, amqp.Table{"x-single-active-consumer": true})
		return errors.Join(err, ch.QueueBind(r.queue, "#", r.exchange, false, nil))
	})
	r.publish("a", "b")
	l := &ledger{}
	if err := consume(t, r.config()).Drain(t.Context(), l.admit); err != nil || !l.has("a", "b")() {
		t.Errorf("%v, has %v", err, l.admitted())
	}
}

func TestAMQPCheckChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	c := r.config()
	if found, err := consume(t, c).Check(t.Context()); err != nil || !strings.Contains(found.Lost, "before recibo run declares it") {
		t.Errorf("a queue that can be declared: %q, %v", found.Lost, err)
	}
	c.Declare = false
	if _, err := consume(t, c).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "does not exist, and declare is off") {
		t.Errorf("a queue that can't: %v", err)
	}
	r.declareQueue()
	if found, err := consume(t, c).Check(t.Context()); err != nil || !strings.Contains(found.Lost, c.Exchange+" is not there") {
		t.Errorf("an exchange that is missing: %q, %v", found.Lost, err)
	}
	r.declareExchange()
	if found, err := consume(t, c).Check(t.Context()); err != nil || found.Lost != "" || !strings.Contains(found.Detail, "0 messages") {
		t.Errorf("a queue: %+v, %v", found, err)
	}
	c.URLs = []string{strings.Replace(r.url(), "//", "//ghost:hunter2@", 1)}
	_, err := consume(t, c).Check(t.Context())
	if !errors.Is(err, errRefused) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("wrong credentials: %v", err)
	}
}
