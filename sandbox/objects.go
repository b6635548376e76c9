package sandbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Objects is the object store of a Fetcher: S3 over plain HTTP, held in memory. It takes requests that name its access
// key; their signature is not checked. Its methods may be called from several goroutines.
type Objects struct {
	accessKey, secretKey, bucket string

	backend  *s3mem.Backend
	s3       http.Handler
	sealed   func(id string, kind sealing) (key string, sealed []byte, ok bool)
	endpoint *endpoint

	mu       sync.Mutex // guards what follows
	requests map[string]int
	cuts     map[string]int
	denied   bool
	failures int
	failure  int
}

// sealing is a way to encrypt a job's result that no reader must take.
type sealing int

const (
	sealedWithAnotherKey sealing = iota
	sealedOtherContent
)

func startObjects(ctx context.Context, o FetcherOptions, sealed func(string, sealing) (string, []byte, bool)) (*Objects, error) {
	objects := &Objects{
		accessKey: "SANDBOX" + strings.ToUpper(hex.EncodeToString(drawn(o.Seed, "access key")[:6])),
		secretKey: hex.EncodeToString(drawn(o.Seed, "secret key")[:20]),
		bucket:    o.Bucket,
		backend:   s3mem.New(),
		sealed:    sealed,
		requests:  map[string]int{},
		cuts:      map[string]int{},
	}
	if err := objects.backend.CreateBucket(o.Bucket); err != nil {
		return nil, err
	}
	objects.s3 = gofakes3.New(objects.backend).Server()
	var err error
	objects.endpoint, err = startEndpoint(ctx, o.ObjectsListen, objects, o.Log)
	return objects, err
}

// ServeHTTP is the S3 API, after what was ordered.
func (o *Objects) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	status, code, half := o.arrive(req)
	if status != 0 {
		refuseS3(w, status, code)
		return
	}
	if half < 0 {
		o.s3.ServeHTTP(w, req)
		return
	}
	o.s3.ServeHTTP(&cutResponse{w, cutWriter{w, half}}, req)
	_ = http.NewResponseController(w).Flush() // a write error is the client's own end
	panic(http.ErrAbortHandler)
}

// arrive counts a request and returns the refusal that it meets, or after how many bytes it breaks off; below 0 never.
func (o *Objects) arrive(req *http.Request) (status int, code string, half int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key, isObject := strings.CutPrefix(req.URL.Path, "/"+o.bucket+"/")
	if isObject {
		o.requests[key]++
	}
	switch {
	case o.failures != 0:
		o.failures--
		return o.failure, "SandboxFailure", -1
	case o.denied:
		return http.StatusForbidden, "AccessDenied", -1
	case !strings.Contains(req.Header.Get("Authorization"), "Credential="+o.accessKey+"/"):
		return http.StatusForbidden, "InvalidAccessKeyId", -1
	case isObject && req.Method == http.MethodGet && o.cuts[key] != 0:
		o.cuts[key]--
		return 0, "", o.size(key) / 2
	}
	return 0, "", -1
}

func refuseS3(w http.ResponseWriter, status int, code string) {
	body := `<?xml version="1.0" encoding="UTF-8"?>` + "\n<Error><Code>" + code + "</Code><Message>ordered by the sandbox</Message></Error>"
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// cutResponse lets a part of the body through.
type cutResponse struct {
	http.ResponseWriter
	cut cutWriter
}

// Write implements http.ResponseWriter.
func (c *cutResponse) Write(p []byte) (int, error) { return c.cut.Write(p) }

// store puts sealed bytes in their stored form: one line of base64.
func (o *Objects) store(key string, sealed []byte) error {
	return o.put(key, newBase64Reader(sealed), int64(base64.StdEncoding.EncodedLen(len(sealed))))
}

func (o *Objects) put(key string, from io.Reader, size int64) error {
	headers := map[string]string{"Content-Type": "application/octet-stream", "Last-Modified": time.Now().UTC().Format(http.TimeFormat)}
	_, err := o.backend.PutObject(o.bucket, key, headers, from, size, nil)
	return err
}

// size of an object, 0 without one.
func (o *Objects) size(key string) int64 {
	object, err := o.backend.HeadObject(o.bucket, key)
	if err != nil {
		return 0
	}
	return object.Size
}

// stored returns the bytes as they lie there.
func (o *Objects) stored(key string) ([]byte, bool) {
	object, err := o.backend.GetObject(o.bucket, key, nil)
	if err != nil {
		return nil, false
	}
	defer object.Contents.Close()
	data := make([]byte, object.Size)
	_, err = io.ReadFull(object.Contents, data)
	return data, err == nil
}

// Get returns the stored bytes of an object, base64 and encrypted, and whether there is one.
func (o *Objects) Get(key string) ([]byte, bool) { return o.stored(key) }

// Put stores bytes as they are under a key.
func (o *Objects) Put(key string, data []byte) error {
	return o.put(key, bytes.NewReader(data), int64(len(data)))
}

// Delete removes an object and reports whether there was one.
func (o *Objects) Delete(key string) bool {
	if _, err := o.backend.HeadObject(o.bucket, key); err != nil {
		return false
	}
	_, err := o.backend.DeleteObject(o.bucket, key)
	return err == nil
}

// Flip changes one bit of the nonce, ciphertext and tag of an object, below 0 counted from the end, so that its base64
// stays well formed; it reports whether there is such an object and bit.
func (o *Objects) Flip(key string, bit int64) bool {
	stored, _ := o.stored(key)
	sealed, err := base64.StdEncoding.DecodeString(string(stored))
	bits := 8 * int64(len(sealed))
	if bit < 0 {
		bit += bits
	}
	if err != nil || bit < 0 || bit >= bits {
		return false
	}
	sealed[bit/8] ^= 1 << (bit % 8)
	return o.store(key, sealed) == nil
}

// Truncate leaves the first n stored bytes of an object, or with n below 0 all but the last ones; it reports whether
// there is an object that long.
func (o *Objects) Truncate(key string, n int64) bool {
	stored, ok := o.stored(key)
	if n < 0 {
		n += int64(len(stored))
	}
	if !ok || n < 0 || n > int64(len(stored)) {
		return false
	}
	return o.Put(key, stored[:n]) == nil
}

// PutWrongKey replaces the object of a job by its result encrypted with another key, and reports whether the job is
// known.
func (o *Objects) PutWrongKey(id string) bool { return o.reseal(id, sealedWithAnotherKey) }

// PutOtherContent replaces the object of a job by another result of the same length, rightly encrypted: only the HMAC
// of the plaintext tells them apart. It reports whether the job is known.
func (o *Objects) PutOtherContent(id string) bool { return o.reseal(id, sealedOtherContent) }

func (o *Objects) reseal(id string, kind sealing) bool {
	key, sealed, ok := o.sealed(id, kind)
	return ok && o.store(key, sealed) == nil
}

// sealed encrypts a job's result in a way that no reader must take.
func (f *Fetcher) sealed(id string, kind sealing) (key string, data []byte, ok bool) {
	record := f.job(id)
	if record == nil {
		return "", nil, false
	}
	if kind == sealedWithAnotherKey {
		return f.Key(id), seal(f.keys.internal, record.content), true
	}
	return f.Key(id), seal(f.keys.storage, record.content.other()), true
}

// Down resets every connection, open ones at once, until it is called with false.
func (o *Objects) Down(down bool) { o.endpoint.gate.refuse(down) }

// DenyAll answers everything with 403 AccessDenied until it is called with false.
func (o *Objects) DenyAll(deny bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.denied = deny
}

// Fail answers the next n requests with an HTTP status; n below 0 is for ever, 0 ends it.
func (o *Objects) Fail(n, status int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures, o.failure = n, status
}

// Cut breaks the next n downloads of an object off after half of it; n below 0 is for ever, 0 ends it.
func (o *Objects) Cut(key string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cuts[key] = n
}

// Requests is how many requests of any kind an object's key has met, refused ones included.
func (o *Objects) Requests(key string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.requests[key]
}
