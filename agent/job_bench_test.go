package agent

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"recibo/fetcher"
	"recibo/hub"
	"recibo/rest"
	"recibo/sandbox"
)

// BenchmarkDurableJobs compares bringing home results of 20 KiB, from the admission of their signed events to settled
// receipts, with the bare sequence in plain Go at the same number of workers: HEAD, GET, base64, AES-GCM, HMAC, write, fsync,
// rename, fsync folder.
func BenchmarkDurableJobs(b *testing.B) {
	f := startJobs(b)
	events := f.complete(benchReports, 20<<10)
	for range b.N {
		var ratios, speeds []float64
		for range benchRounds {
			bare := f.bare(events)
			ours := settleAll(b, Options{Fetcher: f.client}, f.judge(events))
			ratios = append(ratios, bare.Seconds()/ours.Seconds())
			speeds = append(speeds, float64(len(events))/ours.Seconds())
		}
		b.ReportMetric(median(ratios), "of-bare")
		b.ReportMetric(median(speeds), "jobs/s")
	}
}

// BenchmarkLargeResult compares one large result, from its event to its settled receipt, with the bare sequence. "ratio" is
// how many times longer ours takes than the parts of that sequence on bytes that are in memory; in "ratio-with-transfer"
// they are brought there.
func BenchmarkLargeResult(b *testing.B) {
	const size, rounds = 256 << 20, 7
	f := startJobs(b)
	events := f.complete(1, size)
	var object []byte // what is read into has its memory after the first round
	for range b.N {
		var ratios, withTransfer []float64
		for round := range rounds + 1 {
			dir := b.TempDir()
			begun := time.Now()
			var err error
			if object, err = f.get(events[0].id, object); err != nil {
				b.Fatal(err)
			}
			transfer := time.Since(begun)
			begun = time.Now()
			if err := f.keep(dir, events[0].id, object); err != nil {
				b.Fatal(err)
			}
			parts := time.Since(begun)
			_ = os.RemoveAll(dir) // its pages are for the next file
			ours := settleAll(b, Options{Fetcher: f.client}, f.judge(events))
			if round > 0 {
				ratios = append(ratios, ours.Seconds()/parts.Seconds())
				withTransfer = append(withTransfer, ours.Seconds()/(transfer+parts).Seconds())
			}
		}
		b.ReportMetric(median(ratios), "ratio")
		b.ReportMetric(median(withTransfer), "ratio-with-transfer")
	}
}

// BenchmarkAdmitSigned compares a signed event that is verified and admitted in a batch of 256 with one whose HMAC is computed
// and that is appended to a file and synced.
func BenchmarkAdmitSigned(b *testing.B) {
	const batches, batch = 21, 256
	f := startJobs(b)
	events := f.complete(batches*batch, 1)
	for range b.N {
		a := benchAgent(b, Options{Fetcher: f.client})
		var admitted, appended []float64
		for len(events) > len(appended) {
			some := events[len(appended):][:batch]
			begun := time.Now()
			if _, err := a.Admit(b.Context(), f.judge(some)); err != nil {
				b.Fatal(err)
			}
			admitted = append(admitted, float64(time.Since(begun).Nanoseconds())/batch)
			appended = append(appended, f.append(some)...)
		}
		ours, plain := median(admitted), median(appended)
		b.ReportMetric(ours, "ns/event")
		b.ReportMetric(plain, "ns/append-fsync")
		b.ReportMetric(plain/ours, "admissions/append-fsync")
		for _, err := range []error{a.Folder.Close(), a.Ledger.Close()} {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// benchJobs is a Fetcher, with what the agent and the bare sequence know of it.
type benchJobs struct {
	*sandbox.Fetcher
	b         *testing.B
	client    *fetcher.Fetcher
	http      *http.Client
	mac, seal []byte // keys
}

// benchEvent is a job's event as RabbitMQ delivers it.
type benchEvent struct {
	hub.AMQPMessage
	id string
}

func startJobs(b *testing.B) *benchJobs {
	b.Helper()
	f := &benchJobs{b: b, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchWorkers}}}
	var errs [4]error
	f.Fetcher, errs[0] = sandbox.StartFetcher(b.Context(), sandbox.FetcherOptions{})
	if errs[0] != nil {
		b.Fatal(errs[0])
	}
	f.client, errs[1] = fetcher.New(rest.DefaultConfig(), sectionOf([]*sandbox.Fetcher{f.Fetcher}), rest.Options{})
	f.mac, errs[2] = hex.DecodeString(f.ExternalKeyHex())
	f.seal, errs[3] = hex.DecodeString(f.StorageKeyHex())
	if err := errors.Join(errs[:]...); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		f.client.Close()
		f.http.CloseIdleConnections()
		f.Close()
	})
	return f
}

// complete runs n jobs with results of a size.
func (f *benchJobs) complete(n int, size int64) (events []benchEvent) {
	f.b.Helper()
	for range n {
		job, err := f.Run(f.b.Context(), sandbox.Job{Size: size})
		if err != nil {
			f.b.Fatal(err)
		}
		m, err := f.Message(job.ID, sandbox.Emission{})
		if err != nil {
			f.b.Fatal(err)
		}
		events = append(events, benchEvent{asReceived(m), job.ID})
	}
	return events
}

// judge verifies messages.
func (f *benchJobs) judge(events []benchEvent) (deliveries []hub.Delivery) {
	for _, e := range events {
		deliveries = append(deliveries, f.client.Delivery(e.AMQPMessage))
	}
	return deliveries
}

// bare is the limit: what no agent can do without, and nothing else.
func (f *benchJobs) bare(events []benchEvent) time.Duration {
	f.b.Helper()
	dir := f.b.TempDir()
	work := make(chan string)
	var wg sync.WaitGroup
	begun := time.Now()
	for range benchWorkers {
		wg.Go(func() {
			for id := range work {
				if err := f.bareJob(dir, id); err != nil {
					f.b.Error(err)
				}
			}
		})
	}
	for _, e := range events {
		work <- e.id
	}
	close(work)
	wg.Wait()
	return time.Since(begun)
}

func (f *benchJobs) bareJob(dir, id string) error {
	if _, err := f.ask(http.MethodHead, id, nil); err != nil {
		return err
	}
	object, err := f.get(id, nil)
	if err != nil {
		return err
	}
	return f.keep(dir, id, object)
}

// get reads an object, into what is given where that is large enough.
func (f *benchJobs) get(id string, into []byte) ([]byte, error) {
	return f.ask(http.MethodGet, id, into)
}

func (f *benchJobs) ask(method, id string, into []byte) ([]byte, error) {
	req, err := http.NewRequest(method, f.ObjectsURL()+"/"+f.Bucket()+"/"+f.Key(id), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+f.AccessKey()+"/") // the sandbox checks no more of it
	resp, err := f.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", id, resp.Status)
	}
	if method == http.MethodHead {
		return nil, nil
	}
	into = slices.Grow(into[:0], int(resp.ContentLength))[:resp.ContentLength]
	_, err = io.ReadFull(resp.Body, into)
	return into, err
}

// keep opens an object in place, computes its HMAC and makes it a file.
func (f *benchJobs) keep(dir, id string, object []byte) error {
	n, err := base64.StdEncoding.Decode(object, object)
	if err != nil {
		return err
	}
	block, err := aes.NewCipher(f.seal)
	if err != nil {
		return err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return err
	}
	nonce, sealed := object[:gcm.NonceSize()], object[gcm.NonceSize():n]
	plaintext, err := gcm.Open(sealed[:0], nonce, sealed, nil)
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, f.mac)
	mac.Write(plaintext)
	mac.Sum(nil)
	return bareFile(dir, id, func(w io.Writer) error {
		_, err := w.Write(plaintext)
		return err
	})
}

// append is the bare admission of events, one by one; it returns nanoseconds.
func (f *benchJobs) append(events []benchEvent) (times []float64) {
	f.b.Helper()
	file, err := os.OpenFile(filepath.Join(f.b.TempDir(), "events"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		f.b.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, e := range events {
		begun := time.Now()
		mac := hmac.New(sha256.New, f.mac)
		for _, line := range []string{"t", "signature-version", "X-Tenant-ID"} {
			mac.Write([]byte(strings.Join(e.Headers[line], "") + "\n"))
		}
		mac.Write([]byte(e.id + "\n" + e.Exchange + "\n" + e.RoutingKey + "\n"))
		mac.Write(e.Body)
		if got := hex.EncodeToString(mac.Sum(nil)); got != e.Headers["x-message-signature"][0] {
			f.b.Fatalf("signed with %s, not %s", e.Headers["x-message-signature"], got)
		}
		_, err := file.Write(append(bytes.Clone(e.Body), '\n'))
		if err := errors.Join(err, file.Sync()); err != nil {
			f.b.Fatal(err)
		}
		times = append(times, float64(time.Since(begun).Nanoseconds()))
	}
	return times
}
