package hub

import (
	"sync"
	"time"
)

// status is the health of one subscription, kept by its transport. Health follows the subscription, not the process: it is
// true only while events can arrive.
type status struct {
	bound chan struct{}

	mu     sync.Mutex
	health Health
}

func newStatus(transport string) *status {
	return &status{
		bound:  make(chan struct{}, 1),
		health: Health{Transport: transport, Since: time.Now(), Detail: "not started"},
	}
}

// Health returns a copy of the state.
func (s *status) Health() Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health
}

// Bound receives a value after a new binding; several that nobody has looked at yet count as one.
func (s *status) Bound() <-chan struct{} { return s.bound }

// bind reports a new binding. Whoever follows health and Bound sees the health first.
func (s *status) bind(detail string, backlog uint64) {
	s.mu.Lock()
	s.set(true, detail)
	s.health.Backlog = backlog
	s.health.Bindings++
	s.mu.Unlock()
	select {
	case s.bound <- struct{}{}:
	default:
	}
}

// up reports that the binding works; down that it does not, and why.
func (s *status) up(detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(true, detail)
}

func (s *status) down(detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(false, detail)
}

func (s *status) set(healthy bool, detail string) {
	if s.health.Healthy != healthy {
		s.health.Healthy, s.health.Since = healthy, time.Now()
	}
	s.health.Detail = detail
}

// left notes how many messages still wait.
func (s *status) left(backlog uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.Backlog = backlog
}

// received counts a batch. Only events for us count as the last event: a shared topic is never silent.
func (s *status) received(batch []Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.Received += uint64(len(batch))
	for _, d := range batch {
		if d.Verdict == Accept {
			s.health.LastEvent = time.Now()
			return
		}
	}
}
