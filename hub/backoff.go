package hub

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff gives waits that double from least to most. The zero count is the first wait.
type backoff struct {
	least, most time.Duration
	count       int
}

// next returns the wait to come, with up to a quarter of it added so that many agents don't return in step.
func (b *backoff) next() time.Duration {
	wait := b.plain()
	return wait + rand.N(wait/4+1)
}

// plain is next without jitter.
func (b *backoff) plain() time.Duration {
	wait := b.most
	if b.count < 30 && b.least<<b.count < b.most {
		wait = b.least << b.count
	}
	b.count++
	return wait
}

func (b *backoff) reset() { b.count = 0 }

// pause waits, and reports false as soon as ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
