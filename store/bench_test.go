package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

const benchBatch = 256

// idSource makes ids of events and reports.
type idSource func() string

// timeOrdered makes ids as UUIDv7 does: their order is that of their making.
func timeOrdered() idSource {
	ms, n := uint64(1_700_000_000_000), uint16(0)
	random := rand.New(rand.NewPCG(1, 2))
	return func() string {
		if n++; n%16 == 0 {
			ms++
		}
		var id uuid.UUID
		binary.BigEndian.PutUint64(id[:], ms<<16|uint64(n)&0xFFF|0x7000)
		binary.BigEndian.PutUint64(id[8:], random.Uint64()&^(3<<62)|2<<62)
		return id.String()
	}
}

// unordered makes ids as UUIDv4 does.
func unordered() idSource {
	random := rand.New(rand.NewPCG(3, 4))
	return func() string {
		var id uuid.UUID
		binary.BigEndian.PutUint64(id[:], random.Uint64()&^0xF000|0x4000)
		binary.BigEndian.PutUint64(id[8:], random.Uint64()&^(3<<62)|2<<62)
		return id.String()
	}
}

func benchAdmission(next idSource) Admission {
	return Admission{
		Feed: Reports, EventID: next(), EventName: "report.finished", Receipt: Key{Report, next()},
		Transport: "nats", Origin: "STREAMING_HUB/4711", Source: "//lerian.midaz/reporter", Tenant: "11111111-2222-3333-4444-555555555555",
	}
}

func benchMany(next idSource, n int) []Admission {
	batch := make([]Admission, n)
	for i := range batch {
		batch[i] = benchAdmission(next)
	}
	return batch
}

func benchStore(b *testing.B) *Store {
	b.Helper()
	s, err := Open(filepath.Join(b.TempDir(), "recibo.db"), Options{Create: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// prefill brings a store to n receipts, in large transactions.
func prefill(b *testing.B, s *Store, next idSource, n int) {
	b.Helper()
	for n > 0 {
		chunk := min(n, 20_000)
		if _, err := s.Admit(context.Background(), benchMany(next, chunk)); err != nil {
			b.Fatal(err)
		}
		n -= chunk
	}
}

// admitted measures batches and returns the median time of one event.
func admitted(b *testing.B, s *Store, next idSource, batches int) time.Duration {
	b.Helper()
	times := make([]time.Duration, batches)
	for i := range times {
		batch := benchMany(next, benchBatch)
		start := time.Now()
		if _, err := s.Admit(context.Background(), batch); err != nil {
			b.Fatal(err)
		}
		times[i] = time.Since(start)
	}
	return median(times) / benchBatch
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// appended measures what an event would cost in a plain file that is synced after each one; the median.
func appended(b *testing.B, next idSource, n int) time.Duration {
	b.Helper()
	f, err := os.OpenFile(filepath.Join(b.TempDir(), "events"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	times := make([]time.Duration, n)
	for i := range times {
		a := benchAdmission(next)
		line := fmt.Appendf(nil, "%s %s %s %s %s %s %s %s\n",
			a.Feed, a.EventID, a.EventName, a.Receipt, a.Transport, a.Origin, a.Source, a.Tenant)
		start := time.Now()
		if _, err := f.Write(line); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		times[i] = time.Since(start)
	}
	return median(times)
}

// BenchmarkAdmit compares an event admitted in a batch of 256 with one appended to a file and synced, in the same run.
func BenchmarkAdmit(b *testing.B) {
	next := timeOrdered()
	s := benchStore(b)
	for b.Loop() {
		event := admitted(b, s, next, 41)
		plain := appended(b, next, 301)
		b.ReportMetric(float64(event.Nanoseconds()), "ns/event")
		b.ReportMetric(float64(plain.Nanoseconds()), "ns/append-fsync")
		b.ReportMetric(float64(event)/float64(plain), "admissions/append-fsync")
	}
}

// BenchmarkGrowth compares the cost of an event at 1,000 and at 1,000,000 receipts, and measures opening the latter.
func BenchmarkGrowth(b *testing.B) {
	for _, ids := range []struct {
		name   string
		source func() idSource
	}{{"time-ordered", timeOrdered}, {"random", unordered}} {
		b.Run(ids.name, func(b *testing.B) {
			for b.Loop() {
				next := ids.source()
				small := benchStore(b)
				prefill(b, small, next, 1_000)
				atSmall := admitted(b, small, next, 41)

				next = ids.source()
				big := benchStore(b)
				prefill(b, big, next, 1_000_000)
				atBig := admitted(b, big, next, 41)
				b.ReportMetric(float64(atSmall.Nanoseconds()), "ns/event-at-1k")
				b.ReportMetric(float64(atBig.Nanoseconds()), "ns/event-at-1M")
				b.ReportMetric(float64(atBig)/float64(atSmall), "1M/1k")
				opened(b, big)
			}
		})
	}
}

// opened measures opening a ledger after a clean stop and after a crash.
func opened(b *testing.B, s *Store) {
	b.Helper()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(s.path)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(info.Size())/(1<<20), "MiB")
	start := time.Now()
	again, err := Open(s.path, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms/open")

	// Without the list of free pages that Close writes, the ledger is as a crash leaves it.
	if err := again.SetFact(context.Background(), "bench", []byte("x")); err != nil {
		b.Fatal(err)
	}
	again.written = false
	if err := again.Close(); err != nil {
		b.Fatal(err)
	}
	start = time.Now()
	if again, err = Open(s.path, Options{}); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms/open-after-crash")
	if err := again.Close(); err != nil {
		b.Fatal(err)
	}
}
