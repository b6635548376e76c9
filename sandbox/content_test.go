package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

var formats = []string{"pdf", "xml", "html", "csv", "txt"}

func TestFilesHaveTheirExactSizeHeadAndEnd(t *testing.T) {
	t.Parallel()
	heads := map[string]string{"pdf": "%PDF-1.7\n", "xml": "<?xml ", "html": "<!doctype html>", "csv": "number,account,", "txt": "Report "}
	ends := map[string]string{"pdf": "%%EOF\n", "xml": "</report>\n", "html": "</html>\n", "csv": "\n", "txt": "\n"}
	p := newPrinted(7)
	for _, format := range formats {
		for _, size := range []int64{MinSize, MinSize + 1, 191, 192, 193, 4096, chunkSize - 1, chunkSize, chunkSize + 200, 3*chunkSize + 77} {
			data := readAll(t, p.content(format, 42, size))
			if int64(len(data)) != size {
				t.Errorf("%s of %d bytes has %d", format, size, len(data))
			}
			if !strings.HasPrefix(data, heads[format]) || !strings.HasSuffix(data, ends[format]) {
				t.Errorf("%s of %d bytes: %.30q ... %q", format, size, data, data[len(data)-20:])
			}
		}
	}
}

func TestTextFilesAreWellFormed(t *testing.T) {
	t.Parallel()
	p := newPrinted(7)
	sizes := []int64{2*chunkSize + 300}
	for size := int64(MinSize); size < MinSize+2*rowSize; size++ { // every rest that rows can leave
		sizes = append(sizes, size)
	}
	for _, size := range sizes {
		decoder := xml.NewDecoder(strings.NewReader(readAll(t, p.content("xml", 42, size))))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("xml of %d bytes: %v", size, err)
			}
		}
		if _, err := csv.NewReader(strings.NewReader(readAll(t, p.content("csv", 42, size)))).ReadAll(); err != nil {
			t.Fatalf("csv of %d bytes: %v", size, err)
		}
	}
}

func TestFilesFollowFromTheirSeed(t *testing.T) {
	t.Parallel()
	for _, format := range formats {
		for _, size := range []int64{MinSize, 5000, 2 * chunkSize} {
			first := readAll(t, newPrinted(7).content(format, 1, size))
			if first != readAll(t, newPrinted(7).content(format, 1, size)) {
				t.Errorf("%s of %d bytes differs between two readings", format, size)
			}
			if first == readAll(t, newPrinted(7).content(format, 2, size)) {
				t.Errorf("%s of %d bytes is the same for two seeds", format, size)
			}
		}
	}
}

func TestARangeIsThatPartOfTheWhole(t *testing.T) {
	t.Parallel()
	c := newPrinted(7).content("xml", 42, 3*chunkSize+77)
	all := readAll(t, c)
	for _, off := range []int64{0, 1, 63, 100, 130, chunkSize, chunkSize + 95, 2*chunkSize + 3, c.size - 5, c.size} {
		for _, end := range []int64{off, min(off+1, c.size), min(off+chunkSize+9, c.size), c.size} {
			var got bytes.Buffer
			n, err := c.copyTo(&got, off, end)
			if err != nil || n != end-off || got.String() != all[off:end] {
				t.Fatalf("bytes %d to %d: %d copied, error %v, equal %v", off, end, n, err, got.String() == all[off:end])
			}
		}
	}
}

func TestSumIsThatOfTheContent(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	id := r.Add(Report{Size: 300_000, Format: "csv"}).ID
	want := sha256.Sum256([]byte(file(t, r, id)))
	for range 2 {
		if size, sum := r.Sum(id); size != 300_000 || sum != hex.EncodeToString(want[:]) {
			t.Errorf("got %d %s", size, sum)
		}
	}
	r.Set(id, func(report *Report) { report.Seed++ })
	if _, sum := r.Sum(id); sum == hex.EncodeToString(want[:]) {
		t.Error("the sum did not follow the new seed")
	}
	if size, sum := r.Sum("unknown"); size != -1 || sum != "" || file(t, r, "unknown") != "" {
		t.Errorf("an unknown report has %d bytes, %q", size, sum)
	}
}

// Not parallel: other tests would allocate beside it.
func TestALargeFileCostsNoMemory(t *testing.T) {
	c := newPrinted(7).content("pdf", 42, 2<<30)
	_, _ = c.copyTo(io.Discard, 0, chunkSize)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, err := c.copyTo(io.Discard, 1<<30, 1<<30+64<<20)
	runtime.ReadMemStats(&after)
	if err != nil || n != 64<<20 {
		t.Fatalf("%d bytes, error %v", n, err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("64 MiB cost %d bytes of memory", grown)
	}
}

func BenchmarkContent(b *testing.B) {
	p := newPrinted(7)
	for _, size := range []int64{64 << 10, 256 << 20} {
		b.Run(strconv.FormatInt(size>>10, 10)+"KiB", func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				c := p.content("csv", 42, size)
				_, _ = c.copyTo(io.Discard, 0, size)
			}
		})
	}
}

func readAll(t testing.TB, c *content) string {
	t.Helper()
	data, err := io.ReadAll(&contentReader{c, 0, c.size})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
