package rest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a body whose every read takes a while and brings some bytes.
type pipe struct {
	ctx   context.Context
	takes time.Duration
	bytes int
}

func (p pipe) Read(b []byte) (int, error) {
	select {
	case <-time.After(p.takes):
		return min(p.bytes, len(b)), nil
	case <-p.ctx.Done():
		return 0, p.ctx.Err()
	}
}

func (p pipe) Close() error { return nil }

func TestOnlyTimeSpentWaitingForTheServiceCounts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		takes  time.Duration
		bytes  int
		writes time.Duration // what the reader takes for itself after each read
		ends   time.Duration // in reads alone; 0: is still read after 2000 of them
	}{
		"fast":                     {takes: time.Millisecond, bytes: 4096},
		"fast, onto a slow disk":   {takes: time.Millisecond, bytes: 10, writes: time.Hour},
		"in bursts":                {takes: 59 * time.Second, bytes: 64 << 10},
		"silent":                   {takes: 61 * time.Second, bytes: 64 << 10, ends: 60 * time.Second},
		"a byte every 59 seconds":  {takes: 59 * time.Second, bytes: 1, ends: 354 * time.Second},
		"just below the mean rate": {takes: time.Second, bytes: 1023, ends: 300 * time.Second},
		"exactly the mean rate":    {takes: time.Second, bytes: 1024},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				from := pipe{ctx, test.takes, test.bytes}
				w := watch(from, cancel, time.Minute, defaultMinRate, defaultMinRateFor)
				defer func() { _ = w.Close() }()
				buffer := make([]byte, 128<<10)
				var reading time.Duration
				for range 2000 {
					began := time.Now()
					_, err := w.Read(buffer)
					reading += time.Since(began)
					if err == nil {
						time.Sleep(test.writes)
						continue
					}
					var slow *slowError
					if !errors.As(err, &slow) || reading != test.ends {
						t.Errorf("ended with %v after %v", err, reading)
					}
					return
				}
				if test.ends != 0 {
					t.Errorf("still read after %v", reading)
				}
			})
		})
	}
}
