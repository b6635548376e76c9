package fetcher

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"recibo/rest"
	"recibo/setting"
)

// connect runs a Fetcher for the length of the test, and a client of it.
func connect(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := NewClient(rest.Config{Proxy: "none"}, Config{URL: server.URL, Token: setting.NewSecret("bearer")},
		rest.Options{ProbeBase: time.Millisecond, ProbeCap: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// describe asks once.
func describe(t *testing.T, c *Client, id string) (*Job, error) {
	t.Helper()
	if err := c.Acquire(t.Context(), rest.Get); err != nil {
		t.Fatal(err)
	}
	return c.Job(t.Context(), id)
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestAJobIsDescribed(t *testing.T) {
	t.Parallel()
	const metadata = `{"source":"reporter","correlationId":"c-42","error":"no such host"}`
	body := `{"id":"` + jobID + `","status":"COMPLETED","mappedFields":{"a":{"b":["c"]}},"metadata":` + metadata +
		`,"resultPath":"external-data/x.json","resultHmac":"` + keyA + `","createdAt":"2026-06-24T11:59:58Z","completedAt":"2026-06-24T12:00:00.1Z"}`
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/fetcher/"+jobID || r.Method != http.MethodGet || r.Header.Get("Authorization") != "Bearer bearer" {
			t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
		}
		says(200, body)(w, r)
	})
	job, err := describe(t, c, jobID)
	if err != nil {
		t.Fatal(err)
	}
	if job.ID != jobID || job.Status != Completed || string(job.Metadata) != metadata || job.Error != "no such host" ||
		job.CreatedAt != "2026-06-24T11:59:58Z" || job.CompletedAt != "2026-06-24T12:00:00.1Z" {
		t.Errorf("%+v", job)
	}
	if want := (Result{Path: "external-data/x.json", SizeBytes: SizeUnknown, Format: "json", HMAC: keyA}); job.Result() != want {
		t.Errorf("%+v", job.Result())
	}
}

func TestAStatusOfALaterVersionIsTolerated(t *testing.T) {
	t.Parallel()
	c := connect(t, says(200, `{"id":"`+strings.ToUpper(jobID)+`","status":"queued","metadata":null,"resultPath":null}`))
	if job, err := describe(t, c, jobID); err != nil || job.Status != "queued" || job.Metadata != nil || job.ResultPath != "" {
		t.Errorf("%+v, %v", job, err)
	}
}

func TestAnswersSayWhoseTroubleItIs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status  int
		body    string
		kind    rest.Kind
		unknown bool
	}{
		{404, `{"code":"FET-1001","title":"Not Found"}`, rest.Refused, true},
		{404, `404 page not found`, rest.Malformed, false},
		{404, `{"code":"OTHER"}`, rest.Malformed, false},
		{400, `{"code":"FET-0404"}`, rest.Refused, false},
		{401, `Missing Token`, rest.Auth, false},
		{403, `{"code":"FET-1001"}`, rest.Auth, false},
		{429, `{"code":"FET-1001"}`, rest.Limited, false},
		{500, `{"code":"FET-1001"}`, rest.Server, false},
		{503, ``, rest.Server, false},
		{200, `{"id":"1` + jobID[1:] + `","status":"failed"}`, rest.Malformed, false},
		{200, `{"id":"` + jobID + `"}`, rest.Malformed, false},
		{200, `{"id":"../x","status":"failed"}`, rest.Malformed, false},
		{200, `<html>`, rest.Malformed, false},
	} {
		t.Run(fmt.Sprintf("%d %s", test.status, test.body), func(t *testing.T) {
			t.Parallel()
			_, err := describe(t, connect(t, says(test.status, test.body)), jobID)
			var e *rest.Error
			if !errors.As(err, &e) || e.Kind != test.kind || Unknown(err) != test.unknown {
				t.Errorf("got %v, unknown %v", err, Unknown(err))
			}
		})
	}
}

func TestIdsThatAreNoUUIDsAreNeverSent(t *testing.T) {
	t.Parallel()
	c := connect(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent %s", r.URL) })
	for _, bad := range []string{"", ".", "x", "../" + jobID[3:], jobID + "0", jobID[:35] + "/", jobID[:35] + "\n", jobID[:35] + "g",
		strings.ReplaceAll(jobID, "-", "0"), strings.Repeat("-", 36), jobID[:34] + "é"} {
		_, err := describe(t, c, bad)
		var e *rest.Error
		if !errors.As(err, &e) || e.Kind != rest.Refused || !errors.Is(err, ErrID) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func TestWithoutAnAddressThereIsNoClient(t *testing.T) {
	t.Parallel()
	if c, err := NewClient(rest.DefaultConfig(), DefaultConfig(), rest.Options{}); c != nil || err != nil {
		t.Errorf("%v, %v", c, err)
	}
}
