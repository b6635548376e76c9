package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// download reads an object over S3, as a consumer does.
func download(t *testing.T, f *Fetcher, accessKey, id string) ([]byte, error) {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client, err := minio.New(strings.TrimPrefix(f.ObjectsURL(), "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(accessKey, f.SecretKey(), ""), Region: "us-east-1", Transport: transport,
		BucketLookup: minio.BucketLookupPath, MaxRetries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	object, err := client.GetObject(t.Context(), f.Bucket(), f.Key(id), minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	defer object.Close()
	return io.ReadAll(object)
}

func TestObjectsAreReadOverS3(t *testing.T) {
	t.Parallel()
	f, _ := openFetcher(t, FetcherOptions{})
	id := run(t, f, Job{Size: 100_000}).ID
	stored, _ := f.Objects.Get(f.Key(id))
	for what, c := range map[string]struct {
		order, undo func()
		code        string
	}{
		"denied":    {func() { f.Objects.DenyAll(true) }, func() { f.Objects.DenyAll(false) }, "AccessDenied"},
		"failing":   {func() { f.Objects.Fail(-1, 503) }, func() { f.Objects.Fail(0, 0) }, "SandboxFailure"},
		"in order":  {func() {}, func() {}, ""},
		"fails one": {func() { f.Objects.Fail(1, 400) }, func() {}, "SandboxFailure"},
	} {
		c.order()
		data, err := download(t, f, f.AccessKey(), id)
		c.undo()
		if code := minio.ToErrorResponse(err).Code; err != nil && code != c.code || err == nil && c.code != "" {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil && !bytes.Equal(data, stored) {
			t.Errorf("%s: %d bytes instead of %d", what, len(data), len(stored))
		}
	}
	if _, err := download(t, f, "SOMEBODY", id); minio.ToErrorResponse(err).Code != "InvalidAccessKeyId" {
		t.Errorf("another access key: %v", err)
	}
	if _, err := download(t, f, f.AccessKey(), newID()); minio.ToErrorResponse(err).Code != "NoSuchKey" {
		t.Errorf("no object: %v", err)
	}
	if n := f.Objects.Requests(f.Key(id)); n < 5 {
		t.Errorf("%d requests", n)
	}
}

func TestObjectsBreakOff(t *testing.T) {
	t.Parallel()
	f, _ := openFetcher(t, FetcherOptions{})
	id := run(t, f, Job{Size: 100_000}).ID
	url := f.ObjectsURL() + "/" + f.Bucket() + "/" + f.Key(id)
	get := func() reply {
		return fetch(t, url, "Authorization", "AWS4-HMAC-SHA256 Credential="+f.AccessKey()+"/20261129/us-east-1/s3/aws4_request")
	}
	f.Objects.Cut(f.Key(id), 1)
	cut, whole := get(), get()
	if !errors.Is(cut.err, io.ErrUnexpectedEOF) || whole.err != nil || len(cut.body) != len(whole.body)/2 {
		t.Errorf("%d bytes and %v, then %d bytes and %v", len(cut.body), cut.err, len(whole.body), whole.err)
	}
	f.Objects.Down(true)
	if answer := get(); answer.err == nil {
		t.Error("answered while down")
	}
	f.Objects.Down(false)
	if answer := get(); answer.body != whole.body {
		t.Errorf("afterwards %d, error %v", answer.status, answer.err)
	}
}

func TestDamagedObjects(t *testing.T) {
	t.Parallel()
	f, _ := openFetcher(t, FetcherOptions{})
	for what, damage := range map[string]func(id, key string) bool{
		"deleted":     func(_, key string) bool { return f.Objects.Delete(key) },
		"first bit":   func(_, key string) bool { return f.Objects.Flip(key, 0) },
		"last bit":    func(_, key string) bool { return f.Objects.Flip(key, -1) },
		"shortened":   func(_, key string) bool { return f.Objects.Truncate(key, -4) },
		"a beginning": func(_, key string) bool { return f.Objects.Truncate(key, 40) },
		"wrong key":   func(id, _ string) bool { return f.Objects.PutWrongKey(id) },
	} {
		id := run(t, f, Job{}).ID
		if damage("unknown", "unknown") {
			t.Errorf("%s: of an unknown object", what)
		}
		if _, err := opened(t, f, id); err != nil {
			t.Errorf("%s: before: %v", what, err)
		}
		if !damage(id, f.Key(id)) {
			t.Errorf("%s: not done", what)
		}
		if _, err := opened(t, f, id); err == nil {
			t.Errorf("%s: decrypts all the same", what)
		}
	}
}

func TestOtherContentDecryptsAndIsNotTheResult(t *testing.T) {
	t.Parallel()
	f, _ := openFetcher(t, FetcherOptions{})
	job := run(t, f, Job{})
	if !f.Objects.PutOtherContent(job.ID) {
		t.Fatal("not done")
	}
	plain, err := opened(t, f, job.ID)
	if err != nil || int64(len(plain)) != job.Size || bytes.Equal(plain, f.Plaintext(job.ID)) || !json.Valid(plain) {
		t.Errorf("%d bytes, error %v", len(plain), err)
	}
}
