package sandbox

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// vectors were made by a running Fetcher 2.0.2.
type vectors struct {
	Events []struct {
		Name, Exchange, RoutingKey, Body string
		JobID                            string `json:"jobId"`
		Timestamp                        int64
		Signature                        string
		StringHeaders, ByteArrayHeaders  map[string]string
		Int32Headers                     map[string]int32
		Valid                            bool
	}
	Keys, KeysLongMaster vectorKeys
	Legacy               struct {
		Body, RoutingKey, Signature string
		Timestamp                   int64
	}
	Result struct {
		HMAC, NonceHex, Plaintext, StoredObject string
	}
}

type vectorKeys struct {
	MasterKeyBase64, InternalHmacKeyHex, ExternalHmacKeyHex, StorageEncryptionKeyHex string
}

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	data, err := os.ReadFile("testdata/fetcher.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func (k vectorKeys) derived(t *testing.T) fetcherKeys {
	t.Helper()
	master, err := base64.StdEncoding.DecodeString(k.MasterKeyBase64)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := deriveKeys(master)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestKeysAreDerivedAsInTheVectors(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	for _, want := range []vectorKeys{v.Keys, v.KeysLongMaster} {
		keys := want.derived(t)
		got := [3]string{hex.EncodeToString(keys.external), hex.EncodeToString(keys.internal), hex.EncodeToString(keys.storage)}
		if got != [3]string{want.ExternalHmacKeyHex, want.InternalHmacKeyHex, want.StorageEncryptionKeyHex} {
			t.Errorf("master key %s gives %v", want.MasterKeyBase64, got)
		}
	}
	if _, err := deriveKeys(make([]byte, 31)); err == nil {
		t.Error("a short master key is taken")
	}
}

// vectorJob is the job that the vectors are about.
func vectorJob(v vectors) Job {
	return Job{
		ID: v.Events[0].JobID, Size: 403, Rows: 2, Took: 1234 * time.Millisecond,
		Metadata:    map[string]any{"source": "reporter", "correlationId": "c-42"},
		Error:       "dial tcp [redacted] connect: connection refused",
		CompletedAt: time.Date(2026, 6, 24, 12, 0, 0, 123456789, time.UTC),
	}
}

func TestEventsAreThoseOfTheVectors(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	forged := map[string]Forgery{
		"completed-single-tenant": Genuine, "completed-multi-tenant": Genuine, "failed-single-tenant": Genuine,
		"bad-body-tampered": TamperBody, "bad-routing-key": OtherRoutingKey, "bad-timestamp": OtherTime,
		"bad-version": WrongVersion, "bad-key-internal": WrongKey, "bad-legacy-payload": LegacyForm,
	}
	seen := 0
	for _, want := range v.Events {
		forgery, ok := forged[want.Name]
		if !ok {
			continue // told of by another exchange or tenant than this Fetcher's own
		}
		seen++
		t.Run(want.Name, func(t *testing.T) {
			tenant := ""
			if want.Name == "completed-multi-tenant" {
				tenant = "org_01ABC"
			}
			f := &Fetcher{options: FetcherOptions{Tenant: tenant}.complete(), keys: v.Keys.derived(t)}
			job := vectorJob(v)
			status := want.ByteArrayHeaders["ce-eventtype"]
			body, err := job.body(status, f.path(job.ID), v.Result.HMAC)
			if err != nil {
				t.Fatal(err)
			}
			f.jobs = map[string]*jobRecord{job.ID: {Job: job, content: newJobContent(1, 1, 0)}}
			got, err := f.Message(job.ID, Emission{
				Status: status, Forge: forgery, At: job.CompletedAt, Body: func([]byte) []byte { return body },
			})
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Body) != want.Body {
				t.Errorf("body\n%s\nwant\n%s", got.Body, want.Body)
			}
			if got.Exchange != want.Exchange || got.RoutingKey != want.RoutingKey || got.ContentType != "application/json" || got.DeliveryMode != 2 {
				t.Errorf("published to %s by %s: %+v", got.Exchange, got.RoutingKey, got.Publishing)
			}
			// Each emission has its own request id and trace; the vectors show none of the trace.
			for _, own := range []string{"X-Request-Id", "Traceparent", "traceparent"} {
				if got.Headers[own] == nil {
					t.Errorf("no %s", own)
				}
				delete(got.Headers, own)
				delete(want.StringHeaders, own)
			}
			if diff := cmp.Diff(tableOf(want.StringHeaders, want.ByteArrayHeaders, want.Int32Headers), map[string]any(got.Headers)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if seen != len(forged) {
		t.Errorf("%d vectors of %d", seen, len(forged))
	}
}

func tableOf(text, raw map[string]string, numbers map[string]int32) map[string]any {
	table := map[string]any{}
	for name, value := range text {
		table[name] = value
	}
	for name, value := range raw {
		table[name] = []byte(value)
	}
	for name, value := range numbers {
		table[name] = value
	}
	return table
}

func TestLegacyEventsAreThoseOfTheVectors(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	job := vectorJob(v)
	job.Legacy, job.Metadata = true, map[string]any{"source": "reporter"}
	f := &Fetcher{options: FetcherOptions{}.complete(), keys: v.Keys.derived(t)}
	body, err := job.body(JobCompleted, f.path(job.ID), v.Result.HMAC)
	if err != nil {
		t.Fatal(err)
	}
	if string(body) != v.Legacy.Body {
		t.Errorf("body\n%s\nwant\n%s", body, v.Legacy.Body)
	}
	f.jobs = map[string]*jobRecord{job.ID: {Job: job, content: newJobContent(1, 1, 0)}}
	got, err := f.Message(job.ID, Emission{
		Status: JobCompleted, At: time.Unix(v.Legacy.Timestamp, 0), Body: func([]byte) []byte { return body },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.RoutingKey != v.Legacy.RoutingKey || got.Headers["x-message-signature"] != v.Legacy.Signature {
		t.Errorf("by %s: %v", got.RoutingKey, got.Headers)
	}
	for name := range got.Headers {
		if len(name) > 3 && name[:3] == "ce-" {
			t.Errorf("Fetcher 1.x had no %s", name)
		}
	}
}

func TestObjectsAreSealedAsInTheVectors(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	keys := v.Keys.derived(t)
	nonce, err := hex.DecodeString(v.Result.NonceHex)
	if err != nil {
		t.Fatal(err)
	}
	sealed := sealInPlace(keys.storage, append(bytes.Clone(nonce), v.Result.Plaintext...))
	stored, err := io.ReadAll(newBase64Reader(sealed))
	if err != nil {
		t.Fatal(err)
	}
	if string(stored) != v.Result.StoredObject {
		t.Errorf("stored %s", stored)
	}
	if sum := hexMAC(keys.external, []byte(v.Result.Plaintext)); sum != v.Result.HMAC {
		t.Errorf("hmac %s", sum)
	}
}
