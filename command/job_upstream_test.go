package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"recibo/sandbox"
)

// sharedBroker is the RabbitMQ of all scripts, started by the first that needs it.
var sharedBroker = sync.OnceValues(func() (*sandbox.Broker, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	b, err := sandbox.StartBroker(ctx, sandbox.BrokerOptions{})
	if err != nil {
		return nil, err
	}
	brokerStarted = b
	return b, nil
})

// brokerStarted is the shared broker once it runs.
var brokerStarted *sandbox.Broker

// withBroker ends the shared broker after the tests.
type withBroker struct{ *testing.M }

func (m withBroker) Run() int {
	code := m.M.Run()
	if brokerStarted != nil {
		brokerStarted.Close()
	}
	return code
}

// noRabbitMQ is why a test is skipped.
const noRabbitMQ = "RabbitMQ is not installed: make setup installs it"

// condition is what scripts may ask for: [rabbitmq], whether there is one.
func condition(name string) (bool, error) {
	if name != "rabbitmq" {
		return false, fmt.Errorf("unknown condition %s", name)
	}
	_, err := sharedBroker()
	if errors.Is(err, sandbox.ErrNoRabbitMQ) {
		return false, nil
	}
	return err == nil, err
}

type workersKey struct{}

// workers are the Fetchers of one script, by the names that it gave them.
type workers struct {
	byName  map[string]*worker
	started int
}

// worker is a Fetcher with the objects that were spoiled, as they were.
type worker struct {
	*sandbox.Fetcher
	whole map[string][]byte
}

func (w *workers) close() {
	for _, f := range w.byName {
		f.Close()
	}
}

// addWorkers gives a script its Fetchers, which it has yet to start.
func addWorkers(env *testscript.Env) {
	w := &workers{byName: map[string]*worker{}}
	env.Values[workersKey{}] = w
	env.Defer(w.close)
}

// theFetcher is the name of a script's only Fetcher.
const theFetcher = "FETCHER"

// worker takes the option of=NAME, which every command about a job has.
func (o *keyValues) worker() *worker {
	name := o.text("of")
	if name == "" {
		name = theFetcher
	}
	w := o.ts.Value(workersKey{}).(*workers).byName[name]
	if w == nil {
		o.ts.Fatalf("the script has not started a Fetcher %s", name)
	}
	return w
}

// startFetcher is `fetcher [name=NAME] [source=S] [tenant=T] [bucket=B] [prefix=P] [token=T] [vhost]`. It brings up a
// Fetcher with an exchange and a queue of its own, in a virtual host of its own where that is asked for, and puts what
// there is to know of it into NAME_AMQP, NAME_EXCHANGE, NAME_QUEUE, NAME_URL, NAME_OBJECTS, NAME_BUCKET, NAME_ACCESS_KEY,
// NAME_SECRET_KEY, NAME_EXTERNAL_KEY and NAME_STORAGE_KEY. One without a name is FETCHER, and recibo finds it without a
// file; Hub and Reporter are off then, unless the script has an upstream.
func startFetcher(ts *testscript.TestScript, neg bool, args []string) {
	vhost, args := flag("vhost", args)
	o := options(ts, neg, args)
	broker, err := sharedBroker()
	ts.Check(err)
	all := ts.Value(workersKey{}).(*workers)
	all.started++
	// A run of the tests may be one of several with one broker.
	own := fmt.Sprintf("%s-%d-%d", ts.Name(), all.started, time.Now().UnixNano())
	fo := sandbox.FetcherOptions{
		AMQPURL: broker.URL(), Exchange: own + ".events", Queue: own + ".jobs", Declare: true,
		Source: o.text("source"), Tenant: o.text("tenant"), Bucket: o.text("bucket"), Prefix: o.text("prefix"), Token: o.text("token"),
		Seed: uint64(all.started), // of its keys
	}
	name := o.text("name")
	o.done()
	if vhost {
		addVhost(ts, broker, own)
		fo.AMQPURL += "/" + own
	}
	f, err := sandbox.StartFetcher(context.Background(), fo)
	ts.Check(err)
	only := name == ""
	if only {
		name = theFetcher
	}
	all.byName[name] = &worker{f, map[string][]byte{}}
	for _, known := range []struct{ name, key, value string }{
		{"AMQP", "AMQP_URLS", fo.AMQPURL}, {"EXCHANGE", "AMQP_EXCHANGE", fo.Exchange}, {"QUEUE", "AMQP_QUEUE", fo.Queue},
		{"URL", "URL", f.URL()}, {"EXTERNAL_KEY", "EXTERNAL_HMAC_KEY", f.ExternalKeyHex()}, {"STORAGE_KEY", "STORAGE_KEY", f.StorageKeyHex()},
		{"OBJECTS", "OBJECTS_ENDPOINT", f.ObjectsURL()}, {"BUCKET", "OBJECTS_BUCKET", f.Bucket()},
		{"ACCESS_KEY", "OBJECTS_ACCESS_KEY", f.AccessKey()}, {"SECRET_KEY", "OBJECTS_SECRET_KEY", f.SecretKey()},
	} {
		ts.Setenv(name+"_"+known.name, known.value)
		if only {
			ts.Setenv("RECIBO_FETCHER_"+known.key, known.value)
		}
	}
	if only && ts.Value(upstreamKey{}).(*upstream).sb == nil {
		ts.Setenv("RECIBO_HUB_ENABLED", "false")
		ts.Setenv("RECIBO_REPORTER_ENABLED", "false")
	}
}

// addVhost makes a virtual host that guest may use.
func addVhost(ts *testscript.TestScript, broker *sandbox.Broker, name string) {
	_, err := broker.Ctl(context.Background(), "eval", fmt.Sprintf(`ok = rabbit_vhost:add(<<"%s">>, <<"test">>),
		ok = rabbit_auth_backend_internal:set_permissions(<<"guest">>, <<"%s">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>).`, name, name))
	ts.Check(err)
}

// flag takes a word without a value out of the arguments.
func flag(name string, args []string) (found bool, rest []string) {
	for _, arg := range args {
		if arg == name {
			found = true
		} else {
			rest = append(rest, arg)
		}
	}
	return found, rest
}

// runJob is `job ID [status=completed] [size=BYTES] [rows=N] [seed=N] [metadata=JSON] [error=TEXT] [age=3h] [silent] [legacy]
// [of=NAME]`: a job comes to its end, or to another one, and its event is published unless it is silent.
func runJob(ts *testscript.TestScript, neg bool, args []string) {
	id, args := first(ts, args)
	silent, args := flag("silent", args)
	legacy, args := flag("legacy", args)
	o := options(ts, neg, args)
	w := o.worker()
	job := sandbox.Job{
		ID: id, Status: o.text("status"), Size: o.number("size"), Rows: o.number("rows"), Seed: uint64(o.number("seed")),
		Metadata: o.object("metadata"), Error: o.text("error"), NoEvent: silent, Legacy: legacy,
	}
	if age := o.duration("age"); age > 0 {
		job.CreatedAt = time.Now().Add(-age)
		if job.Status == "" || job.Status == sandbox.JobCompleted || job.Status == sandbox.JobFailed {
			job.CompletedAt = job.CreatedAt.Add(time.Second)
		}
	}
	o.done()
	_, err := w.Run(context.Background(), job)
	ts.Check(err)
}

// alterJob is `alter ID [status=S] [metadata=JSON] [error=TEXT] [of=NAME]`: what Fetcher tells of a job from now on. Nothing
// is published.
func alterJob(ts *testscript.TestScript, neg bool, args []string) {
	id, args := first(ts, args)
	o := options(ts, neg, args)
	w, status, metadata, text := o.worker(), o.text("status"), o.object("metadata"), o.text("error")
	o.done()
	known := w.Set(id, func(j *sandbox.Job) {
		if status != "" {
			j.Status = status
		}
		if metadata != nil {
			j.Metadata = metadata
		}
		if text != "" {
			j.Error = text
		}
	})
	if !known {
		ts.Fatalf("Fetcher has no job %s", id)
	}
}

var forgeries = map[string]sandbox.Forgery{
	"": sandbox.Genuine, "body": sandbox.TamperBody, "key": sandbox.OtherRoutingKey, "exchange": sandbox.OtherExchange,
	"tenant": sandbox.OtherTenant, "time": sandbox.OtherTime, "id": sandbox.OtherID, "internal": sandbox.WrongKey,
	"version": sandbox.WrongVersion, "legacy": sandbox.LegacyForm, "unsigned": sandbox.Unsigned, "future": sandbox.Future,
}

// emitEvent is `emit ID [status=S] [forge=KIND] [age=72h] [same] [exchange=E] [ce-…=VALUE] [of=NAME]`: the job's end is told
// once more, signed anew, so long ago, or as the same bytes; or somebody forges that.
func emitEvent(ts *testscript.TestScript, neg bool, args []string) {
	id, args := first(ts, args)
	same, args := flag("same", args)
	o := options(ts, neg, args)
	w := o.worker()
	forgery, ok := forgeries[o.text("forge")]
	if !ok {
		ts.Fatalf("there is no such forgery")
	}
	e := sandbox.Emission{
		Status: o.text("status"), Forge: forgery, At: time.Now().Add(-o.duration("age")), SameBytes: same,
		Exchange: o.text("exchange"), Headers: map[string]any{},
	}
	for name, value := range o.values {
		if strings.HasPrefix(name, "ce-") {
			e.Headers[name] = []byte(value)
			delete(o.values, name)
		}
	}
	o.done()
	ts.Check(w.Emit(context.Background(), id, e))
}

// spoilObject is `object ID delete|flip|truncate|other-key|other-content|restore [of=NAME]`: what becomes of the object that
// the job's result is in. After restore it is as it was.
func spoilObject(ts *testscript.TestScript, neg bool, args []string) {
	id, args := first(ts, args)
	how, args := first(ts, args)
	o := options(ts, neg, args)
	w := o.worker()
	o.done()
	key := w.Key(id)
	if w.whole[key] == nil {
		w.whole[key], _ = w.Objects.Get(key)
	}
	done := false
	switch how {
	case "delete":
		done = w.Objects.Delete(key)
	case "flip":
		done = w.Objects.Flip(key, 1000)
	case "truncate":
		done = w.Objects.Truncate(key, -4) // its base64 stays well formed
	case "other-key":
		done = w.Objects.PutWrongKey(id)
	case "other-content":
		done = w.Objects.PutOtherContent(id)
	case "restore":
		ts.Check(w.Objects.Put(key, w.whole[key]))
		done = true
	}
	if !done {
		ts.Fatalf("object %s of %s: not done", how, id)
	}
}

// takeFetcherDown is `outage rest|objects down|up|STATUS [of=NAME]`: how the REST API or the object store is from now on.
func takeFetcherDown(ts *testscript.TestScript, neg bool, args []string) {
	what, args := first(ts, args)
	how, args := first(ts, args)
	o := options(ts, neg, args)
	w := o.worker()
	o.done()
	status := 0
	if how != "down" && how != "up" {
		var err error
		status, err = strconv.Atoi(how)
		ts.Check(err)
	}
	switch what {
	case "rest":
		w.Down(how == "down")
		w.Refuse(status)
	case "objects":
		w.Objects.Down(how == "down")
		w.Objects.DenyAll(status == 403)
		w.Objects.Fail(-1, status)
		if status == 0 || status == 403 {
			w.Objects.Fail(0, 0)
		}
	default:
		ts.Fatalf("unknown: outage %s", what)
	}
}

// object is an option whose value is a JSON object.
func (o *keyValues) object(key string) (object map[string]any) {
	if text := o.text(key); text != "" {
		numbers := json.NewDecoder(strings.NewReader(text))
		numbers.UseNumber() // they stay as they are written
		o.ts.Check(numbers.Decode(&object))
	}
	return object
}
