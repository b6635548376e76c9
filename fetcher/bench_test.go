package fetcher

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"recibo/setting"
)

// large returns a result of about size bytes, and the object that it is stored as.
func large(t testing.TB, size int) (plaintext, object []byte) {
	t.Helper()
	row := []byte("    {\n      \"active\": true,\n      \"balance\": \"1250.50\",\n      \"email\": \"ana@example.com\"\n    },\n")
	plaintext = append([]byte("{\n"), bytes.Repeat(row, size/len(row))...)
	return plaintext, seal(t, keyB, plaintext)
}

// shelf serves one object from memory, so that next to nothing is allocated or computed on the other side.
func shelf(t testing.TB, object []byte) Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Last-Modified", lastModified)
		w.Header().Set("Content-Length", strconv.Itoa(len(object)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(object)
		}
	}))
	t.Cleanup(server.Close)
	c := keyed(keyA)
	c.StorageKey = secrets(keyB)
	c.Objects = ObjectsConfig{
		Endpoint: server.URL, Region: "us-east-1", Bucket: bucket, AccessKey: setting.NewSecret("a"), SecretKey: setting.NewSecret("b"),
	}
	return c
}

// TestAResultTakesHardlyMoreMemoryThanItsPlaintext adds up everything that is allocated on the way, freed or not: what is
// in use at once can't be more.
func TestAResultTakesHardlyMoreMemoryThanItsPlaintext(t *testing.T) {
	const size = 32 << 20
	plaintext, object := large(t, size)
	r := results(t, shelf(t, object))
	w := wanted(plaintext)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := r.Fetch(t.Context(), 0, w, func(got []byte, _ Proof) error {
		if !bytes.Equal(got, plaintext) {
			t.Error("another plaintext")
		}
		return nil
	})
	runtime.ReadMemStats(&after)
	allocated := float64(after.TotalAlloc - before.TotalAlloc)
	if err != nil || allocated > 1.1*float64(len(plaintext)) {
		t.Errorf("%.2f times the plaintext, %v", allocated/float64(len(plaintext)), err)
	}
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > size/2 {
		t.Errorf("%d bytes are still held", held)
	}
}

// benchRounds is how often each side of a comparison takes its turn in one run.
const benchRounds = 7

// BenchmarkFetch compares bringing a large result home into a synced file with the sum of its parts done one after the
// other on bytes that are in memory: base64, AES-GCM, HMAC-SHA256 and the same file. "ratio" is how many times longer
// ours takes, which has the transfer to pay for too; "ratio-with-transfer" has it on both sides. Both are medians of
// rounds in which the sides follow each other. "peak" is the most memory in use, over that before, in plaintexts.
func BenchmarkFetch(b *testing.B) {
	size := 256 << 20
	if testing.Short() {
		size = 64 << 20
	}
	w, object := func() (Wanted, []byte) { // the plaintext stays behind
		plaintext, object := large(b, size)
		return wanted(plaintext), object
	}()
	r := results(b, shelf(b, object))
	file := filepath.Join(b.TempDir(), "result")
	buf := make([]byte, decodedSize(int64(len(object))))
	ours := func() {
		if err := r.Fetch(b.Context(), 0, w, func(p []byte, _ Proof) error { return writeSynced(file, p) }); err != nil {
			b.Fatal(err)
		}
	}
	parts := func() {
		if err := byParts(file, object, buf); err != nil {
			b.Fatal(err)
		}
	}
	transfer := func() {
		object, err := r.stores[0].get(b.Context(), resultPath, -1)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{object}, make([]byte, chunkSize)); err != nil {
			b.Fatal(err)
		}
		_ = object.Close()
	}
	debug.FreeOSMemory()
	base := inUse()
	ours()
	peak := inUse() - base
	parts() // both have their memory from now on
	for range b.N {
		var ratios, withTransfer, speeds, limits []float64
		for range benchRounds {
			limit, took := timed(parts), timed(ours)
			ratios = append(ratios, took/limit)
			withTransfer = append(withTransfer, took/(limit+timed(transfer)))
			speeds, limits = append(speeds, float64(size)/took/1e6), append(limits, float64(size)/limit/1e6)
		}
		b.ReportMetric(median(ratios), "ratio")
		b.ReportMetric(median(withTransfer), "ratio-with-transfer")
		b.ReportMetric(median(speeds), "ours-MB/s")
		b.ReportMetric(median(limits), "parts-MB/s")
	}
	b.ReportMetric(float64(peak)/float64(size), "peak")
	b.ReportMetric(0, "ns/op") // says nothing about a round of several things
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// timed returns seconds.
func timed(do func()) float64 {
	began := time.Now()
	do()
	return time.Since(began).Seconds()
}

// inUse is what Go has from the system. It hardly shrinks within seconds, so that after a call it tells of the most.
func inUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapSys - m.HeapReleased)
}

func byParts(file string, object, buf []byte) error {
	n, err := base64.StdEncoding.Decode(buf, object)
	if err != nil {
		return err
	}
	sealed := buf[:n]
	block, err := aes.NewCipher(bytes.Repeat([]byte{0xbb}, keySize))
	if err != nil {
		return err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return err
	}
	plain, err := gcm.Open(sealed[nonceSize:nonceSize], sealed[:nonceSize], sealed[nonceSize:], nil)
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, bytes.Repeat([]byte{0xaa}, keySize))
	mac.Write(plain)
	mac.Sum(nil)
	return writeSynced(file, plain)
}

func writeSynced(name string, data []byte) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Sync(), file.Close())
}
