package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// verified is what a consumer checks of an event, in the words of the contract.
func verified(f *Fetcher, m Message, now time.Time) bool {
	var body struct{ JobID, Status string }
	if json.Unmarshal(m.Body, &body) != nil {
		return false
	}
	text := func(name string) string { value, _ := m.Headers[name].(string); return value }
	raw := func(name string) string { value, _ := m.Headers[name].([]byte); return string(value) }
	at, err := strconv.ParseInt(text("t"), 10, 64)
	signed := signedEnvelope{at, text("signature-version"), text("X-Tenant-ID"), body.JobID, m.Exchange, m.RoutingKey}
	return err == nil && at < now.Add(time.Hour).Unix() && text("signature-version") == "v1" &&
		text("x-message-signature") == signed.sign(f.keys.external, m.Body) &&
		raw("ce-id") == "fetcher.job."+body.Status+"."+body.JobID && m.RoutingKey == "job."+body.Status &&
		raw("ce-tenantid") == text("X-Tenant-ID")
}

func TestOnlyGenuineEventsVerify(t *testing.T) {
	t.Parallel()
	f, _ := openFetcher(t, FetcherOptions{})
	completed, failed := run(t, f, Job{}).ID, run(t, f, Job{Status: JobFailed}).ID
	for _, id := range []string{completed, failed} {
		for _, forgery := range append(forgeries[:], Genuine) {
			message, err := f.Message(id, Emission{Forge: forgery})
			if err != nil {
				t.Fatal(err)
			}
			if verified(f, message, time.Now()) != (forgery == Genuine) {
				t.Errorf("forgery %d of %s: %s %v", forgery, id, message.Body, message.Headers)
			}
			if !json.Valid(message.Body) {
				t.Errorf("forgery %d: %s", forgery, message.Body)
			}
			if message.Exchange != f.Exchange() {
				t.Errorf("forgery %d is published to %s, where nobody meets it", forgery, message.Exchange)
			}
		}
	}
}

func TestAnEmissionIsSignedAnewOrReplayed(t *testing.T) {
	t.Parallel()
	f, sent := openFetcher(t, FetcherOptions{})
	id := run(t, f, Job{}).ID
	old := time.Now().Add(-72 * time.Hour)
	for _, e := range []Emission{{At: old}, {Forge: WrongKey}, {SameBytes: true}} {
		if err := f.Emit(t.Context(), id, e); err != nil {
			t.Fatal(err)
		}
	}
	first, again, replay := sent.messages[0], sent.messages[1], sent.messages[3]
	if !bytes.Equal(first.Body, again.Body) || !bytes.Equal(first.Headers["ce-id"].([]byte), again.Headers["ce-id"].([]byte)) {
		t.Error("an emission has another body or ce-id than the first")
	}
	for _, name := range []string{"t", "x-message-signature", "X-Request-Id", "ce-time", "traceparent"} {
		if reflect.DeepEqual(first.Headers[name], again.Headers[name]) {
			t.Errorf("%s is the same on the second emission", name)
		}
	}
	if again.Headers["t"] != strconv.FormatInt(old.Unix(), 10) || !verified(f, again, time.Now()) {
		t.Errorf("headers %v", again.Headers)
	}
	if !reflect.DeepEqual(again, replay) {
		t.Error("the replay differs from the last genuine emission")
	}
}

func TestAnEmissionMayBeBentAtWill(t *testing.T) {
	t.Parallel()
	f, _ := openFetcher(t, FetcherOptions{})
	id := run(t, f, Job{}).ID
	message, err := f.Message(id, Emission{
		Exchange: "elsewhere", RoutingKey: "job.completed.more",
		Body:    func(body []byte) []byte { return bytes.Replace(body, []byte("HMAC-SHA256"), []byte("none"), 1) },
		Headers: map[string]any{"ce-source": []byte("//other"), "X-Tenant-ID": nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	signed := signedEnvelope{unix(t, message), "v1", "single-tenant", id, "elsewhere", "job.completed.more"}
	if message.Headers["x-message-signature"] != signed.sign(f.keys.external, message.Body) {
		t.Error("an order of the test is not signed")
	}
	if _, ok := message.Headers["X-Tenant-ID"]; ok || string(message.Headers["ce-source"].([]byte)) != "//other" ||
		!strings.Contains(string(message.Body), `"algorithm":"none"`) {
		t.Errorf("message %v %s", message.Headers, message.Body)
	}
}

func unix(t *testing.T, m Message) int64 {
	t.Helper()
	at, err := strconv.ParseInt(m.Headers["t"].(string), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestWhatCannotBeEmitted(t *testing.T) {
	t.Parallel()
	f, sent := openFetcher(t, FetcherOptions{})
	running := run(t, f, Job{Status: JobProcessing}).ID
	silent := run(t, f, Job{NoEvent: true}).ID
	if err := f.Emit(t.Context(), "unknown", Emission{}); !errors.Is(err, ErrUnknownJob) {
		t.Errorf("unknown: %v", err)
	}
	if err := f.Emit(t.Context(), running, Emission{}); !errors.Is(err, errNotEnded) {
		t.Errorf("in progress: %v", err)
	}
	if err := f.Emit(t.Context(), silent, Emission{SameBytes: true}); err == nil {
		t.Error("a replay of nothing")
	}
	if len(sent.messages) != 0 {
		t.Errorf("%d messages", len(sent.messages))
	}
}

func TestMetadataGoesBackUnchanged(t *testing.T) {
	t.Parallel()
	f, _ := openFetcher(t, FetcherOptions{})
	for _, c := range []struct {
		job  Job
		want string
	}{
		{Job{Metadata: map[string]any{"a": []int{1}, "source": "x"}}, `"metadata":{"a":[1],"source":"x"}`},
		{Job{Metadata: map[string]any{}}, `"metadata":{}`},
		{Job{Status: JobFailed, Metadata: map[string]any{}, Error: "no"}, `"metadata":{"error":{"message":"no"}},"status":"failed"}`},
		{Job{Rows: -1, Took: 1}, `"sizeBytes":2,"format":"json"`},
	} {
		job := run(t, f, c.job)
		message, err := f.Message(job.ID, Emission{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(message.Body), c.want) || strings.Contains(string(message.Body), `executionTimeMs":0`) {
			t.Errorf("body %s, want %s", message.Body, c.want)
		}
	}
}
