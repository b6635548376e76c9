package hub

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"recibo/setting"
)

const testSecret = "0123456789abcdef0123456789abcdef"

// signedBy computes a signature straight from the contract's sentence, apart from the code under test: every attribute is
// given with its presence byte and its length written out.
func signedBy(secret, kid, body string) string {
	sum := sha256.Sum256([]byte(body))
	text := "lerian.streaming.sig.v1\x00" +
		"\x01\x00\x00\x00\x031.0" + // specversion
		"\x01\x00\x00\x00\x05id 1%" + // id
		"\x01\x00\x00\x00\x08reporter" + // source
		"\x01\x00\x00\x00\x1dstudio.lerian.report.finished" + // type
		"\x01\x00\x00\x00\x142026-03-01T10:00:00Z" + // time
		"\x00" + // subject
		"\x01\x00\x00\x00\x00" + // tenantid, empty
		"\x01\x00\x00\x00\x10application/json" + // datacontenttype
		"\x00" + // dataschema
		"\x01\x00\x00\x00\x052.0.0" + // schemaversion
		"\x01\x00\x00\x00\x06report" + // resourcetype
		"\x01\x00\x00\x00\x08finished" + // eventtype
		"\x00" + // systemevent
		"\x01\x00\x00\x00\x02" + kid + // sigkid
		"\x01\x00\x00\x00\x0a1772359200" + // sigts
		string(sum[:])
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return "v1." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

const signedBody = `{"report_id":"r-1"}`

func signedHeaders() map[string][]string {
	return finished("ce-id", "id 1%", "ce-type", "studio.lerian.report.finished", "ce-time", "2026-03-01T10:00:00Z",
		"ce-subject", "-", "ce-tenantid", "", "ce-sigkid", "k1", "ce-sigts", "1772359200", "ce-sig", signedBy(testSecret, "k1", signedBody))
}

func TestProducerSignatures(t *testing.T) {
	t.Parallel()
	n := normaliser(t, func(c *Config) {
		c.SigningKeys = []SigningKey{
			{ID: "k0", Source: "reporter", Secret: setting.NewSecret(strings.Repeat("0", 32))},
			{ID: "k1", Source: "reporter", Secret: setting.NewSecret(testSecret)},
			{ID: "k2", Source: "fetcher", Secret: setting.NewSecret(testSecret)},
		}
	})
	set := func(changes ...string) map[string][]string {
		headers := signedHeaders()
		for i := 0; i < len(changes); i += 2 {
			headers[changes[i]] = []string{changes[i+1]}
		}
		return headers
	}
	without := func(names ...string) map[string][]string {
		headers := signedHeaders()
		for _, name := range names {
			delete(headers, name)
		}
		return headers
	}
	inContentType := without("ce-datacontenttype")
	inContentType["Content-Type"] = []string{"application/json"}
	for name, c := range map[string]struct {
		headers map[string][]string
		body    string
		want    Verdict
	}{
		"good":                            {headers: set()},
		"values percent-encoded":          {headers: set("ce-id", "id%201%25")},
		"type in the content type":        {headers: inContentType},
		"content type of the transport":   {headers: set("content-type", "application/octet-stream")},
		"body changed":                    {headers: set(), body: `{"report_id":"r-2"}`, want: Reject},
		"id changed":                      {headers: set("ce-id", "id 2%"), want: Reject},
		"attribute added":                 {headers: set("ce-subject", "r-2"), want: Reject},
		"empty attribute removed":         {headers: without("ce-tenantid"), want: Reject},
		"source changed":                  {headers: set("ce-source", "fetcher"), want: Reject},
		"key of another source":           {headers: set("ce-sigkid", "k2"), want: Reject},
		"signed with another source's":    {headers: set("ce-sigkid", "k2", "ce-sig", signedBy(testSecret, "k2", signedBody)), want: Reject},
		"another key":                     {headers: set("ce-sigkid", "k0"), want: Reject},
		"unknown key":                     {headers: set("ce-sigkid", "k9"), want: Reject},
		"another signature version":       {headers: set("ce-sig", "v2."+signedBy(testSecret, "k1", signedBody)[3:]), want: Reject},
		"signature is no base64":          {headers: set("ce-sig", "v1.!"), want: Reject},
		"signature cut":                   {headers: set("ce-sig", signedBy(testSecret, "k1", signedBody)[:20]), want: Reject},
		"unsigned":                        {headers: without("ce-sig"), want: Quarantine},
		"unsigned and broken":             {headers: without("ce-sig", "ce-id"), want: Quarantine},
		"another event, unsigned":         {headers: with(set("ce-eventtype", "created", "ce-type", ""), "ce-sig"), want: Skip},
		"another event, unknown producer": {headers: set("ce-eventtype", "created", "ce-type", "", "ce-sigkid", "k9"), want: Skip},
	} {
		if c.body == "" {
			c.body = signedBody
		}
		got := n.Delivery(Message{Headers: c.headers, Body: []byte(c.body)})
		if got.Verdict != c.want {
			t.Errorf("%s: verdict %d, reason %q; want %d", name, got.Verdict, got.Reason, c.want)
		}
		if got.Verdict == Accept && got.Event.ID != "id 1%" {
			t.Errorf("%s: id %q is not the one that was signed", name, got.Event.ID)
		}
	}
}

func TestSignatureTellsHowAPercentSignWasMeant(t *testing.T) {
	t.Parallel()
	n := normaliser(t, func(c *Config) {
		c.SigningKeys = []SigningKey{{ID: "k", Source: "reporter", Secret: setting.NewSecret(testSecret)}}
	})
	headers := finished("ce-id", "a%20b") // the very id, not an encoded space
	attrs, err := decodeBinary(Message{Headers: headers})
	if err != nil {
		t.Fatal(err)
	}
	raw := attrs.readings[len(attrs.readings)-1]
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write(canonical(raw, sha256.Sum256([]byte(signedBody))))
	headers["ce-sig"] = []string{"v1." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))}
	got := n.Delivery(Message{Headers: headers, Body: []byte(signedBody)})
	if got.Verdict != Accept || got.Event.ID != "a%20b" {
		t.Errorf("%d %q %s", got.Verdict, got.Event.ID, got.Reason)
	}
}

func TestStructuredEventsCarrySignatures(t *testing.T) {
	t.Parallel()
	n := normaliser(t, func(c *Config) {
		c.SigningKeys = []SigningKey{{ID: "k1", Source: "reporter", Secret: setting.NewSecret(testSecret)}}
	})
	body := `{"specversion":"1.0","id":"id 1%","source":"reporter","type":"studio.lerian.report.finished",
		"time":"2026-03-01T10:00:00Z","tenantid":"","datacontenttype":"application/json","schemaversion":"2.0.0",
		"resourcetype":"report","eventtype":"finished","sigkid":"k1","sigts":1772359200,
		"sig":"` + signedBy(testSecret, "k1", signedBody) + `","data":` + signedBody + `}`
	if got := n.Delivery(Message{ContentType: structuredType, Body: []byte(body)}); got.Verdict != Accept {
		t.Errorf("%d %s", got.Verdict, got.Reason)
	}
}
