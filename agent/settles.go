package agent

import (
	"sync"

	"recibo/store"
)

// settles tells those who wait which receipts attempts have ended on, so that waiting for many costs no more than each
// of them once.
type settles struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
}

// listener collects keys until its owner takes them.
type listener struct {
	from   *settles
	raised chan struct{}
	keys   []store.Key // guarded by from.mu
}

func (s *settles) listen() *listener {
	l := &listener{from: s, raised: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners == nil {
		s.listeners = map[*listener]struct{}{}
	}
	s.listeners[l] = struct{}{}
	return l
}

func (s *settles) raise(k store.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		l.keys = append(l.keys, k)
		select {
		case l.raised <- struct{}{}:
		default:
		}
	}
}

// take returns what came since the last time.
func (l *listener) take() []store.Key {
	l.from.mu.Lock()
	defer l.from.mu.Unlock()
	keys := l.keys
	l.keys = nil
	return keys
}

func (l *listener) close() {
	l.from.mu.Lock()
	defer l.from.mu.Unlock()
	delete(l.from.listeners, l)
}
