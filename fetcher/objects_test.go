package fetcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"recibo/rest"
	"recibo/setting"
)

func TestKindsSayWhoseTroubleItIs(t *testing.T) {
	t.Parallel()
	for kind := Unreachable; kind <= Denied; kind++ {
		e := &ResultError{Kind: kind, JobID: jobID}
		service := kind == Unreachable || kind == Auth || kind == Server
		hopeless := kind == TooLarge || kind == NoKey || kind == BadPath
		if e.Service() != service || e.Hopeless() != hopeless || !holds(e.Error(), kind.String()) || strings.HasPrefix(kind.String(), "kind") {
			t.Errorf("%s: service %v, hopeless %v", e, e.Service(), e.Hopeless())
		}
	}
}

func answer(status int, body string) func(http.ResponseWriter, *http.Request, int) bool {
	return func(w http.ResponseWriter, r *http.Request, _ int) bool {
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			_, _ = io.WriteString(w, body)
		}
		return true
	}
}

func s3Error(code string) string {
	return `<?xml version="1.0"?><Error><Code>` + code + `</Code><Message>no, XAKIDX and XSECRETX will not do</Message></Error>`
}

func TestTheStoresTroubleIsNotTheObjects(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault func(http.ResponseWriter, *http.Request, int) bool
		asked int
		want  Kind
	}{
		"401":                        {answer(401, ""), 1, Auth},
		"unknown access key":         {answer(403, s3Error("InvalidAccessKeyId")), 2, Auth},
		"clocks differ":              {answer(403, s3Error("RequestTimeTooSkewed")), 2, Auth},
		"access denied":              {answer(403, s3Error("AccessDenied")), 2, Denied},
		"403 of a proxy":             {answer(403, "<html>no</html>"), 2, Denied},
		"500":                        {answer(500, s3Error("InternalError")), 1, Server},
		"slow down":                  {answer(503, s3Error("SlowDown")), 1, Server},
		"429":                        {answer(429, ""), 1, Server},
		"redirected":                 {answer(301, s3Error("PermanentRedirect")), 1, Server},
		"400":                        {answer(400, s3Error("AuthorizationHeaderMalformed")), 1, Server},
		"404 that says nothing":      {answer(404, "not here"), 2, Missing},
		"no such key":                {answer(404, s3Error("NoSuchKey")), 2, Missing},
		"no such bucket":             {answer(404, s3Error("NoSuchBucket")), 2, Server},
		"archived, found by the GET": {second(answer(403, s3Error("InvalidObjectState"))), 2, Missing},
		"denied to the GET":          {second(answer(403, s3Error("SignatureDoesNotMatch"))), 2, Auth},
		"breaks off": {second(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Last-Modified", lastModified)
			w.Header().Set("Content-Length", fmt.Sprint(len(seal(t, keyB, plaintext))))
			_, _ = io.WriteString(w, "AAAA")
			return true
		}), 2, Broken},
		"replaced in between": {second(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Last-Modified", lastModified)
			_, _ = io.WriteString(w, "AAAA")
			return true
		}), 2, Broken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDepot(t)
			d.put(t, resultPath, seal(t, keyB, plaintext))
			d.fault = test.fault
			got, err := fetch(t.Context(), results(t, d.config()), wanted(plaintext))
			expect(t, name, got, err, test.want)
			if seen := d.seen(); len(seen) != test.asked {
				t.Errorf("asked %q", seen)
			}
		})
	}
}

// second leaves the first request to the store.
func second(fault func(http.ResponseWriter, *http.Request, int) bool) func(http.ResponseWriter, *http.Request, int) bool {
	return func(w http.ResponseWriter, r *http.Request, n int) bool { return n > 1 && fault(w, r, n) }
}

func TestABodyThatStopsIsGivenUp(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, plaintext))
	d.fault = second(func(w http.ResponseWriter, r *http.Request, _ int) bool {
		w.Header().Set("Last-Modified", lastModified)
		w.Header().Set("Content-Length", fmt.Sprint(len(seal(t, keyB, plaintext))))
		_, _ = io.WriteString(w, "AAAA")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	})
	r := results(t, d.config(), rest.Config{Proxy: "none", IdleTimeout: 20 * time.Millisecond})
	got, err := fetch(t.Context(), r, wanted(plaintext))
	expect(t, "idle", got, err, Broken)
	if !holds(err.Error(), "no byte for 20ms") {
		t.Error(err)
	}
}

func TestTheEndOfTheContextIsNobodysTrouble(t *testing.T) {
	t.Parallel()
	object := seal(t, keyB, plaintext)
	for _, at := range []int{1, 2} {
		d := openDepot(t)
		d.put(t, resultPath, object)
		ctx, cancel := context.WithCancel(t.Context())
		d.fault = func(_ http.ResponseWriter, r *http.Request, n int) bool {
			if n != at {
				return false
			}
			cancel()
			<-r.Context().Done()
			return true
		}
		if got, err := fetch(ctx, results(t, d.config()), wanted(plaintext)); !errors.Is(err, context.Canceled) || got != nil {
			t.Errorf("at request %d: %v", at, err)
		}
	}
}

func TestWithoutAnAccessKeyNothingIsSent(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN",
		"MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", "MINIO_ACCESS_KEY", "MINIO_SECRET_KEY"} {
		t.Setenv(name, "")
	}
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, plaintext))
	var sent http.Header
	d.fault = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		sent = r.Header.Clone()
		return false
	}
	bare := func(c *Config) { c.Objects.AccessKey, c.Objects.SecretKey = setting.Secret{}, setting.Secret{} }
	got, err := fetch(t.Context(), results(t, d.config(bare)), wanted(plaintext))
	expect(t, "none", got, err, Auth)
	if seen := d.seen(); len(seen) != 0 {
		t.Errorf("sent %q", seen)
	}
	for name, environment := range map[string]map[string]string{
		"AWS":   {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "x", "AWS_SESSION_TOKEN": "session"},
		"MinIO": {"MINIO_ROOT_USER": "root", "MINIO_ROOT_PASSWORD": "x"},
	} {
		for key, value := range environment {
			t.Setenv(key, value)
		}
		if got, err := fetch(t.Context(), results(t, d.config(bare)), wanted(plaintext)); err != nil || !bytes.Equal(got, plaintext) {
			t.Errorf("%s: %v", name, err)
		}
		if !holds(sent.Get("Authorization"), or(environment["AWS_ACCESS_KEY_ID"], "root")) ||
			sent.Get("X-Amz-Security-Token") != environment["AWS_SESSION_TOKEN"] {
			t.Errorf("%s: sent %v", name, sent)
		}
		for key := range environment {
			t.Setenv(key, "")
		}
	}
}

func TestAccessKeysFollowTheirFiles(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, plaintext))
	file := t.TempDir() + "/access"
	writeFile(t, file, "FIRST")
	access, err := setting.SecretFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var sent string
	d.fault = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		sent = r.Header.Get("Authorization")
		return false
	}
	r := results(t, d.config(func(c *Config) { c.Objects.AccessKey = access }))
	for _, want := range []string{"FIRST", "SECOND-KEY"} {
		writeFile(t, file, want)
		if _, err := fetch(t.Context(), r, wanted(plaintext)); err != nil || !holds(sent, want) {
			t.Errorf("sent %q, want %s: %v", sent, want, err)
		}
	}
}

// Amazon's store refuses a user who may not list the bucket an object that is not there, as it refuses a wrong key. What
// could be read before tells the two apart.
func TestARefusalIsTheObjectsWhereOthersCanBeRead(t *testing.T) {
	t.Parallel()
	object := seal(t, keyB, plaintext)
	good, gone := wanted(plaintext), wanted(plaintext)
	gone.Result.Path = "gone/" + resultPath
	d := openDepot(t)
	d.put(t, resultPath, object)
	denied := false // everything
	d.fault = func(w http.ResponseWriter, r *http.Request, n int) bool {
		return (denied || strings.Contains(r.URL.Path, "/gone/")) && answer(403, s3Error("AccessDenied"))(w, r, n)
	}
	r := results(t, d.config())
	kind := func(w Wanted) Kind {
		_, err := fetch(t.Context(), r, w)
		var e *ResultError
		if !errors.As(err, &e) {
			t.Errorf("got %v", err)
			return -1
		}
		return e.Kind
	}
	if got := kind(gone); got != Denied {
		t.Errorf("before anything was read: %s", got)
	}
	if _, err := fetch(t.Context(), r, good); err != nil {
		t.Fatal(err)
	}
	if got := kind(gone); got != Missing {
		t.Errorf("others can be read: %s", got)
	}
	denied = true
	if got := kind(gone); got != Denied {
		t.Errorf("nothing can be read any more: %s", got)
	}
	if got := kind(good); got != Denied {
		t.Errorf("nothing can be read any more, not the known one either: %s", got)
	}
}

func TestCheckAsksForWhatIsNotThere(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault  func(http.ResponseWriter, *http.Request, int) bool
		bucket string
		want   Kind // -1: none
	}{
		"a store that works": {nil, bucket, -1},
		"a missing bucket":   {nil, "nowhere", Server},
		"a wrong key":        {answer(403, s3Error("InvalidAccessKeyId")), bucket, Auth},
		"trouble":            {answer(500, ""), bucket, Server},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDepot(t)
			d.fault = test.fault
			err := results(t, d.config(func(c *Config) { c.Objects.Bucket = test.bucket })).Check(t.Context(), 0)
			var e *ResultError
			if got := errors.As(err, &e); got != (test.want >= 0) || got && e.Kind != test.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

// One object that always answers with trouble must not close the gate for all: where others can be read, it is this one's.
func TestTroubleIsTheObjectsWhereOthersCanBeRead(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, plaintext))
	d.fault = func(w http.ResponseWriter, r *http.Request, n int) bool {
		return strings.Contains(r.URL.Path, "/bad/") && answer(500, s3Error("InternalError"))(w, r, n)
	}
	good, bad := wanted(plaintext), wanted(plaintext)
	bad.Result.Path = "bad/" + resultPath
	r := results(t, d.config())
	for _, want := range []Kind{Server, Broken} {
		_, err := fetch(t.Context(), r, bad)
		var e *ResultError
		if !errors.As(err, &e) || e.Kind != want {
			t.Errorf("want %s, got %v", want, err)
		}
		if _, err := fetch(t.Context(), r, good); err != nil {
			t.Fatal(err)
		}
	}
}
