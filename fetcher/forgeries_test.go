package fetcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"recibo/hub"
)

// forged is a message and how it differs from a good one; fields are what the signature is made of.
type forged struct {
	time, version, tenant, exchange, routingKey, body, key string

	headers map[string]string // replaced after signing; "-" removes one
	after   func(*forged)     // changed after signing
}

func good() *forged {
	return &forged{
		time: fmt.Sprint(signed), version: "v1", tenant: "acme", exchange: "fetcher.job.events", routingKey: "job.completed", key: keyA,
		body: completedBody("acme/", ""),
	}
}

func completedBody(folder, with string) string {
	mac := strings.Repeat("0f", 32)
	return `{"jobId":"` + jobID + `","metadata":{"source":"reporter"},"status":"completed","result":{"path":"` + folder +
		`external-data/` + jobID + `.json","sizeBytes":799,"rowCount":4,"format":"json","hmac":"` + mac +
		`","integrity":{"algorithm":"HMAC-SHA256","signature":"` + mac +
		`"},"protection":{"encrypted":true,"mode":"adapter-managed","appliedBy":"adapter"}},"executionTimeMs":42` + with + `}`
}

const failedBody = `{"jobId":"` + jobID + `","metadata":{"error":{"message":"no such host"},"source":"reporter"},"status":"failed"}`

// message signs by the words of the contract, apart from the code under test.
func (f *forged) message() (hub.Message, Route) {
	mac := macOf(f.key, f.time+"\n"+f.version+"\n"+f.tenant+"\n"+jobID+"\n"+f.exchange+"\n"+f.routingKey+"\n"+f.body)
	if f.after != nil {
		f.after(f)
	}
	status := strings.TrimPrefix(f.routingKey, "job.")
	headers := map[string]string{
		"t": f.time, "signature-version": f.version, "X-Tenant-ID": f.tenant, "x-message-signature": mac,
		"ce-id": "fetcher.job." + status + "." + jobID, "ce-specversion": "1.0", "ce-source": "//lerian.fetcher/worker",
		"ce-type": "studio.lerian.job." + status, "ce-tenantid": f.tenant, "ce-subject": jobID, "ce-resourcetype": "job",
		"ce-eventtype": status, "ce-schemaversion": "1.0.0", "ce-time": "2026-06-24T12:00:00Z",
	}
	for name, value := range f.headers {
		headers[name] = value
	}
	m := hub.Message{Headers: map[string][]string{}, Body: []byte(f.body)}
	for name, value := range headers {
		if value != "-" {
			m.Headers[name] = []string{value}
		}
	}
	return m, Route{f.exchange, f.routingKey}
}

func replaced(old, with string) func(*forged) {
	return func(f *forged) { f.body = strings.Replace(f.body, old, with, 1) }
}

func header(name, value string) func(*forged) {
	return func(f *forged) { f.headers = map[string]string{name: value} }
}

func after(change func(*forged)) func(*forged) { return func(f *forged) { f.after = change } }

func bodyOf(text string) func(*forged) { return func(f *forged) { f.body = text } }

func aheadBy(d time.Duration) func(*forged) {
	return func(f *forged) { f.time = fmt.Sprint(signed + int64(d/time.Second)) }
}

func failedAs(text string) func(*forged) {
	return func(f *forged) { f.routingKey, f.body = JobFailed, text }
}

func both(changes ...func(*forged)) func(*forged) {
	return func(f *forged) {
		for _, change := range changes {
			change(f)
		}
	}
}

// judgedMessages: an empty reason is a message that is accepted.
var judgedMessages = map[string]struct {
	change func(*forged)
	want   string
}{
	"good":              {func(*forged) {}, ""},
	"failed":            {failedAs(failedBody), ""},
	"signed by another": {func(f *forged) { f.key = keyC }, "signature: does not fit"},
	"signed with the second key": {func(f *forged) {
		f.key = keyB
	}, ""},
	"body changed":                {after(replaced(`"rowCount":4`, `"rowCount":5`)), "signature: does not fit"},
	"body with a space more":      {after(func(f *forged) { f.body += " " }), "signature: does not fit"},
	"under another tenant":        {after(func(f *forged) { f.tenant = "evil" }), "signature: does not fit"},
	"under another route":         {after(func(f *forged) { f.routingKey = JobFailed }), "signature: does not fit"},
	"through another exchange":    {after(func(f *forged) { f.exchange = "evil" }), "signature: does not fit"},
	"at another time":             {after(func(f *forged) { f.time += "0" }), "signature: does not fit"},
	"tenant header removed":       {header("X-Tenant-ID", "-"), "signature: does not fit"},
	"of another job":              {after(replaced(jobID, "1"+jobID[1:])), "signature: does not fit"},
	"upper-case digits":           {both(func(f *forged) { f.after = func(*forged) {} }, upperSignature), "signature: does not fit"},
	"unsigned":                    {header("x-message-signature", "-"), "signature: header x-message-signature is missing"},
	"signature empty":             {header("x-message-signature", ""), "signature: header x-message-signature is missing"},
	"signature cut":               {header("x-message-signature", "0f0f"), "signature: does not fit"},
	"three days old":              {aheadBy(-72 * time.Hour), ""},
	"of 1970":                     {func(f *forged) { f.time = "0" }, ""},
	"five minutes ahead":          {aheadBy(5 * time.Minute), ""},
	"five minutes and one second": {aheadBy(5*time.Minute + time.Second), "signature: its time is 5m1s ahead of this machine's clock, more than 5m is not taken"},
	"years ahead":                 {func(f *forged) { f.time = "1000000000000" }, "ahead of this machine's clock"},
	"no time":                     {func(f *forged) { f.time = "-" }, "signature: header t: missing"},
	"negative time":               {func(f *forged) { f.time = "-5" }, "signature: header t: "},
	"time with a sign":            {func(f *forged) { f.time = "+5" }, "signature: header t: "},
	"time in milliseconds":        {func(f *forged) { f.time = "1782302400000" }, "signature: header t: "},
	"time with a zero before":     {func(f *forged) { f.time = "01782302400" }, "signature: header t: "},
	"time with a line break":      {func(f *forged) { f.time = "1782302400\n" }, "signature: header t: "},
	"time as a fraction":          {func(f *forged) { f.time = "1782302400.5" }, "signature: header t: "},
	"version 2":                   {func(f *forged) { f.version = "v2" }, `signature: version "v2" is not v1`},
	"no version":                  {func(f *forged) { f.version = "" }, `signature: version "" is not v1`},
	"tenant breaks the line":      {func(f *forged) { f.tenant = "acme\n" + jobID }, "holds control characters"},
	"exchange breaks the line":    {func(f *forged) { f.exchange = "a\nb" }, "holds control characters"},

	"another ce-id":             {header("ce-id", "fetcher.job.completed.1"+jobID[1:]), "ce-id: "},
	"ce-id of the other status": {header("ce-id", "fetcher.job.failed."+jobID), "ce-id: "},
	"ce-id of upper case":       {header("ce-id", strings.ToUpper("fetcher.job.completed."+jobID)), "ce-id: "},
	"no ce-id":                  {header("ce-id", "-"), "ce-id: missing"},
	"no ce-specversion":         {header("ce-specversion", "-"), "ce-specversion: missing"},
	"another ce-subject":        {header("ce-subject", "x"), "ce-subject: "},
	"another ce-type":           {header("ce-type", "studio.lerian.job.failed"), "ce-type: "},
	"ce-type with a source":     {header("ce-type", "studio.lerian.fetcher.job.completed"), ""},
	"another ce-eventtype":      {header("ce-eventtype", "failed"), "ce-eventtype: "},
	"another major version":     {header("ce-schemaversion", "2.0.0"), "ce-schemaversion: "},
	"another ce-tenantid":       {header("ce-tenantid", "evil"), "ce-tenantid: "},
	"no ce-tenantid":            {header("ce-tenantid", "-"), "ce-tenantid: "},
	"no tenants at all": {both(func(f *forged) { f.tenant = "" }, bodyOf(completedBody("", "")), header("ce-tenantid", "single-tenant")),
		""},
	"tenant only unsigned": {both(func(f *forged) { f.tenant = "" }, header("ce-tenantid", "acme")), "ce-tenantid: "},
	"a header twice":       {header("T", "1782302401"), "headers: t is given twice, differently"},
	"a header twice alike": {header("T", fmt.Sprint(signed)), ""},
	"header names in any case": {func(f *forged) {
		f.headers = map[string]string{"ce-id": "-", "CE-ID": "fetcher.job.completed." + jobID, "X-Tenant-ID": "-", "x-tenant-id": "acme"}
	}, ""},

	"status of the other route":   {failedAs(completedBody("acme/", "")), `status: "completed" in the body, failed by the routing key`},
	"unknown status":              {bodyOf(strings.Replace(completedBody("acme/", ""), `"status":"completed"`, `"status":"done"`, 1)), "status: "},
	"failed with a result":        {failedAs(strings.Replace(completedBody("acme/", ""), `:"completed"`, `:"failed"`, 1)), "contract: failed with a result"},
	"completed without a result":  {bodyOf(strings.Replace(failedBody, `:"failed"`, `:"completed"`, 1)), "contract: completed without a result"},
	"result null":                 {bodyOf(`{"jobId":"` + jobID + `","status":"completed","result":null}`), "contract: completed without a result"},
	"another algorithm":           {replaced("HMAC-SHA256", "HMAC-SHA1"), "contract: result: integrity.algorithm: "},
	"another integrity signature": {replaced(`"signature":"0f`, `"signature":"0e`), "contract: result: integrity.signature: "},
	"not encrypted":               {replaced(`"encrypted":true`, `"encrypted":false`), "contract: result: protection.encrypted: "},
	"encrypted as text":           {replaced(`"encrypted":true`, `"encrypted":"true"`), "contract: result: protection.encrypted: "},
	"another mode":                {replaced("adapter-managed", "none"), "contract: result: protection.mode: "},
	"no integrity":                {replaced(`"integrity"`, `"other"`), "contract: result: integrity: "},
	"no protection":               {replaced(`"protection"`, `"other"`), "contract: result: protection: "},
	"neither": {both(replaced(`"integrity"`, `"other1"`), replaced(`"protection"`, `"other2"`)),
		"contract: result: integrity and protection are missing"},
	"hmac in upper case":      {both(replaced(`"hmac":"0f`, `"hmac":"0F`), replaced(`"signature":"0f`, `"signature":"0F`)), "contract: result: hmac: "},
	"no size":                 {replaced(`"sizeBytes":799,`, ``), "contract: result: sizeBytes: missing"},
	"negative size":           {replaced(`:799`, `:-1`), "contract: result: sizeBytes "},
	"size with a fraction":    {replaced(`:799`, `:7.5`), "contract: result: sizeBytes "},
	"size beyond 64 bits":     {replaced(`:799`, `:99999999999999999999`), "contract: result: sizeBytes "},
	"path of another tenant":  {bodyOf(completedBody("evil/", "")), "contract: result: path "},
	"path without the tenant": {bodyOf(completedBody("", "")), "contract: result: path "},
	"path climbs":             {bodyOf(completedBody("acme/../evil/", "")), "contract: result: path: "},
	"path from the root":      {bodyOf(completedBody("/acme/", "")), "contract: result: path: "},
	"path with a backslash":   {bodyOf(completedBody(`acme/..\\`, "")), "contract: result: path: "},
	"path with two slashes":   {bodyOf(completedBody("acme//", "")), "contract: result: path: "},
	"path with NUL":           {bodyOf(completedBody(`acme/\u0000`, "")), "contract: result: path: "},
	"member of a newer version": {bodyOf(completedBody("acme/", `,"retention":{"days":30}`)),
		""},

	"not JSON":                 {bodyOf(`jobId=` + jobID), "body: not JSON"},
	"empty":                    {bodyOf(``), "body: not JSON"},
	"JSON and more":            {bodyOf(failedBody + failedBody), "body: not JSON"},
	"a list":                   {bodyOf(`[` + failedBody + `]`), "body: not a JSON object"},
	"no jobId":                 {bodyOf(`{"status":"failed"}`), `body: jobId "" is no UUID`},
	"jobId twice":              {bodyOf(`{"jobId":"` + jobID + `",` + failedBody[1:]), "body: member jobId comes twice"},
	"jobId twice, one escaped": {bodyOf(`{"job\u0049d":"` + jobID + `",` + failedBody[1:]), "body: member jobId comes twice"},
	"a lookalike beside jobId": {bodyOf(`{"JOBID":"1` + jobID[1:] + `",` + failedBody[1:]), `body: member "JOBID" is not jobId`},
	"a lookalike for jobId":    {bodyOf(strings.Replace(failedBody, "jobId", "jobid", 1)), `body: member "jobid" is not jobId`},
	"a lookalike by Unicode":   {bodyOf(strings.Replace(failedBody, "status", "ſtatus", 1)), `is not status`},
	"status twice":             {bodyOf(`{"status":"completed",` + failedBody[1:]), "body: member status comes twice"},
	"result path twice":        {replaced(`"path":`, `"path":"acme/x","path":`), "contract: result: member path comes twice"},
	"integrity twice":          {replaced(`"integrity":`, `"integrity":{},"integrity":`), "contract: result: member integrity comes twice"},
	"jobId as a number":        {bodyOf(strings.Replace(failedBody, `"`+jobID+`"`, "7", 1)), "body: jobId is not a string"},
	"jobId as a list":          {bodyOf(strings.Replace(failedBody, `"`+jobID+`"`, `["`+jobID+`"]`, 1)), "body: jobId is not a string"},
	"jobId with a path":        {bodyOf(strings.Replace(failedBody, jobID, "../"+jobID[3:], 1)), "is no UUID"},
	"jobId with a line break":  {bodyOf(strings.Replace(failedBody, jobID, jobID[:35]+`\n`, 1)), "is no UUID"},
	"doubles in the requester's own": {failedAs(strings.Replace(failedBody, `"source"`, `"jobId":1,"JOBID":2,"JOBID":3,"source"`, 1)),
		""},
}

func upperSignature(f *forged) {
	m, _ := f.message()
	f.headers = map[string]string{"x-message-signature": strings.ToUpper(m.Headers["x-message-signature"][0])}
}

func TestMessagesAreJudgedByWhatIsSigned(t *testing.T) {
	t.Parallel()
	v := verifier(t, keyed(keyA, keyB))
	for name, test := range judgedMessages {
		f := good()
		test.change(f)
		m, route := f.message()
		d := v.Delivery(m, route)
		switch {
		case test.want == "" && (d.Verdict != hub.Accept || d.Reason != ""):
			t.Errorf("%s: verdict %d, %q", name, d.Verdict, d.Reason)
		case test.want != "" && (d.Verdict != hub.Quarantine || !strings.Contains(d.Reason, test.want)):
			t.Errorf("%s: verdict %d, %q, want %q", name, d.Verdict, d.Reason, test.want)
		case strings.ContainsAny(d.Reason, "\n\x00"):
			t.Errorf("%s: reason of several lines: %q", name, d.Reason)
		}
	}
}
