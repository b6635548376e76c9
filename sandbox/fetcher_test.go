package sandbox

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// outbox is a broker that confirms at once and keeps what it was sent.
type outbox struct {
	mu       sync.Mutex
	messages []Message
}

func (o *outbox) send(ctx context.Context, messages []Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.messages = append(o.messages, messages...)
	return ctx.Err()
}

func (o *outbox) close() {}

// openFetcher starts a Fetcher whose events go to an outbox.
func openFetcher(t testing.TB, o FetcherOptions) (*Fetcher, *outbox) {
	t.Helper()
	f, err := StartFetcher(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	sent := &outbox{}
	f.sender = sent
	return f, sent
}

func run(t testing.TB, f *Fetcher, job Job) Job {
	t.Helper()
	job, err := f.Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// opened decrypts what is stored for a job, as a consumer does.
func opened(t testing.TB, f *Fetcher, id string) ([]byte, error) {
	t.Helper()
	stored, ok := f.Objects.Get(f.Key(id))
	if !ok {
		return nil, errors.New("no object")
	}
	sealed, err := base64.StdEncoding.Strict().DecodeString(string(stored))
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(f.StorageKeyHex())
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return gcm.Open(nil, sealed[:12], sealed[12:], nil)
}

func TestResultsHaveTheirSizeAndDecrypt(t *testing.T) {
	t.Parallel()
	f, _ := openFetcher(t, FetcherOptions{Prefix: "prod/", Tenant: "org_01ABC"})
	for what, job := range map[string]Job{
		"default":        {},
		"too small":      {Size: 1},
		"odd":            {Size: 9973},
		"large":          {Size: 3<<20 + 1},
		"one row":        {Rows: 1, Size: 500_000},
		"two rows":       {Rows: 2},
		"rows and size":  {Rows: 7, Size: 10_001},
		"rows win":       {Rows: 1000, Size: 10},
		"without a row":  {Rows: -1},
		"just one table": {Rows: 1, Size: 1},
	} {
		t.Run(what, func(t *testing.T) {
			job := run(t, f, job)
			plain, err := opened(t, f, job.ID)
			if err != nil {
				t.Fatal(err)
			}
			if int64(len(plain)) != job.Size || !bytes.Equal(plain, f.Plaintext(job.ID)) {
				t.Errorf("%d bytes, %d announced", len(plain), job.Size)
			}
			size, sum := f.Sum(job.ID)
			if want := sha256.Sum256(plain); size != job.Size || sum != hex.EncodeToString(want[:]) {
				t.Errorf("sum %d %s", size, sum)
			}
			wantJSON(t, plain, max(job.Rows, 0))
			if want := "prod/org_01ABC/external-data/" + job.ID + ".json"; f.Key(job.ID) != want {
				t.Errorf("key %s", f.Key(job.ID))
			}
		})
	}
	if size, sum := f.Sum("unknown"); size != -1 || sum != "" || f.Plaintext("unknown") != nil {
		t.Error("an unknown job has a result")
	}
}

// wantJSON reads the result as data source, table, rows, and checks its indentation.
func wantJSON(t *testing.T, plain []byte, rows int64) {
	t.Helper()
	var result map[string]map[string][]struct {
		ID     int64
		Amount string
		Owner  string
	}
	if err := json.Unmarshal(plain, &result); err != nil {
		t.Fatal(err)
	}
	var found int64
	for _, tables := range result {
		for name, table := range tables {
			found += int64(len(table))
			for _, row := range table {
				if row.ID == 0 || !strings.Contains(row.Amount, ".") || row.Owner != "Ana Conceição & Cia" {
					t.Fatalf("row %+v", row)
				}
			}
			if len(table) == 0 {
				t.Errorf("table %s without rows", name)
			}
		}
	}
	if found != rows {
		t.Errorf("%d rows, %d announced", found, rows)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, plain, "", "  "); err != nil || !bytes.Equal(indented.Bytes(), plain) {
		t.Errorf("not indented as encoding/json does, error %v", err)
	}
}

func TestResultsFollowFromTheSeed(t *testing.T) {
	t.Parallel()
	one, _ := openFetcher(t, FetcherOptions{Seed: 1})
	two, _ := openFetcher(t, FetcherOptions{Seed: 2})
	job := run(t, one, Job{Seed: 7})
	run(t, two, Job{ID: job.ID, Seed: 7})
	other := run(t, two, Job{Seed: 8})
	if !bytes.Equal(one.Plaintext(job.ID), two.Plaintext(job.ID)) {
		t.Error("one seed, two results")
	}
	if bytes.Equal(two.Plaintext(job.ID), two.Plaintext(other.ID)) {
		t.Error("two seeds, one result")
	}
	if one.StorageKeyHex() == two.StorageKeyHex() || one.AccessKey() == two.AccessKey() || one.MasterKeyBase64() == two.MasterKeyBase64() {
		t.Error("two seeds, one key")
	}
}

func TestRunStoresRecordsAndPublishes(t *testing.T) {
	t.Parallel()
	f, sent := openFetcher(t, FetcherOptions{})
	for _, c := range []struct {
		job            Job
		stored, events int
	}{
		{Job{}, 1, 1},
		{Job{Status: JobFailed}, 0, 1},
		{Job{Status: JobProcessing}, 0, 0},
		{Job{Status: JobPending}, 0, 0},
		{Job{NoEvent: true}, 1, 0},
	} {
		before := len(sent.messages)
		job := run(t, f, c.job)
		if _, ok := f.Objects.Get(f.Key(job.ID)); ok != (c.stored == 1) {
			t.Errorf("%+v: stored %t", c.job, ok)
		}
		if events := len(sent.messages) - before; events != c.events {
			t.Errorf("%+v: %d events", c.job, events)
		}
		if got, ok := f.Get(job.ID); !ok || !cmp.Equal(got, job) {
			t.Errorf("recorded %+v, returned %+v", got, job)
		}
	}
	if len(f.All()) != 5 {
		t.Errorf("%d jobs", len(f.All()))
	}
}

func TestAJobMayFailAndThenComplete(t *testing.T) {
	t.Parallel()
	f, sent := openFetcher(t, FetcherOptions{})
	id := run(t, f, Job{Status: JobFailed}).ID
	run(t, f, Job{ID: id})
	if err := f.Emit(t.Context(), id, Emission{Status: JobFailed}); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, message := range sent.messages {
		keys = append(keys, message.RoutingKey+" "+string(message.Headers["ce-id"].([]byte)))
	}
	failed, completed := "job.failed fetcher.job.failed."+id, "job.completed fetcher.job.completed."+id
	if diff := cmp.Diff([]string{failed, completed, failed}, keys); diff != "" {
		t.Error(diff)
	}
	if all := f.All(); len(all) != 1 || all[0].Status != JobCompleted {
		t.Errorf("jobs %+v", all)
	}
}

func TestTheRESTAPIAnswersAsTheContractSays(t *testing.T) {
	t.Parallel()
	f, _ := openFetcher(t, FetcherOptions{})
	get := func(id string) reply { return fetch(t, f.URL()+"/v1/fetcher/"+id) }

	completed := run(t, f, Job{Metadata: map[string]any{"correlationId": "c-1"}})
	var job map[string]any
	answer := get(completed.ID)
	answer.want(t, http.StatusOK, `"status":"completed"`)
	if err := json.Unmarshal([]byte(answer.body), &job); err != nil {
		t.Fatal(err)
	}
	sum := hexMAC(f.keys.external, f.Plaintext(completed.ID))
	if job["id"] != completed.ID || job["resultPath"] != "external-data/"+completed.ID+".json" || job["resultHmac"] != sum ||
		job["createdAt"] == nil || job["completedAt"] == nil || job["mappedFields"] == nil {
		t.Errorf("job %v", job)
	}
	failed := run(t, f, Job{Status: JobFailed, Error: "schema does not fit"})
	get(failed.ID).want(t, http.StatusOK, `"metadata":{"error":"schema does not fit","source":"reporter"}`)
	running := run(t, f, Job{Status: JobProcessing})
	if answer := get(running.ID); strings.Contains(answer.body, "completedAt") || strings.Contains(answer.body, "resultPath") {
		t.Errorf("a job in progress: %s", answer.body)
	}
	if !f.Set(running.ID, func(j *Job) { j.Status = JobCompleted }) || f.Set("unknown", func(*Job) {}) {
		t.Error("Set knows other jobs than were run")
	}
	get(running.ID).want(t, http.StatusOK, `"status":"completed"`)

	unknown := newID()
	get(unknown).want(t, http.StatusNotFound, `"code":"FET-1001"`)
	get("not-an-id").want(t, http.StatusBadRequest, `"code":"FET-0404"`)
	fetch(t, f.URL()+"/v1/fetcher").want(t, http.StatusNotFound, "Not Found") // there is no list
	if asked := f.Requests(); asked[running.ID] != 2 || asked[unknown] != 1 || asked[failed.ID] != 1 {
		t.Errorf("asked %v", asked)
	}
}

func TestTheRESTAPIAsksForItsToken(t *testing.T) {
	t.Parallel()
	f, _ := openFetcher(t, FetcherOptions{Token: "a.b.c", ClientID: "id", ClientSecret: "secret"})
	url := f.URL() + "/v1/fetcher/" + run(t, f, Job{}).ID
	for _, c := range []struct {
		token  string
		status int
		text   string
	}{
		{"", http.StatusUnauthorized, "Missing Token"},
		{"Bearer x.y.z", http.StatusUnauthorized, "Unauthorized"},
		{"Bearer a.b.c", http.StatusOK, "completed"},
	} {
		answer := fetch(t, url, "Authorization", c.token)
		answer.want(t, c.status, c.text)
		if plain := strings.HasPrefix(answer.header.Get("Content-Type"), "text/plain"); plain != (c.status != http.StatusOK) {
			t.Errorf("%d comes as %s", c.status, answer.header.Get("Content-Type"))
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL()+"/v1/login/oauth/access_token",
		strings.NewReader(`{"grantType":"client_credentials","clientId":"id","clientSecret":"secret"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	var given struct{ AccessToken string }
	if err := json.Unmarshal([]byte(send(t, request).body), &given); err != nil {
		t.Fatal(err)
	}
	fetch(t, url, "Authorization", "Bearer "+given.AccessToken).want(t, http.StatusOK, "completed")

	f.Refuse(http.StatusForbidden)
	fetch(t, url, "Authorization", "Bearer a.b.c").want(t, http.StatusForbidden, "Forbidden")
	f.Refuse(0)
	f.Down(true)
	if answer := fetch(t, url, "Authorization", "Bearer a.b.c"); answer.err == nil {
		t.Error("answered while down")
	}
	f.Down(false)
	fetch(t, url, "Authorization", "Bearer a.b.c").want(t, http.StatusOK, "completed")
}

func TestAFetcherClosesTwiceAndStartsWhereNothingListens(t *testing.T) {
	t.Parallel()
	f, err := StartFetcher(t.Context(), FetcherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Run(t.Context(), Job{}); err != nil {
		t.Errorf("without a broker: %v", err)
	}
	if other, err := StartFetcher(t.Context(), FetcherOptions{Listen: strings.TrimPrefix(f.URL(), "http://")}); err == nil {
		other.Close()
		t.Error("started on a taken address")
	}
	f.Close()
	f.Close()
	for _, url := range []string{"amqp://guest:hidden-secret@127.0.0.1:1/", "http://guest:hidden-secret@127.0.0.1/"} {
		other, err := StartFetcher(t.Context(), FetcherOptions{AMQPURL: url})
		if err == nil {
			other.Close()
			t.Fatal("started without its broker")
		}
		if strings.Contains(err.Error(), "hidden-secret") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}
