package fetcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"recibo/rest"
	"recibo/setting"
)

func TestTheVectorsResultIsOpened(t *testing.T) {
	t.Parallel()
	all := load(t)
	d := openDepot(t)
	d.put(t, all.Result.ObjectKey, []byte(all.Result.StoredObject))
	a, err := ParseAnnounced([]byte(all.Events[0].Body))
	if err != nil {
		t.Fatal(err)
	}
	c := d.config(func(c *Config) {
		c.ExternalHMACKey, c.StorageKey = secrets(all.Keys.ExternalHMACKeyHex), secrets(all.Keys.StorageEncryptionKeyHex)
	})
	got, err := fetch(t.Context(), results(t, c), Wanted{JobID: a.JobID, Result: *a.Result})
	if err != nil || string(got) != all.Result.Plaintext {
		t.Errorf("got %q, %v", got, err)
	}
	if seen := d.seen(); len(seen) != 2 || !strings.HasPrefix(seen[0], "HEAD /"+bucket) || !strings.HasPrefix(seen[1], "GET /"+bucket) {
		t.Errorf("asked %q", seen)
	}
}

func TestResultsThatAreGood(t *testing.T) {
	t.Parallel()
	object := seal(t, keyB, plaintext)
	all := func(change ...func(*Config)) []func(*Config) { return change }
	for name, test := range map[string]struct {
		key    string
		object []byte
		config []func(*Config)
		wanted func(*Wanted)
		asked  int
	}{
		"plain":                                {resultPath, object, nil, nil, 2},
		"with a prefix":                        {"prod/x-" + resultPath, object, all(func(c *Config) { c.Objects.Prefix = "prod/x-" }), nil, 2},
		"ends with newline":                    {resultPath, append(bytes.Clone(object), '\n'), nil, nil, 2},
		"ends with CRLF":                       {resultPath, append(bytes.Clone(object), "\r\n"...), nil, nil, 2},
		"second of the keys, told by its look": {resultPath, object, all(func(c *Config) { c.StorageKey = secrets(keyC, keyA, keyB) }), nil, 2},
		"second of the external keys":          {resultPath, object, all(func(c *Config) { c.ExternalHMACKey = secrets(keyC, keyA) }), nil, 2},
		"size unknown":                         {resultPath, object, nil, func(w *Wanted) { w.Result.SizeBytes = SizeUnknown }, 2},
		"as large as is taken":                 {resultPath, object, all(func(c *Config) { c.MaxResult = setting.Size(len(plaintext)) }), nil, 2},
		"larger than the memory for all":       {resultPath, object, all(func(c *Config) { c.Memory = 1 }), nil, 2},
		"bucket in the path":                   {resultPath, object, all(func(c *Config) { c.Objects.PathStyle = true }), nil, 2},
		"region is asked for":                  {resultPath, object, all(func(c *Config) { c.Objects.Region = "" }), nil, 3},
		"names of any letters":                 {"über all/" + resultPath, object, nil, func(w *Wanted) { w.Result.Path = "über all/" + resultPath }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDepot(t)
			d.put(t, test.key, test.object)
			w := wanted(plaintext)
			if test.wanted != nil {
				test.wanted(&w)
			}
			got, err := fetch(t.Context(), results(t, d.config(test.config...)), w)
			if err != nil || !bytes.Equal(got, plaintext) {
				t.Errorf("got %q, %v", got, err)
			}
			if seen := d.seen(); len(seen) != test.asked {
				t.Errorf("asked %q", seen)
			}
		})
	}
}

func TestAKeyThatLooksRightAndIsNotCostsOneMoreRead(t *testing.T) {
	t.Parallel()
	odd := []byte("[not what results look like]") // no key can be told by its look
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, odd))
	r := results(t, d.config(func(c *Config) { c.StorageKey = secrets(keyC, keyA, keyB) }))
	got, err := fetch(t.Context(), r, wanted(odd))
	if err != nil || !bytes.Equal(got, odd) || len(d.seen()) != 4 {
		t.Errorf("got %q, %v after %q", got, err, d.seen())
	}
}

func TestResultsThatAreBad(t *testing.T) {
	t.Parallel()
	object := seal(t, keyB, plaintext)
	flipped := func(i int) []byte {
		changed := bytes.Clone(object)
		if changed[i] == 'A' {
			changed[i] = 'B'
		} else {
			changed[i] = 'A'
		}
		return changed
	}
	other := []byte("{\n  \"pg-main\": {\n    \"users\": {}\n  }\n}") // of the same length
	for name, test := range map[string]struct {
		object []byte
		config func(*Config)
		wanted func(*Wanted)
		want   Kind
	}{
		"missing":                 {object: nil, want: Missing},
		"nonce changed":           {object: flipped(3), want: BadSeal},
		"ciphertext changed":      {object: flipped(40), want: BadSeal},
		"tag changed":             {object: flipped(len(object) - 6), want: BadSeal},
		"cut":                     {object: object[:len(object)-8], want: BadSeal},
		"cut to a nonce":          {object: object[:16], want: BadSeal},
		"empty":                   {object: []byte{}, want: BadSeal},
		"a line end only":         {object: []byte("\n"), want: BadSeal},
		"cut within a digit":      {object: object[:len(object)-5], want: BadEncoding},
		"newline inside":          {object: append(append(bytes.Clone(object[:20]), '\n'), object[20:]...), want: BadEncoding},
		"four newlines inside":    {object: append(append(bytes.Clone(object[:20]), "\n\n\n\n"...), object[20:]...), want: BadEncoding},
		"a space at the end":      {object: append(bytes.Clone(object), ' '), want: BadEncoding},
		"bytes after the padding": {object: append(seal(t, keyB, plaintext[1:]), "AAAA"...), want: BadEncoding},
		"not base64":              {object: append([]byte{'-'}, object[1:]...), want: BadEncoding},
		"not encrypted":           {object: plaintext, want: BadEncoding},
		"wrong key":               {object: object, config: func(c *Config) { c.StorageKey = secrets(keyC) }, want: BadSeal},
		"several wrong keys":      {object: object, config: func(c *Config) { c.StorageKey = secrets(keyC, keyA) }, want: BadSeal},
		"no storage key":          {object: object, config: func(c *Config) { c.StorageKey = nil }, want: NoKey},
		"too large by the event":  {object: nil, config: func(c *Config) { c.MaxResult = setting.Size(len(plaintext)) - 1 }, want: TooLarge},
		"too large as it is": {object: seal(t, keyB, make([]byte, 1000)),
			config: func(c *Config) { c.MaxResult = setting.Size(len(plaintext)) }, want: TooLarge},
		"shorter than announced":  {object: object, wanted: func(w *Wanted) { w.Result.SizeBytes++ }, want: BadLength},
		"longer than announced":   {object: object, wanted: func(w *Wanted) { w.Result.SizeBytes-- }, want: BadLength},
		"another content":         {object: seal(t, keyB, other), want: BadHMAC},
		"another external key":    {object: object, config: func(c *Config) { c.ExternalHMACKey = secrets(keyC) }, want: BadHMAC},
		"no HMAC known":           {object: object, wanted: func(w *Wanted) { w.Result.HMAC = "" }, want: BadHMAC},
		"path climbs":             {wanted: func(w *Wanted) { w.Result.Path = "a/../../" + resultPath }, want: BadPath},
		"path from the root":      {wanted: func(w *Wanted) { w.Result.Path = "/" + resultPath }, want: BadPath},
		"no path":                 {wanted: func(w *Wanted) { w.Result.Path = "" }, want: BadPath},
		"bucket is missing":       {config: func(c *Config) { c.Objects.Bucket = "elsewhere" }, want: Server},
		"nothing listens":         {config: func(c *Config) { c.Objects.Endpoint = "http://127.0.0.1:1" }, want: Unreachable},
		"TLS where there is none": {config: func(c *Config) { c.Objects.Endpoint = strings.Replace(c.Objects.Endpoint, "http", "https", 1) }, want: Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDepot(t)
			if test.object != nil {
				d.put(t, resultPath, test.object)
			}
			c, w := d.config(), wanted(plaintext)
			if test.config != nil {
				test.config(&c)
			}
			if test.wanted != nil {
				test.wanted(&w)
			}
			got, err := fetch(t.Context(), results(t, c), w)
			expect(t, name, got, err, test.want)
		})
	}
}

func TestAnErrorOfTheCallerComesBackAsItIs(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, plaintext))
	full := errors.New("disk full")
	if err := results(t, d.config()).Fetch(t.Context(), 0, wanted(plaintext), func([]byte, Proof) error { return full }); err != full {
		t.Error(err)
	}
}

// What was made of a plaintext counts for nothing where that is another one, whether or not its caller has come to know.
func TestAWrongHMACGoesBeforeWhatTheCallerSays(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, plaintext))
	w := wanted(plaintext)
	w.Result.HMAC = macOf(keyC, string(plaintext))
	for _, says := range []error{nil, errors.New("disk full")} {
		err := results(t, d.config()).Fetch(t.Context(), 0, w, func([]byte, Proof) error { return says })
		expect(t, fmt.Sprint(says), nil, err, BadHMAC)
	}
}

func TestThePlaintextIsWipedAfterDelivery(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, plaintext))
	var kept []byte
	err := results(t, d.config()).Fetch(t.Context(), 0, wanted(plaintext), func(p []byte, _ Proof) error {
		kept = p
		return nil
	})
	if err != nil || !bytes.Equal(kept, make([]byte, len(plaintext))) {
		t.Errorf("%q is still there, %v", kept, err)
	}
}

func TestResultsWaitForTheirShareOfMemory(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, plaintext))
	share := decodedSize(int64(len(seal(t, keyB, plaintext)))) + chunkSize
	r := results(t, d.config(func(c *Config) { c.Memory = setting.Size(2*share + share/2) }))
	r.small = 0
	entered, leave := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 3)
	start := func(ctx context.Context) {
		go func() {
			ended <- r.Fetch(ctx, 0, wanted(plaintext), func([]byte, Proof) error {
				entered <- struct{}{}
				<-leave
				return nil
			})
		}()
	}
	inside := func() {
		t.Helper()
		select {
		case <-entered:
		case err := <-ended:
			t.Fatal("ended before it was delivered:", err)
		}
	}
	start(t.Context())
	start(t.Context())
	inside()
	inside()
	if r.shares.TryAcquire(share) {
		t.Error("a third share is free")
	}
	ctx, cancel := context.WithCancel(t.Context())
	start(ctx)
	for len(d.seen()) < 5 { // its HEAD was asked; its GET waits for a share
		runtime.Gosched()
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error("while it waited:", err)
	}
	start(t.Context())
	leave <- struct{}{}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	inside() // the one that waited has the share that was given back
	leave <- struct{}{}
	leave <- struct{}{}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if !r.shares.TryAcquire(r.memory) {
		t.Error("a share was not given back")
	}
}

// A large one may take long, and another that waits for it too.
func TestASmallResultWaitsForNoShareOfMemory(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyB, plaintext))
	r := results(t, d.config())
	if !r.shares.TryAcquire(r.memory) {
		t.Fatal("the memory is not free")
	}
	if got, err := fetch(t.Context(), r, wanted(plaintext)); err != nil || !bytes.Equal(got, plaintext) {
		t.Error(err)
	}
	large := bytes.Repeat(plaintext, int(smallResult)/len(plaintext)+1)
	d.put(t, resultPath, seal(t, keyB, large))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := fetch(ctx, r, wanted(large)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one of %d bytes did not wait: %v", len(large), err)
	}
}

func TestFailedResultsGiveTheirShareBack(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.put(t, resultPath, seal(t, keyC, plaintext))
	r := results(t, d.config())
	r.small = 0
	got, err := fetch(t.Context(), r, wanted(plaintext))
	expect(t, "sealed with another key", got, err, BadSeal)
	if !r.shares.TryAcquire(r.memory) {
		t.Error("a share was not given back")
	}
}

func TestEachSourceHasItsOwnStore(t *testing.T) {
	t.Parallel()
	one, two := openDepot(t), openDepot(t)
	one.put(t, resultPath, seal(t, keyB, plaintext))
	two.put(t, "two/"+resultPath, seal(t, keyC, plaintext))
	c := one.config()
	c.Sources = []SourceConfig{
		{Source: "//one"},
		{Source: "//two", StorageKey: secrets(keyC), Objects: ObjectsConfig{Endpoint: two.server.URL, Prefix: "two/"}},
	}
	r := results(t, c)
	for i, d := range []*depot{one, two} {
		if got, err := fetchFrom(t.Context(), r, i, wanted(plaintext)); err != nil || !bytes.Equal(got, plaintext) || len(d.seen()) != 2 {
			t.Errorf("source %d: %v, asked %q", i, err, d.seen())
		}
		if !r.CanOpen(i) {
			t.Errorf("source %d can't be opened", i)
		}
	}
}

func TestWithoutAStorageKeyTheObjectComesAsItIs(t *testing.T) {
	t.Parallel()
	object := seal(t, keyB, plaintext)
	d := openDepot(t)
	d.put(t, resultPath, object)
	r := results(t, d.config(func(c *Config) { c.StorageKey = nil }))
	if r.CanOpen(0) {
		t.Error("it can be opened")
	}
	read := func(from io.Reader, _ int64) error {
		got, err := io.ReadAll(from)
		if err == nil && !bytes.Equal(got, object) {
			err = fmt.Errorf("got %q", got)
		}
		return err
	}
	if err := r.FetchEncrypted(t.Context(), 0, wanted(plaintext), read); err != nil {
		t.Error(err)
	}
	err := r.FetchEncrypted(t.Context(), 0, wanted(plaintext), func(from io.Reader, size int64) error {
		if size != int64(len(object)) {
			t.Errorf("size %d", size)
		}
		return nil
	})
	expect(t, "not read", nil, err, Broken)
	d.fault = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.Method == http.MethodHead {
			return false
		}
		w.Header().Set("Last-Modified", lastModified)
		w.Header().Set("Content-Length", fmt.Sprint(len(object)))
		_, _ = w.Write(object[:10])
		return true
	}
	expect(t, "breaks off", nil, r.FetchEncrypted(t.Context(), 0, wanted(plaintext), read), Broken)
	d.fault = nil
	small := results(t, d.config(func(c *Config) { c.MaxResult = 1 }))
	w := wanted(plaintext)
	w.Result.SizeBytes = 1
	expect(t, "too large", nil, small.FetchEncrypted(t.Context(), 0, w, read), TooLarge)
}

func TestStoresThatCantBe(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	for want, change := range map[string]func(*Config){
		"fetcher.objects.endpoint: missing": func(c *Config) { c.Objects.Endpoint = "" },
		"fetcher.objects.bucket: missing":   func(c *Config) { c.Objects.Bucket = "" },
		"fetcher.objects.tls: ":             func(c *Config) { c.Objects.TLS.CAFile = "none" },
		"fetcher.proxy: ":                   func(c *Config) { c.Proxy = "nonsense" },
		"fetcher.storage_key: entry 1 ":     func(c *Config) { c.StorageKey = secrets("x") },
		"fetcher.sources[0].objects.bucket: ": func(c *Config) {
			c.Sources = []SourceConfig{{Tenant: "a", Objects: ObjectsConfig{Bucket: "x"}}}
		},
	} {
		if _, err := NewResults(rest.Config{}, d.config(change), Options{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}
