package command_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"recibo/sandbox"
)

type upstreamKey struct{}

// upstream is the Hub and the Reporter of one script.
type upstream struct{ sb *sandbox.Sandbox }

func (u *upstream) close() {
	if u.sb != nil {
		u.sb.Close()
	}
}

func of(ts *testscript.TestScript) *sandbox.Sandbox {
	u := ts.Value(upstreamKey{}).(*upstream)
	if u.sb == nil {
		ts.Fatalf("the script has not started its upstream")
	}
	return u.sb
}

// startUpstream is `upstream [token=T] [client=ID secret=S] [era=2026] [user=U password=P]`. It brings up a Hub and a
// Reporter, and puts their addresses into NATS_URL and REPORTER_URL, and where recibo finds them without a file.
func startUpstream(ts *testscript.TestScript, neg bool, args []string) {
	o := options(ts, neg, args)
	so := sandbox.Options{
		Reporter: sandbox.ReporterOptions{Token: o.text("token"), ClientID: o.text("client"), ClientSecret: o.text("secret")},
		Hub:      sandbox.HubOptions{User: o.text("user"), Password: o.text("password")},
	}
	if o.text("era") == "2026" {
		so.Reporter.Era = sandbox.V2026
	}
	o.done()
	sb, err := sandbox.Start(context.Background(), so)
	ts.Check(err)
	ts.Value(upstreamKey{}).(*upstream).sb = sb
	for name, value := range map[string]string{"NATS_URL": sb.NATSURL(), "REPORTER_URL": sb.ReporterURL()} {
		ts.Setenv(name, value)
	}
	ts.Setenv("RECIBO_HUB_NATS_URL", sb.NATSURL())
	ts.Setenv("RECIBO_REPORTER_URL", sb.ReporterURL())
}

// addReport is `report ID [status=Finished] [format=pdf] [size=BYTES] [age=3h] [metadata=JSON]`: the Reporter knows it.
func addReport(ts *testscript.TestScript, neg bool, args []string) {
	id, args := first(ts, args)
	o := options(ts, neg, args)
	r := sandbox.Report{
		ID: id, Status: o.text("status"), Format: o.text("format"), Size: o.number("size"), CreatedAt: time.Now().Add(-o.duration("age")),
	}
	if m := o.text("metadata"); m != "" {
		r.Metadata = json.RawMessage(m)
	}
	o.done()
	of(ts).Reporter.Add(r)
}

// completeReport is `complete ID [status=Finished] [metadata=JSON]`: a report in progress comes to its end.
func completeReport(ts *testscript.TestScript, neg bool, args []string) {
	id, args := first(ts, args)
	o := options(ts, neg, args)
	status, metadata := o.text("status"), o.text("metadata")
	o.done()
	change(ts, id, func(r *sandbox.Report) {
		r.Status, r.CompletedAt = sandbox.Finished, time.Now()
		if status != "" {
			r.Status = status
		}
		if metadata != "" {
			r.Metadata = json.RawMessage(metadata)
		}
	})
}

// regenerateReport is `regenerate ID [seed=N]`: the report is made again, with other bytes unless told otherwise.
func regenerateReport(ts *testscript.TestScript, neg bool, args []string) {
	id, args := first(ts, args)
	o := options(ts, neg, args)
	seed := uint64(o.number("seed"))
	o.done()
	change(ts, id, func(r *sandbox.Report) {
		if seed == 0 {
			seed = r.Seed + 1
		}
		r.Seed, r.Status, r.CompletedAt = seed, sandbox.Finished, r.CompletedAt.Add(time.Minute)
	})
}

func change(ts *testscript.TestScript, id string, f func(*sandbox.Report)) {
	if !of(ts).Reporter.Set(id, f) {
		ts.Fatalf("the Reporter has no report %s", id)
	}
}

// forgetReport is `forget ID`.
func forgetReport(ts *testscript.TestScript, _ bool, args []string) {
	id, _ := first(ts, args)
	of(ts).Reporter.Remove(id)
}

// publishEvent is `event ID [id=EVENT] [name=report.finished] [version=2.0.0] [tenant=T] [data=BYTES] [ce-…=VALUE]`: an event
// about the report ID, which may be "" for none; a header without a value is left out.
func publishEvent(ts *testscript.TestScript, neg bool, args []string) {
	report, args := first(ts, args)
	o := options(ts, neg, args)
	e := sandbox.Event{
		ID: o.text("id"), Name: o.text("name"), ReportID: report, Version: o.text("version"), Tenant: o.text("tenant"),
		Headers: map[string]string{},
	}
	if data, ok := o.values["data"]; ok {
		e.Data = []byte(data)
		delete(o.values, "data")
	}
	for name, value := range o.values {
		if strings.HasPrefix(name, "ce-") {
			e.Headers[name] = value
			delete(o.values, name)
		}
	}
	o.done()
	ts.Check(of(ts).Hub.Publish(context.Background(), e))
}

var faultKinds = map[string]sandbox.FaultKind{
	"CutBody": sandbox.CutBody, "SlowBytes": sandbox.SlowBytes, "Hang": sandbox.Hang, "TooMany": sandbox.TooMany,
	"Status": sandbox.Status, "HTMLInstead": sandbox.HTMLInstead, "NotReady": sandbox.NotReady, "MissingFile": sandbox.MissingFile,
	"LateFirstByte": sandbox.LateFirstByte,
}

// orderFault is `fault CLASS N KIND [bytes=N] [interval=DURATION] [code=STATUS] [body=TEXT] [retry=SECONDS]`: the next N answers
// of the class, -1 for all, meet it; 0 ends what was ordered.
func orderFault(ts *testscript.TestScript, neg bool, args []string) {
	class, args := first(ts, args)
	count, args := first(ts, args)
	n, err := strconv.Atoi(count)
	ts.Check(err)
	if n == 0 {
		of(ts).Reporter.Fault(class, 0, sandbox.Fault{})
		return
	}
	name, args := first(ts, args)
	kind, ok := faultKinds[name]
	if !ok {
		ts.Fatalf("unknown fault %s", name)
	}
	o := options(ts, neg, args)
	f := sandbox.Fault{
		Kind: kind, Bytes: o.number("bytes"), Interval: o.duration("interval"), Code: int(o.number("code")), Body: o.text("body"),
		RetryAfter: o.text("retry"),
	}
	o.done()
	of(ts).Reporter.Fault(class, n, f)
}

// takeDown is `down up|refuse|unavailable|unauthorised|silent`: how the whole Reporter is.
func takeDown(ts *testscript.TestScript, _ bool, args []string) {
	modes := map[string]sandbox.DownMode{
		"up": sandbox.Up, "refuse": sandbox.Refuse, "unavailable": sandbox.Unavailable, "unauthorised": sandbox.Unauthorised,
		"silent": sandbox.Silent,
	}
	name, _ := first(ts, args)
	mode, ok := modes[name]
	if !ok {
		ts.Fatalf("unknown mode %s", name)
	}
	of(ts).Reporter.Down(mode)
}

// denyClasses is `deny CLASS…`: these classes of request are answered 403 from now on, and no others.
func denyClasses(ts *testscript.TestScript, _ bool, args []string) { of(ts).Reporter.Deny(args...) }

// revokeTokens is `revoke`: every token given so far is worthless.
func revokeTokens(ts *testscript.TestScript, _ bool, _ []string) { of(ts).Reporter.RevokeTokens() }

// driveHub is `hub stop`, `hub start` or `hub consumer-lost DURABLE`.
func driveHub(ts *testscript.TestScript, _ bool, args []string) {
	what, args := first(ts, args)
	h := of(ts).Hub
	switch what {
	case "stop":
		h.Stop()
	case "start":
		ts.Check(h.Start())
	case "consumer-lost":
		durable, _ := first(ts, args)
		ts.Check(h.DeleteConsumer(durable))
	default:
		ts.Fatalf("unknown: hub %s", what)
	}
}

func first(ts *testscript.TestScript, args []string) (string, []string) {
	if len(args) == 0 {
		ts.Fatalf("an argument is missing")
	}
	return args[0], args[1:]
}

// keyValues are arguments of the form key=value.
type keyValues struct {
	ts     *testscript.TestScript
	values map[string]string
}

func options(ts *testscript.TestScript, neg bool, args []string) *keyValues {
	if neg {
		ts.Fatalf("! means nothing here")
	}
	o := &keyValues{ts, map[string]string{}}
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok {
			ts.Fatalf("%q is not of the form key=value", arg)
		}
		o.values[key] = value
	}
	return o
}

func (o *keyValues) text(key string) string {
	value := o.values[key]
	delete(o.values, key)
	return value
}

func (o *keyValues) number(key string) int64 {
	value := o.text(key)
	if value == "" {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 64)
	o.ts.Check(err)
	return n
}

func (o *keyValues) duration(key string) time.Duration {
	value := o.text(key)
	if value == "" {
		return 0
	}
	d, err := time.ParseDuration(value)
	o.ts.Check(err)
	return d
}

// done complains about what nobody asked for.
func (o *keyValues) done() {
	for key := range o.values {
		o.ts.Fatalf("unknown option %s", key)
	}
}
