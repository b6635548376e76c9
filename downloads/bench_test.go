package downloads

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// zeros is an endless stream in blocks of its reader's choice.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

const (
	benchSize  = 512 << 20
	benchChunk = 256 << 10
)

// BenchmarkStageAndPublish compares staging (with its hash), syncing and publishing a large stream with a plain copy
// that is synced; "ratio" is how many times longer ours takes.
func BenchmarkStageAndPublish(b *testing.B) {
	f := folderOf(b, nil)
	plainFile := filepath.Join(filepath.Dir(f.Dir()), "plain")
	var ours, theirs time.Duration
	for b.Loop() {
		start := time.Now()
		copyPlain(b, plainFile)
		theirs += time.Since(start)
		if err := os.Remove(plainFile); err != nil {
			b.Fatal(err)
		}

		start = time.Now()
		name := copyOurs(b, f)
		ours += time.Since(start)
		if err := os.Remove(f.FullPath(name)); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(2 * benchSize)
	b.ReportMetric(float64(ours)/float64(theirs), "ratio")
	b.ReportMetric(float64(benchSize)*float64(b.N)/ours.Seconds()/1e6, "ours-MB/s")
	b.ReportMetric(float64(benchSize)*float64(b.N)/theirs.Seconds()/1e6, "plain-MB/s")
}

func copyPlain(b *testing.B, name string) {
	file, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	stream(b, file)
	if err := file.Sync(); err != nil {
		b.Fatal(err)
	}
}

func copyOurs(b *testing.B, f *Folder) string {
	s, err := f.Stage("bench")
	if err != nil {
		b.Fatal(err)
	}
	stream(b, s)
	if _, err := s.Finish(context.Background()); err != nil {
		b.Fatal(err)
	}
	p, err := f.Prepare(context.Background(), Place{ID: "bench", Ext: "bin"}, s)
	if err != nil {
		b.Fatal(err)
	}
	if err := f.Publish(context.Background(), p.Publication); err != nil {
		b.Fatal(err)
	}
	return p.Name
}

func stream(b *testing.B, w io.Writer) {
	buffer := make([]byte, benchChunk)
	source := io.LimitReader(zeros{}, benchSize)
	for {
		n, err := io.ReadFull(source, buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				b.Fatal(err)
			}
		}
		if err != nil {
			return
		}
	}
}
