package fetcher

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"recibo/hub"
	"recibo/setting"
)

func verifier(t testing.TB, c Config) *Verifier {
	t.Helper()
	v, err := NewVerifier(c, VerifierOptions{Now: atSigning})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func keyed(keys ...string) Config {
	c := DefaultConfig()
	c.ExternalHMACKey = secrets(keys...)
	return c
}

// complete is a section that nothing is missing in.
func complete() Config {
	c := keyed(keyA)
	c.StorageKey = secrets(keyB)
	c.Objects.Endpoint, c.Objects.Bucket = "https://s3.example.org", bucket
	return c
}

func TestEveryVector(t *testing.T) {
	t.Parallel()
	all := load(t)
	c := keyed(all.Keys.ExternalHMACKeyHex)
	for _, legacy := range []bool{false, true} {
		c.LegacySignatures = legacy
		v := verifier(t, c)
		for _, vector := range all.Events {
			d := v.Delivery(vector.message(), vector.route())
			if !vector.Valid {
				if d.Verdict != hub.Quarantine || !strings.HasPrefix(d.Reason, "signature: ") {
					t.Errorf("%s (%s): verdict %d, %q", vector.Name, vector.Note, d.Verdict, d.Reason)
				}
				continue
			}
			e := d.Event
			if d.Verdict != hub.Accept || e.ID != vector.CEID || e.Name != vector.RoutingKey || e.ReportID != vector.JobID ||
				e.Tenant != vector.TenantID || e.Source != "//lerian.fetcher/worker" || e.Version != "1.0.0" ||
				string(e.Data) != vector.Body || string(d.Raw) != vector.Body || d.Transport != "amqp" || d.Origin != "recibo.jobs 7" {
				t.Errorf("%s: %+v", vector.Name, d)
			}
			if want := time.Date(2026, 6, 24, 12, 0, 0, 123456789, time.UTC); !e.Time.Equal(want) {
				t.Errorf("%s: at %s", vector.Name, e.Time)
			}
		}
	}
}

func TestReasonsNameNoKey(t *testing.T) {
	t.Parallel()
	v := verifier(t, keyed(keyA, keyB))
	f := good()
	f.key = keyC
	m, route := f.message()
	d := v.Delivery(m, route)
	if d.Verdict != hub.Quarantine || holds(d.Reason, "aaaa") || holds(d.Reason, "bbbb") || holds(d.Reason, m.Headers["x-message-signature"][0]) {
		t.Error(d.Reason)
	}
}

func TestOtherRoutingKeysAreSkipped(t *testing.T) {
	t.Parallel()
	for _, legacy := range []bool{false, true} {
		c := keyed(keyA)
		c.LegacySignatures = legacy
		v := verifier(t, c)
		for _, key := range []string{"", "job", "job.", "job.started", "Job.completed", "job.completed.", "xjob.completed", "report.finished",
			"job.completedx", " job.completed"} {
			f := good()
			m, route := f.message()
			route.RoutingKey = key
			if d := v.Delivery(m, route); d.Verdict != hub.Skip || d.Reason == "" {
				t.Errorf("%q: verdict %d, %q", key, d.Verdict, d.Reason)
			}
		}
	}
}

func TestOfAForgeryNoMoreThanAMebibyteIsKept(t *testing.T) {
	t.Parallel()
	v := verifier(t, keyed(keyA))
	f := good()
	f.body = completedBody("acme/", `,"pad":"`+strings.Repeat("x", MaxUnverified)+`"`)
	m, route := f.message()
	if d := v.Delivery(m, route); d.Verdict != hub.Accept || len(d.Raw) != len(f.body) || len(d.Event.Data) != len(f.body) {
		t.Errorf("authentic: verdict %d, %d bytes: %s", d.Verdict, len(d.Raw), d.Reason)
	}
	m.Headers["x-message-signature"] = []string{strings.Repeat("0", 64)}
	if d := v.Delivery(m, route); d.Verdict != hub.Quarantine || len(d.Raw) != MaxUnverified || len(d.Event.Data) != MaxUnverified {
		t.Errorf("forged: verdict %d, %d bytes", d.Verdict, len(d.Raw))
	}
}

func TestMessagesOfVersionOneAreTakenOnlyWhereTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	all := load(t)
	old := all.Legacy
	message := func() hub.Message {
		return hub.Message{Body: []byte(old.Body), Headers: map[string][]string{
			"t": {fmt.Sprint(old.Timestamp)}, "x-message-signature": {old.Signature},
		}}
	}
	route := Route{old.Exchange, old.RoutingKey}
	c := keyed(all.Keys.ExternalHMACKeyHex)
	if d := verifier(t, c).Delivery(message(), route); d.Verdict != hub.Quarantine || !holds(d.Reason, "fetcher.legacy_signatures") {
		t.Errorf("not asked for: verdict %d, %q", d.Verdict, d.Reason)
	}
	c.LegacySignatures = true
	v := verifier(t, c)
	d := v.Delivery(message(), route)
	if d.Verdict != hub.Accept || d.Event.ID != "fetcher.job.completed."+jobID || d.Event.Name != JobCompleted || d.Event.ReportID != jobID ||
		d.Event.Tenant != "" {
		t.Errorf("asked for: verdict %d, %+v", d.Verdict, d)
	}
	for name, test := range map[string]struct {
		change func(m *hub.Message, r *Route)
		want   string
	}{
		"body changed":          {func(m *hub.Message, _ *Route) { m.Body[len(m.Body)-3]++ }, "signature: does not fit"},
		"time changed":          {func(m *hub.Message, _ *Route) { m.Headers["t"] = []string{"1"} }, "signature: does not fit"},
		"as failed":             {func(_ *hub.Message, r *Route) { r.RoutingKey = "job.failed.reporter" }, "status: "},
		"on the route of v2":    {func(_ *hub.Message, r *Route) { r.RoutingKey = JobCompleted }, "signature: "},
		"with headers of v2":    {func(m *hub.Message, _ *Route) { m.Headers["ce-id"] = []string{"x"} }, "form: "},
		"tenant as an unsigned": {func(m *hub.Message, _ *Route) { m.Headers["X-Tenant-ID"] = []string{"evil"} }, ""},
	} {
		m, r := message(), route
		test.change(&m, &r)
		d := v.Delivery(m, r)
		if test.want == "" && (d.Verdict != hub.Accept || d.Event.Tenant != "") ||
			test.want != "" && (d.Verdict != hub.Quarantine || !holds(d.Reason, test.want)) {
			t.Errorf("%s: verdict %d, %q, tenant %q", name, d.Verdict, d.Reason, d.Event.Tenant)
		}
	}
}

func TestEachSourceIsVerifiedWithItsOwnKeys(t *testing.T) {
	t.Parallel()
	c := keyed(keyC)
	c.Sources = []SourceConfig{
		{Tenant: "acme", ExternalHMACKey: secrets(keyB)},
		{Source: "//one", ExternalHMACKey: secrets(keyA)},
		{Source: "//one", Tenant: "acme", ExternalHMACKey: secrets(keyB, keyA)},
		{Source: "//two"},
		{Tenant: "single-tenant"},
	}
	v := verifier(t, c)
	for name, test := range map[string]struct{ source, tenant, key, want string }{
		"its own":                        {"//one", "other", keyA, ""},
		"with another's key":             {"//one", "other", keyB, "signature: does not fit"},
		"both fit: the narrower":         {"//one", "acme", keyB, ""},
		"both fit: its second key":       {"//one", "acme", keyA, ""},
		"both fit: the section's key":    {"//one", "acme", keyC, "signature: does not fit"},
		"the tenant's, whatever source":  {"//three", "acme", keyB, ""},
		"without a key: the section's":   {"//two", "other", keyC, ""},
		"the source before the tenant":   {"//two", "acme", keyC, ""},
		"the source, with the tenant's":  {"//two", "acme", keyB, "signature: does not fit"},
		"neither is configured":          {"//three", "other", keyC, `source: "//three" of tenant "other" is not among fetcher.sources`},
		"no tenant is the single tenant": {"//three", "", keyC, ""},
		"another case":                   {"//ONE", "other", keyA, "source: "},
	} {
		f := good()
		f.tenant, f.key = test.tenant, test.key
		f.body = completedBody(strings.TrimPrefix(test.tenant+"/", "/"), "")
		f.headers = map[string]string{"ce-source": test.source}
		m, route := f.message()
		if test.tenant == "" {
			m.Headers["ce-tenantid"] = []string{"single-tenant"}
		}
		d := v.Delivery(m, route)
		if test.want == "" && d.Verdict != hub.Accept || test.want != "" && (d.Verdict != hub.Quarantine || !holds(d.Reason, test.want)) {
			t.Errorf("%s: verdict %d, %q", name, d.Verdict, d.Reason)
		}
	}
}

func TestAKeptMessageIsJudgedAgainOnceItsKeyIsThere(t *testing.T) {
	t.Parallel()
	f := good()
	f.key = keyB
	m, route := f.message()
	m.Headers["Traceparent"] = []string{"00-1-2-01"}
	m.Headers["x-secret"] = []string{"not to be kept"}
	kept := verifier(t, keyed(keyA)).Delivery(m, route)
	if kept.Verdict != hub.Quarantine || kept.Event.Headers["traceparent"] == "" || kept.Event.Headers["x-secret"] != "" {
		t.Fatalf("verdict %d, headers %v", kept.Verdict, kept.Event.Headers)
	}
	again := verifier(t, keyed(keyA, keyB)).Again(kept.Event.Headers, kept.Raw, "amqp", "here")
	if again.Verdict != hub.Accept || again.Event.ID != "fetcher.job.completed."+jobID || again.Origin != "here" {
		t.Errorf("verdict %d: %s", again.Verdict, again.Reason)
	}
	if again := verifier(t, keyed(keyA)).Again(kept.Event.Headers, kept.Raw, "amqp", ""); again.Verdict != hub.Quarantine {
		t.Error("accepted without its key")
	}
}

func TestKeysAreTakenIntoForceWithoutARestart(t *testing.T) {
	t.Parallel()
	all := load(t)
	file := t.TempDir() + "/key"
	writeFile(t, file, keyA)
	list, err := setting.SecretsFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	v := verifier(t, Config{ExternalHMACKey: list})
	vector := all.Events[0]
	if d := v.Delivery(vector.message(), vector.route()); d.Verdict != hub.Quarantine {
		t.Fatal("accepted with another key")
	}
	writeFile(t, file, keyA+"\n"+all.Keys.ExternalHMACKeyHex+"\n")
	if d := v.Delivery(vector.message(), vector.route()); d.Verdict != hub.Accept {
		t.Error(d.Reason)
	}
}

// A rotation that went wrong keeps the keys from before. Whoever looks for why a message does not fit is told.
func TestAKeyFileThatCanNotBeUsedIsNamedWhereNoKeyFits(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	writeFile(t, file, keyA)
	list, err := setting.SecretsFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	v := verifier(t, Config{ExternalHMACKey: list})
	own, route := good().message()
	foreign := good()
	foreign.key = keyB
	other, _ := foreign.message()
	for _, step := range []struct{ what, content, note string }{
		{"good", keyA, ""},
		{"a typing error", keyB + "x", "fetcher.external_hmac_key: entry 1 of " + file + " must be 64 hex digits"},
		{"empty", "", "fetcher.external_hmac_key: " + file + ": "},
		{"good again", keyA + "\n", ""},
	} {
		writeFile(t, file, step.content)
		if d := v.Delivery(own, route); d.Verdict != hub.Accept {
			t.Errorf("%s: the key from before is not in force: %s", step.what, d.Reason)
		}
		d := v.Delivery(other, route)
		if _, note, noted := strings.Cut(d.Reason, "; older keys are in force"); noted != (step.note != "") || !strings.Contains(note, step.note) {
			t.Errorf("%s: %s", step.what, d.Reason)
		}
		if strings.Contains(d.Reason, keyB) {
			t.Errorf("%s: a key is shown", step.what)
		}
	}
}

func TestAVerifierNeedsAKeyForEverySource(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{
		"fetcher.external_hmac_key: missing":            {},
		"fetcher.external_hmac_key: entry 2 ":           keyed(keyA, "x"),
		"fetcher.sources[1].external_hmac_key: missing": {Sources: []SourceConfig{{Source: "a", ExternalHMACKey: secrets(keyA)}, {Source: "b"}}},
	} {
		if _, err := NewVerifier(c, VerifierOptions{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

// A job's id may be written in capitals: it is the same job, and what comes again about it is a repetition.
func TestOneJobInTwoSpellingsOfItsIDIsOne(t *testing.T) {
	t.Parallel()
	capitals := strings.ToUpper(jobID)
	f := good()
	f.body = strings.ReplaceAll(f.body, jobID, capitals)
	m, route := f.message()
	m.Headers["x-message-signature"] = []string{macOf(f.key,
		f.time+"\n"+f.version+"\n"+f.tenant+"\n"+capitals+"\n"+f.exchange+"\n"+f.routingKey+"\n"+f.body)}
	m.Headers["ce-id"], m.Headers["ce-subject"] = []string{"fetcher.job.completed." + capitals}, []string{capitals}
	v, err := NewVerifier(keyed(keyA), VerifierOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if d := v.Delivery(m, route); d.Verdict != hub.Accept || d.Event.ID != "fetcher.job.completed."+jobID {
		t.Errorf("%v %q: %s", d.Verdict, d.Event.ID, d.Reason)
	}
}
