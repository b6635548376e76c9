package sandbox

import (
	"context"
	"errors"
	"net/http"
	"testing"
)

func TestAReporterThatIsUnavailable(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{ClientID: "client", ClientSecret: "secret"})
	r.Down(Unavailable)
	for _, path := range []string{"/v1/reports", "/v1/reports/x", "/v1/reports/x/download", "/health"} {
		fetch(t, r.URL()+path).want(t, 503, "")
	}
	askToken(t, r, "client", "secret").want(t, 503, "")
	r.Down(Up)
	newToken(t, r)
	if n := r.Requests(); n.WhileDown != 5 || n.Lists+n.Gets+n.Downloads != 0 || n.Tokens != 1 {
		t.Errorf("counted %+v", n)
	}
}

func TestAReporterThatKnowsNoTokenAnyMore(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{ClientID: "client", ClientSecret: "secret"})
	r.Down(Unauthorised)
	for range 2 {
		fetch(t, r.URL()+"/v1/reports", "Authorization", "Bearer "+newToken(t, r)).want(t, 401, "")
	}
	r.Down(Up)
	fetch(t, r.URL()+"/v1/reports", "Authorization", "Bearer "+newToken(t, r)).want(t, 200, "")
	if n := r.Requests(); n.WhileDown != 2 || n.Unauthorised != 2 {
		t.Errorf("counted %+v", n)
	}
}

func TestAReporterThatRefusesConnections(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	client := http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func() error {
		response, err := client.Get(r.URL() + "/health")
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	r.Down(Refuse)
	for range 3 { // the first on the connection that was open
		if err := get(); err == nil {
			t.Fatal("answered while it refuses")
		}
	}
	if n := r.Requests().WhileDown; n < 2 {
		t.Errorf("%d connections counted", n)
	}
	r.Down(Up)
	if err := get(); err != nil {
		t.Errorf("after it is up again: %v", err)
	}
}

func TestRefusingBreaksADownloadInProgress(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	id := r.Add(Report{Size: 1 << 30}).ID
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, r.download(id), nil)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	r.Down(Refuse)
	buffer := make([]byte, 1<<20)
	for err == nil {
		_, err = response.Body.Read(buffer)
	}
	if n := r.Requests(); n.DownloadsCompleted != 0 || n.DownloadsStarted != 1 {
		t.Errorf("counted %+v after %v", n, err)
	}
}

func TestASilentReporter(t *testing.T) {
	t.Parallel()
	r := openReporter(t, ReporterOptions{})
	r.Down(Silent)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gone := make(chan reply)
	stays := make(chan reply)
	for ctx, answers := range map[context.Context]chan reply{ctx: gone, t.Context(): stays} {
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.URL()+"/v1/reports", nil)
		go func() { answers <- send(t, request) }()
	}
	eventually(t, "both requests arrive", func() bool { return r.Requests().WhileDown == 2 })
	cancel()
	if got := <-gone; !errors.Is(got.err, context.Canceled) {
		t.Errorf("got %d, error %v", got.status, got.err)
	}
	r.Down(Up)
	if got := <-stays; got.err == nil {
		t.Errorf("a request of the silent time was answered %d", got.status)
	}
	fetch(t, r.URL()+"/v1/reports").want(t, 200, "")
}
