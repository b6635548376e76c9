package agent

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"recibo/downloads"
	"recibo/hub"
	"recibo/reporter"
	"recibo/rest"
	"recibo/sandbox"
	"recibo/store"
)

const (
	benchRounds  = 3
	benchReports = 600
	benchWorkers = 8
)

// BenchmarkDurableReports compares bringing home 64 KiB reports, from admission to settled receipt, with the bare
// sequence in plain Go at the same number of workers: GET report, GET download, write, fsync, rename, fsync folder.
func BenchmarkDurableReports(b *testing.B) {
	sb := startReporter(b)
	ids := make([]string, benchReports)
	for i := range ids {
		ids[i] = sb.Reporter.Add(sandbox.Report{Format: "pdf", Size: 64 << 10, Status: sandbox.Finished, CompletedAt: time.Now()}).ID
		sb.Reporter.Sum(ids[i])
	}
	for range b.N {
		var ratios []float64
		var ours time.Duration
		for range benchRounds {
			bare := bareSequence(b, sb.ReporterURL(), ids)
			ours = throughAgent(b, sb.ReporterURL(), ids)
			ratios = append(ratios, bare.Seconds()/ours.Seconds())
		}
		b.ReportMetric(median(ratios), "of-bare")
		b.ReportMetric(float64(len(ids))/ours.Seconds(), "reports/s")
	}
}

// BenchmarkLargeReport compares one large report, hashed and settled, with a plain copy of the same body and fsync.
func BenchmarkLargeReport(b *testing.B) {
	const size = 512 << 20
	sb := startReporter(b)
	id := sb.Reporter.Add(sandbox.Report{Format: "pdf", Size: size, Status: sandbox.Finished, CompletedAt: time.Now()}).ID
	for range b.N {
		var ratios []float64
		for range benchRounds {
			plain := plainCopy(b, sb.ReporterURL(), id)
			ours := throughAgent(b, sb.ReporterURL(), []string{id})
			ratios = append(ratios, plain.Seconds()/ours.Seconds())
		}
		b.ReportMetric(median(ratios), "of-plain")
		b.SetBytes(size)
	}
}

func startReporter(b *testing.B) *sandbox.Sandbox {
	sb, err := sandbox.Start(context.Background(), sandbox.Options{NoHub: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(sb.Close)
	return sb
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// bareSequence is the limit: what no agent can do without, and nothing else.
func bareSequence(b *testing.B, url string, ids []string) time.Duration {
	dir := b.TempDir()
	work := make(chan string)
	var wg sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchWorkers}}
	begun := time.Now()
	for range benchWorkers {
		wg.Go(func() {
			for id := range work {
				if err := bareReport(client, url, dir, id); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for _, id := range ids {
		work <- id
	}
	close(work)
	wg.Wait()
	took := time.Since(begun)
	client.CloseIdleConnections()
	return took
}

func bareReport(client *http.Client, url, dir, id string) error {
	if err := get(client, url+"/v1/reports/"+id, io.Discard); err != nil {
		return err
	}
	return bareDownload(client, url, dir, id)
}

func bareDownload(client *http.Client, url, dir, id string) error {
	return bareFile(dir, id, func(w io.Writer) error { return get(client, url+"/v1/reports/"+id+"/download", w) })
}

// bareFile makes a file in the order that survives a loss of power.
func bareFile(dir, name string, write func(io.Writer) error) error {
	staged := filepath.Join(dir, name+".part")
	f, err := os.Create(staged)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(staged, filepath.Join(dir, name)); err != nil {
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := folder.Sync(); err != nil {
		return err
	}
	return folder.Close()
}

func get(client *http.Client, url string, w io.Writer) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, resp.Body, make([]byte, 256<<10))
	return err
}

func plainCopy(b *testing.B, url, id string) time.Duration {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	begun := time.Now()
	if err := bareDownload(client, url, b.TempDir(), id); err != nil {
		b.Fatal(err)
	}
	return time.Since(begun)
}

// throughAgent admits one event for each report and waits until every receipt is settled.
func throughAgent(b *testing.B, url string, ids []string) time.Duration {
	rc := reporter.DefaultConfig()
	rc.URL = url
	client, err := reporter.New(rest.DefaultConfig(), rc, rest.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	deliveries := make([]hub.Delivery, len(ids))
	for i, id := range ids {
		deliveries[i] = hub.Delivery{Event: hub.Event{ID: "event-" + id, Name: hub.ReportFinished, ReportID: id}, Transport: "bench"}
	}
	return settleAll(b, Options{Reporter: client}, deliveries)
}

// settleAll has a new agent bring home what is delivered, and returns how long that took from the first admission on.
func settleAll(b *testing.B, o Options, deliveries []hub.Delivery) time.Duration {
	b.Helper()
	a := benchAgent(b, o)
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.Work(ctx); err != nil {
			b.Error(err)
		}
	})
	<-a.Started()
	begun := time.Now()
	asked := map[store.Key]uint64{}
	for batch := range slices.Chunk(deliveries, 256) {
		for _, d := range batch {
			asked[a.admission(d).Receipt] = 1
		}
		if _, err := a.Admit(ctx, batch); err != nil {
			b.Fatal(err)
		}
	}
	err := a.Wait(ctx, asked, false, func(r *store.Receipt) error {
		if r.State != store.Delivered {
			return fmt.Errorf("%s is %s: %s", r.ID, r.State, r.Reason)
		}
		return nil
	})
	took := time.Since(begun)
	if err != nil {
		b.Fatal(err)
	}
	stop()
	wg.Wait()
	for _, err := range []error{a.Folder.Close(), a.Ledger.Close(), os.RemoveAll(filepath.Dir(a.Folder.Dir()))} {
		if err != nil {
			b.Fatal(err)
		}
	}
	return took
}

// benchAgent is an agent with a new ledger and folder.
func benchAgent(b *testing.B, o Options) *Agent {
	b.Helper()
	dir := b.TempDir()
	var err error
	if o.Ledger, err = store.Open(filepath.Join(dir, "recibo.db"), store.Options{Create: true}); err != nil {
		b.Fatal(err)
	}
	c := downloads.DefaultConfig()
	c.Dir, c.MinFree = filepath.Join(dir, "downloads"), 0
	if o.Folder, err = downloads.Open(c, downloads.Options{Owner: o.Ledger.InstanceID(), Create: true}); err != nil {
		b.Fatal(err)
	}
	o.Config, o.Log = DefaultConfig(), slog.New(slog.DiscardHandler)
	o.Config.Workers = benchWorkers
	return New(o)
}

// BenchmarkHash is the part of a large report that no arrangement can avoid.
func BenchmarkHash(b *testing.B) {
	block := make([]byte, 256<<10)
	b.SetBytes(int64(len(block)))
	hash := sha256.New()
	for range b.N {
		hash.Write(block)
	}
}
