package fetcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"recibo/hub"
)

func FuzzDelivery(f *testing.F) {
	all := load(f)
	c := keyed(all.Keys.ExternalHMACKeyHex)
	c.LegacySignatures = true
	v := verifier(f, c)
	for _, e := range all.Events {
		headers, err := json.Marshal(e.message().Headers)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(headers, e.RoutingKey, []byte(e.Body))
	}
	f.Add([]byte(`{"t":["1"],"T":["2"]}`), "job.failed.x", []byte(failedBody))
	known := map[string]bool{}
	for _, e := range all.Events {
		known[e.Body] = e.Valid || known[e.Body]
	}
	f.Fuzz(func(t *testing.T, rawHeaders []byte, routingKey string, raw []byte) {
		var headers map[string][]string
		if json.Unmarshal(rawHeaders, &headers) != nil {
			t.Skip()
		}
		before := bytes.Clone(raw)
		d := v.Delivery(hub.Message{Headers: headers, Body: raw}, Route{"fetcher.job.events", routingKey})
		switch {
		case d.Verdict == hub.Accept && !known[string(raw)]:
			t.Errorf("accepted a body that nobody signed: %q", raw)
		case d.Verdict == hub.Accept && (d.Event.ID != "fetcher."+d.Event.Name+"."+d.Event.ReportID || !PlainID(d.Event.ReportID)):
			t.Errorf("accepted as %q", d.Event.ID)
		case d.Verdict != hub.Accept && d.Reason == "", d.Verdict == hub.Reject:
			t.Errorf("verdict %d, reason %q", d.Verdict, d.Reason)
		case !bytes.Equal(raw, before) || len(d.Event.ID) > hub.MaxID:
			t.Error("the message was changed, or its id is too long")
		}
	})
}

func FuzzSignature(f *testing.F) {
	v := verifier(f, keyed(keyA))
	f.Add(fmt.Sprint(signed), "v1", "acme", "fetcher.job.events", []byte(completedBody("acme/", "")), byte(0), 3)
	f.Add("0", "v1", "", "x", []byte(failedBody), byte(1), 0)
	f.Fuzz(func(t *testing.T, at, version, tenant, exchange string, raw []byte, flip byte, where int) {
		sign := &forged{time: at, version: version, tenant: tenant, exchange: exchange, routingKey: JobCompleted, body: string(raw), key: keyA}
		m, route := sign.message()
		if strings.Contains(string(raw), jobID) && len(raw) > 0 && flip != 0 {
			if d := v.Delivery(m, route); d.Verdict == hub.Accept {
				m.Body = bytes.Clone(m.Body)
				m.Body[uint(where)%uint(len(m.Body))] ^= flip
				if d := v.Delivery(m, route); d.Verdict == hub.Accept {
					t.Errorf("accepted with a byte changed: %q", m.Body)
				}
				return
			}
		}
		m.Headers["x-message-signature"] = []string{macOf(keyB, string(raw))}
		if d := v.Delivery(m, route); d.Verdict == hub.Accept {
			t.Errorf("accepted without a signature")
		}
	})
}
