package fetcher

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"recibo/hub"
	"recibo/setting"
)

// FuzzDelivery wants nothing accepted that is not signed, whatever its headers, route and body are.
func FuzzDelivery(f *testing.F) {
	all := load(f)
	key := all.Keys.ExternalHMACKeyHex
	c := keyed(key)
	c.LegacySignatures = true
	v := verifier(f, c)
	for _, e := range all.Events {
		headers, err := json.Marshal(e.message().Headers)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(headers, e.Exchange, e.RoutingKey, []byte(e.Body))
	}
	f.Add([]byte(`{"t":["1"],"T":["2"]}`), "", "job.failed.x", []byte(failedBody))
	legacy := fmt.Sprintf(`{"t":["%d"],"x-message-signature":["%s"]}`, signed, macOf(key, fmt.Sprintf("%d.%s", signed, failedBody)))
	f.Add([]byte(legacy), "", "job.failed.reporter", []byte(failedBody))
	f.Add([]byte(`{"t":["1"],"x-message-signature":["00"]}`), "", "job.failed.reporter", []byte(failedBody))
	f.Fuzz(func(t *testing.T, rawHeaders []byte, exchange, routingKey string, raw []byte) {
		var headers map[string][]string
		if json.Unmarshal(rawHeaders, &headers) != nil {
			t.Skip()
		}
		before := bytes.Clone(raw)
		d := v.Delivery(hub.Message{Headers: headers, Body: raw}, Route{exchange, routingKey})
		switch {
		case d.Verdict == hub.Accept && !isSignedBy(key, headers, exchange, routingKey, d.Event.ReportID, raw):
			t.Errorf("accepted what nobody signed: %q", raw)
		case d.Verdict == hub.Accept && (d.Event.ID != "fetcher."+d.Event.Name+"."+d.Event.ReportID || !PlainID(d.Event.ReportID)):
			t.Errorf("accepted as %q", d.Event.ID)
		case (d.Verdict == hub.Accept) != (d.Reason == ""), d.Verdict == hub.Reject:
			t.Errorf("verdict %d, reason %q", d.Verdict, d.Reason)
		case !bytes.Equal(raw, before) || len(d.Event.ID) > hub.MaxID:
			t.Error("the message was changed, or its id is too long")
		}
	})
}

// isSignedBy computes the signature by the words of the contract, apart from the code under test: over six lines and the
// body, or as Fetcher 1.x did over time and body, where its routing keys say that it is of that.
func isSignedBy(key string, headers map[string][]string, exchange, routingKey, jobID string, body []byte) bool {
	sent := map[string]string{}
	for name, values := range headers {
		for _, value := range values {
			sent[strings.ToLower(name)] = value
		}
	}
	text := ""
	for _, line := range []string{sent["t"], sent["signature-version"], sent["x-tenant-id"], jobID, exchange, routingKey} {
		text += line + "\n"
	}
	if strings.Count(routingKey, ".") > 1 {
		text = sent["t"] + "."
	}
	return sent["x-message-signature"] == macOf(key, text+string(body))
}

// FuzzSignature wants a message refused as soon as one byte of what is signed is another, wherever that is.
func FuzzSignature(f *testing.F) {
	v := verifier(f, keyed(keyA))
	for part := range byte(7) {
		f.Add("acme", "fetcher.job.events", `"c-42"`, part, uint(3), byte(1))
	}
	f.Add("single-tenant", "x", "null", byte(0), uint(60), byte(0x20)) // a digit of the signature in upper case
	f.Fuzz(func(t *testing.T, tenant, exchange, id string, part byte, where uint, flip byte) {
		if !hub.PlainID(tenant) || tenant == "-" || flip == 0 { // "-" removes the header
			t.Skip()
		}
		body := strings.Replace(completedBody(tenant+"/", ""), `"reporter"`, `"reporter","correlationId":`+id, 1)
		message := &forged{
			time: strconv.Itoa(signed), version: "v1", tenant: tenant, exchange: exchange, routingKey: JobCompleted, body: body, key: keyA,
		}
		m, route := message.message()
		if d := v.Delivery(m, route); d.Verdict != hub.Accept {
			if json.Valid([]byte(id)) && !strings.ContainsFunc(exchange, unicode.IsControl) {
				t.Errorf("refused as it was signed: %s", d.Reason)
			}
			return
		}
		change := func(text string) string {
			changed := []byte(text)
			if len(changed) == 0 {
				return string(flip)
			}
			changed[where%uint(len(changed))] ^= flip
			return string(changed)
		}
		header := func(name string) { m.Headers[name] = []string{change(m.Headers[name][0])} }
		switch part % 7 {
		case 0:
			header("x-message-signature")
		case 1:
			header("t")
		case 2:
			header("signature-version")
		case 3:
			header("X-Tenant-ID")
		case 4:
			route.Exchange = change(route.Exchange)
		case 5:
			route.RoutingKey = change(route.RoutingKey)
		case 6:
			m.Body = []byte(change(body))
		}
		if d := v.Delivery(m, route); d.Verdict == hub.Accept {
			t.Errorf("accepted with a byte of part %d changed: %q %q %q", part%7, m.Headers, route, m.Body)
		}
	})
}

// FuzzBody wants a body to be about the same job for this reader and for encoding/json, which takes the last of several
// members, in any case of letters.
func FuzzBody(f *testing.F) {
	for _, body := range []string{completedBody("", ""), failedBody, `{"jobId":"x","jobid":"y"}`, `{"status":"failed","ſtatus":"completed"}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		mine, err := readBody(raw)
		if err != nil {
			return
		}
		var theirs struct{ JobID, Status string }
		if err := json.Unmarshal(raw, &theirs); err != nil || theirs.JobID != mine.jobID || theirs.Status != mine.status {
			t.Errorf("job %q is %q, for another reader job %q is %q, %v", mine.jobID, mine.status, theirs.JobID, theirs.Status, err)
		}
		if a, err := mine.announced(); err == nil && (a.Result != nil) != (a.Status == Completed) {
			t.Errorf("a job that is %s has the result %v", a.Status, a.Result)
		}
	})
}

// FuzzDecode compares the decoder, at every size of its pieces, with one that has the whole text before it.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(load(f).Result.StoredObject), byte(200))
	for _, text := range []string{"", "AAAA====\n\r", "AA==\nAA==", "AA\n\n\n\nAA", "AAAAAA==\r\n", "AAAAAAAA\n", "\n\n\n\n\n"} {
		f.Add([]byte(text), byte(0))
	}
	f.Fuzz(func(t *testing.T, object []byte, quarter byte) {
		got, err := decodeBy(bytes.NewReader(object), make([]byte, decodedSize(int64(len(object)))), 4*(1+int(quarter)))
		text := bytes.TrimRight(object, "\r\n")
		want, wantErr := base64.StdEncoding.DecodeString(string(text))
		strict := wantErr == nil && !bytes.ContainsAny(text, "\r\n")
		if err == nil && (!strict || !bytes.Equal(got, want)) {
			t.Fatalf("got %q; want %q, %v", got, want, wantErr)
		}
		if err != nil && strict && len(object)-len(text) <= lineEnd {
			t.Fatalf("%q is refused: %v", object, err)
		}
	})
}

// FuzzFetch wants nothing had but the plaintext that was sealed and announced, whatever the store has in its place.
func FuzzFetch(f *testing.F) {
	var object []byte // one call at a time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Last-Modified", lastModified)
		w.Header().Set("Content-Length", strconv.Itoa(len(object)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(object)
		}
	}))
	f.Cleanup(server.Close)
	c := keyed(keyA)
	c.StorageKey = secrets(keyC, keyB)
	c.Objects = ObjectsConfig{
		Endpoint: server.URL, Region: "us-east-1", Bucket: bucket, AccessKey: setting.NewSecret("a"), SecretKey: setting.NewSecret("b"),
	}
	r := results(f, c)
	f.Add(plaintext, uint(0), byte(0), uint(0), 0, byte(0))
	f.Add(plaintext, uint(20), byte(1), uint(0), 0, byte(0))
	f.Add(plaintext, uint(0), byte(0), uint(8), 0, byte(0))
	f.Add(plaintext, uint(0), byte(0), uint(0), 1, byte(0))
	f.Add([]byte("{}"), uint(0), byte(0), uint(0), 0, byte(1))
	f.Fuzz(func(t *testing.T, plaintext []byte, where uint, flip byte, cut uint, longer int, hmacFlip byte) {
		object = seal(t, keyB, plaintext)
		object[where%uint(len(object))] ^= flip
		object = object[:len(object)-int(cut%uint(len(object)))]
		w := wanted(plaintext)
		w.Result.SizeBytes += int64(longer)
		mac, err := hex.DecodeString(w.Result.HMAC)
		if err != nil {
			t.Fatal(err)
		}
		mac[where%uint(len(mac))] ^= hmacFlip
		w.Result.HMAC = hex.EncodeToString(mac)

		err = r.Acquire(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		given, asAnnounced := false, (longer == 0 || w.Result.SizeBytes < 0) && hmacFlip == 0
		err = r.Fetch(t.Context(), 0, w, func(got []byte, _ Proof) error {
			given = true
			if !bytes.Equal(got, plaintext) {
				t.Errorf("given %q, sealed was %q", got, plaintext)
			}
			return nil
		})
		switch {
		case err == nil && !given:
			t.Error("had, and not given")
		case err == nil && !asAnnounced:
			t.Errorf("had, though %d bytes and HMAC %s were announced", w.Result.SizeBytes, w.Result.HMAC)
		case err != nil && given && hmacFlip == 0:
			t.Errorf("given: %v", err)
		case err != nil && asAnnounced && flip == 0 && cut%uint(len(seal(t, keyB, plaintext))) == 0:
			t.Errorf("not had, though nothing is wrong: %v", err)
		}
	})
}
