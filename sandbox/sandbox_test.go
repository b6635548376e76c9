package sandbox

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open starts a sandbox that ends with the test.
func open(t testing.TB, o Options) *Sandbox {
	t.Helper()
	s, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// openReporter starts a Reporter alone.
func openReporter(t testing.TB, o ReporterOptions) *Reporter {
	t.Helper()
	return open(t, Options{NoHub: true, Reporter: o}).Reporter
}

// reply is an answer as a plain client saw it.
type reply struct {
	status int
	header http.Header
	length int64 // as announced, -1 unknown
	close  bool
	body   string
	err    error // before the header, or while the body was read
}

// fetch asks with a client that adds nothing of its own; pairs are header names and values.
func fetch(t testing.TB, url string, pairs ...string) reply {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		request.Header.Set(pairs[i], pairs[i+1])
	}
	return send(t, request)
}

func send(t testing.TB, request *http.Request) reply {
	t.Helper()
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return reply{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, response.ContentLength, response.Close, string(body), err}
}

// want fails the test unless the answer has the status and its body contains the text.
func (r reply) want(t testing.TB, status int, text string) {
	t.Helper()
	if r.err != nil || r.status != status || !strings.Contains(r.body, text) {
		t.Fatalf("got %d %.200q, error %v; want %d with %q", r.status, r.body, r.err, status, text)
	}
	if r.header.Get("X-Request-Id") == "" {
		t.Error("no X-Request-Id")
	}
}

func (r *Reporter) download(id string) string { return r.URL() + "/v1/reports/" + id + "/download" }

// file is the bytes that a report's download must give.
func file(t testing.TB, r *Reporter, id string) string {
	t.Helper()
	data, err := io.ReadAll(r.Content(id))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestCloseEndsRequestsInProgressAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	s, err := Start(context.Background(), Options{Reporter: ReporterOptions{}})
	if err != nil {
		t.Fatal(err)
	}
	id := s.Reporter.Add(Report{Faults: []Fault{{Kind: Hang}}}).ID
	done := make(chan error, 1)
	go func() {
		client := http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		response, err := client.Get(s.Reporter.download(id))
		if err == nil {
			response.Body.Close()
			err = errors.New("answered")
		}
		done <- err
	}()
	eventually(t, "the request arrives", func() bool { return s.Reporter.Requests().Downloads == 1 })
	s.Close()
	s.Close()
	if _, err := os.Stat(s.temporary); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary folder is left: %v", err)
	}
	if err := <-done; err == nil || err.Error() == "answered" {
		t.Errorf("the hanging request ended with %v", err)
	}
}

func TestStartFailsOnAnAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	s := open(t, Options{NoHub: true})
	address := strings.TrimPrefix(s.ReporterURL(), "http://")
	if other, err := Start(t.Context(), Options{NoHub: true, Reporter: ReporterOptions{Listen: address}}); err == nil {
		other.Close()
		t.Fatal("started on a taken address")
	}
	if s.NATSURL() != "" {
		t.Errorf("a Hub at %q without a Hub", s.NATSURL())
	}
}
