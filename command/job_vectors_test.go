package command_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"recibo/sandbox"
	"recibo/store"
)

// vectors are messages of a running Fetcher, forgeries of them, and the result that they speak of.
type vectors struct {
	Events []vector
	Legacy vector
	Keys   struct{ MasterKeyBase64, ExternalHmacKeyHex, StorageEncryptionKeyHex string }
	Result struct{ ObjectKey, StoredObject, Plaintext string }
}

type vector struct {
	Name, Exchange, RoutingKey, Body, Signature string
	Timestamp                                   int64
	StringHeaders, ByteArrayHeaders             map[string]string
	Int32Headers                                map[string]int32
}

// The outcomes of a message that is no forgery. Any other is the reason of its quarantine.
const (
	comesHome = "delivered"
	ends      = "failed"
	noFit     = "signature: does not fit time, tenant, job, exchange, routing key and body by any key of fetcher.external_hmac_key"
)

// outcomes of the vectors: what becomes of each is the same whether the messages of Fetcher 1.x are accepted or not.
var outcomes = map[string]string{
	"completed-single-tenant": comesHome,
	"completed-multi-tenant":  comesHome,
	"failed-single-tenant":    ends,
	"bad-body-tampered":       noFit,
	"bad-routing-key":         noFit,
	"bad-exchange":            noFit,
	"bad-tenant":              noFit,
	"bad-timestamp":           noFit,
	"bad-version":             `signature: version "v2" is not v1`,
	"bad-key-internal":        noFit,
	"bad-legacy-payload":      noFit,
}

// TestEveryVectorThroughTheBinary publishes each message as it was seen, to a RabbitMQ, and has the program read it with the
// keys of the vectors. Each has a ledger of its own, since most have the same id.
func TestEveryVectorThroughTheBinary(t *testing.T) {
	t.Parallel()
	broker, err := sharedBroker()
	if errors.Is(err, sandbox.ErrNoRabbitMQ) {
		t.Skip(noRabbitMQ)
	}
	if err != nil {
		t.Fatal(err)
	}
	v := readVectors(t)
	bench := &vectorBench{vectors: v, broker: broker, objects: v.objects(t)}
	channel := bench.channel(t)
	seen := 0
	for _, legacy := range []bool{false, true} {
		for _, message := range v.Events {
			want, known := outcomes[message.Name]
			if !known {
				t.Errorf("%s: nothing is known of this vector", message.Name)
			}
			seen++
			bench.publish(t, channel, message, legacy, want)
		}
	}
	if seen != 2*len(outcomes) {
		t.Errorf("%d vectors, expected %d", seen/2, len(outcomes))
	}
	old := v.Legacy
	old.Name = "legacy"
	old.StringHeaders = map[string]string{"t": fmt.Sprint(old.Timestamp), "x-message-signature": old.Signature}
	bench.publish(t, channel, old, false, "form: signed as Fetcher 1.x does, and fetcher.legacy_signatures is false")
	bench.publish(t, channel, old, true, comesHome)
	// Every message is in its queue, so that no agent's own binding gets it another.
	for _, c := range bench.cases {
		t.Run(fmt.Sprintf("%s/legacy=%v", c.Name, c.legacy), func(t *testing.T) {
			t.Parallel()
			bench.judge(t, c)
		})
	}
}

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	data, err := os.ReadFile("../fetcher/testdata/vectors.json")
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// objects is a store that holds the result of the vectors, where each of the two deployments put it.
func (v *vectors) objects(t *testing.T) *sandbox.Fetcher {
	t.Helper()
	master, err := base64.StdEncoding.DecodeString(v.Keys.MasterKeyBase64)
	if err != nil {
		t.Fatal(err)
	}
	f, err := sandbox.StartFetcher(t.Context(), sandbox.FetcherOptions{MasterKey: master})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	for _, key := range []string{v.Result.ObjectKey, "org_01ABC/" + v.Result.ObjectKey} {
		if err := f.Objects.Put(key, []byte(v.Result.StoredObject)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// vectorBench is what the vectors are tried with.
type vectorBench struct {
	vectors
	broker  *sandbox.Broker
	objects *sandbox.Fetcher
	cases   []vectorCase
}

// vectorCase is one message in a queue of its own.
type vectorCase struct {
	vector
	legacy bool
	queue  string
	want   string
}

func (b *vectorBench) channel(t *testing.T) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(b.broker.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	if err == nil {
		err = channel.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return channel
}

// publish puts a message into a new queue, by its own exchange and routing key.
func (b *vectorBench) publish(t *testing.T, channel *amqp.Channel, m vector, legacy bool, want string) {
	t.Helper()
	if m.Exchange == "" {
		m.Exchange = "fetcher.job.events"
	}
	c := vectorCase{m, legacy, fmt.Sprintf("vector-%s-%v-%d", m.Name, legacy, time.Now().UnixNano()), want}
	b.cases = append(b.cases, c)
	err := channel.ExchangeDeclare(m.Exchange, amqp.ExchangeTopic, true, false, false, false, nil)
	if err == nil {
		_, err = channel.QueueDeclare(c.queue, true, false, false, false, nil)
	}
	if err == nil {
		err = channel.QueueBind(c.queue, m.RoutingKey, m.Exchange, false, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	confirmation, err := channel.PublishWithDeferredConfirmWithContext(t.Context(), m.Exchange, m.RoutingKey, false, false, m.publishing())
	if err == nil && !confirmation.Wait() {
		err = errors.New("not confirmed")
	}
	if err == nil {
		err = channel.QueueUnbind(c.queue, m.RoutingKey, m.Exchange, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// publishing has the header types that Fetcher uses.
func (m vector) publishing() amqp.Publishing {
	headers := amqp.Table{}
	for name, value := range m.StringHeaders {
		headers[name] = value
	}
	for name, value := range m.ByteArrayHeaders {
		headers[name] = []byte(value)
	}
	for name, value := range m.Int32Headers {
		headers[name] = value
	}
	return amqp.Publishing{ContentType: "application/json", DeliveryMode: amqp.Persistent, Headers: headers, Body: []byte(m.Body)}
}

// judge runs the program on the queue and looks at what is in the folder and the ledger.
func (b *vectorBench) judge(t *testing.T, c vectorCase) {
	dir := t.TempDir()
	config := fmt.Sprintf(`hub: {enabled: false}
reporter: {enabled: false}
fetcher:
  amqp: {urls: ["%s"], exchange: %s, queue: %s}
  external_hmac_key: [%s]
  storage_key: [%s]
  objects: {endpoint: "%s", bucket: %s, access_key: %s, secret_key: %s}
  legacy_signatures: %v
store: {path: ./recibo.db, min_free: 0B}
downloads: {dir: ./home, min_free: 0B}
`, b.broker.URL(), c.Exchange, c.queue, b.Keys.ExternalHmacKeyHex, b.Keys.StorageEncryptionKeyHex,
		b.objects.ObjectsURL(), b.objects.Bucket(), b.objects.AccessKey(), b.objects.SecretKey(), c.legacy)
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "recibo", "run", "--until-idle", "200ms")
	run.Dir, run.Env = dir, append(os.Environ(), "GORACE="+noRaceSleep)
	log, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	for _, key := range []string{b.Keys.ExternalHmacKeyHex, b.Keys.StorageEncryptionKeyHex} {
		if bytes.Contains(log, []byte(key)) {
			t.Error("a key is in the log")
		}
	}
	if got := b.outcome(t, dir); got != c.want {
		t.Errorf("%s, expected %s\n%s", got, c.want, log)
	}
}

// outcome is that of the one message that a ledger knows of.
func (b *vectorBench) outcome(t *testing.T, dir string) string {
	t.Helper()
	ledger, err := store.Open(filepath.Join(dir, "recibo.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ledger.Close() }()
	var found []string
	for r, err := range ledger.All(t.Context(), store.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, b.outcomeOf(r, dir))
	}
	entries, err := ledger.Quarantine(t.Context(), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range entries {
		found = append(found, q.Reason)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "home", "[^.]*"))
	if outcome := strings.Join(found, " and "); outcome != comesHome && len(files) > 0 || len(files) > 1 {
		found = append(found, fmt.Sprint("the files ", files))
	}
	return strings.Join(found, " and ")
}

// outcomeOf checks what a receipt claims.
func (b *vectorBench) outcomeOf(r *store.Receipt, dir string) string {
	id := strings.TrimSuffix(filepath.Base(b.Result.ObjectKey), ".json")
	const reason = "dial tcp [redacted] connect: connection refused"
	data, _ := os.ReadFile(filepath.Join(dir, "home", id+".json"))
	switch {
	case r.Kind != store.Job || r.ID != id || len(r.Events) != 1 || r.Authority != "signed event":
		return fmt.Sprintf("another receipt: %+v", r)
	case r.State == store.Failed && r.Reason != reason:
		return "failed for another reason: " + r.Reason
	case r.State == store.Delivered && string(data) != b.Result.Plaintext:
		return fmt.Sprintf("delivered with %d other bytes", len(data))
	}
	return string(r.State)
}
