package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"recibo/fetcher"
	"recibo/setting"
)

// Two derived keys, in hex.
var (
	oneKey   = strings.Repeat("0a", 32)
	otherKey = strings.Repeat("1b", 32)
)

// wholeFetcher is a section that works, with a rotation under way and two sources.
const wholeFetcher = `
fetcher:
  amqp:
    urls: [amqp://recibo:open-sesame-4711@one/%2F, "amqps://two:5671/vhost"]
    routing_keys: [job.completed]
  url: https://fetcher.example.com
  external_hmac_key_file: external
  storage_key: [ONE, OTHER]
  objects:
    endpoint: https://s3.example.com:9000
    bucket: fetcher-storage
    access_key_file: id
    secret_key: ${SECRET}
    path_style: true
  max_result: 1GiB
  jobs_file: jobs.txt
  sources:
    - source: //lerian.fetcher/worker
      dir: results/first
    - source: //lerian.fetcher/worker
      tenant: acme
      dir: /srv/acme
      amqp: {urls: ["amqp://one/acme"], queue: acme, tls: {}}
      external_hmac_key: [OTHER]
      storage_key_file: external
      objects: {bucket: acme, access_key: acme, secret_key_file: id}
`

// writeFetcher puts a configuration beside the files that wholeFetcher names.
func writeFetcher(t *testing.T, content string) string {
	t.Helper()
	path := write(t, strings.NewReplacer("ONE", oneKey, "OTHER", otherKey).Replace(content))
	put(t, filepath.Join(filepath.Dir(path), "external"), otherKey+"\n"+oneKey+"\n")
	put(t, filepath.Join(filepath.Dir(path), "id"), "an-access-key-id\n")
	return path
}

func TestFetcherIsReadFromTheFile(t *testing.T) {
	t.Parallel()
	path := writeFetcher(t, wholeFetcher)
	l, err := Load(path, []string{"SECRET=a-secret-key"})
	if err != nil {
		t.Fatal(err)
	}
	c, dir := l.Config.Fetcher, filepath.Dir(path)
	first, second, amqp := c.Sources[0], c.Sources[1], fetcher.DefaultAMQPConfig()
	keys := func(secrets []setting.Secret) string { return strings.Join(setting.RevealAll(secrets), " ") }
	for name, pair := range map[string][2]any{
		"urls":             {strings.Join(c.AMQP.URLs, " "), "amqp://recibo:open-sesame-4711@one/%2F amqps://two:5671/vhost"},
		"routing keys":     {strings.Join(c.AMQP.RoutingKeys, " "), "job.completed"},
		"default exchange": {c.AMQP.Exchange, amqp.Exchange},
		"default queue":    {c.AMQP.Queue, amqp.Queue},
		"default declare":  {c.AMQP.Declare, amqp.Declare},
		"keys of a file":   {keys(c.ExternalHMACKey), otherKey + " " + oneKey},
		"keys of a list":   {keys(c.StorageKey), oneKey + " " + otherKey},
		"access key":       {c.Objects.AccessKey.Reveal() + " " + c.Objects.SecretKey.Reveal(), "an-access-key-id a-secret-key"},
		"path style":       {c.Objects.PathStyle, true},
		"sizes":            {c.MaxResult.String() + " " + c.Memory.String(), "1GiB 384MiB"},
		"default mode":     {c.Mode + " " + c.Encrypted, "0600 refuse"},
		"file of jobs":     {c.JobsFile, dir + "/jobs.txt"},

		"relative folder of a source": {first.Dir, dir + "/results/first"},
		"absolute folder of a source": {second.Dir, "/srv/acme"},
		"source without amqp":         {first.AMQP == nil, true},
		"source without a default":    {first.URL + first.Objects.Bucket + keys(first.StorageKey), ""},
		"default of a source's amqp":  {second.AMQP.Exchange + " " + strings.Join(second.AMQP.RoutingKeys, " "), amqp.Exchange + " " + strings.Join(amqp.RoutingKeys, " ")},
		"queue of a source":           {second.AMQP.Queue, "acme"},
		"keys of a source":            {keys(second.ExternalHMACKey), otherKey},
		"keys of a source's file":     {keys(second.StorageKey), otherKey + " " + oneKey},
		"access key of a source":      {second.Objects.AccessKey.Reveal() + " " + second.Objects.SecretKey.Reveal(), "acme an-access-key-id"},
		"origin in a source":          {l.Origin("fetcher.sources[1].amqp.queue").Line, 23},
		"origin of a key file":        {l.Origin("fetcher.sources[1].storage_key").SecretFile, dir + "/external"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: got %v, want %v", name, pair[0], pair[1])
		}
	}
}

// A variable for one key of a section that is off turns it on with its defaults.
func TestFetcherIsReadFromTheEnvironment(t *testing.T) {
	t.Parallel()
	path := writeFetcher(t, "fetcher:\n  external_hmac_key_file: none\n")
	l, err := Load(path, []string{
		"RECIBO_FETCHER_AMQP_URLS=amqps://one/vhost, amqps://two/vhost",
		"RECIBO_FETCHER_AMQP_PASSWORD_FILE=id", "RECIBO_FETCHER_AMQP_USERNAME=recibo",
		"RECIBO_FETCHER_EXTERNAL_HMAC_KEY=" + oneKey + "," + otherKey, "RECIBO_FETCHER_STORAGE_KEY_FILE=external",
		"RECIBO_FETCHER_OBJECTS_ENDPOINT=https://s3.example.com", "RECIBO_FETCHER_OBJECTS_BUCKET=bucket",
		"RECIBO_FETCHER_OBJECTS_ACCESS_KEY_FILE=id", "RECIBO_FETCHER_OBJECTS_SECRET_KEY=a-secret-key",
		"RECIBO_FETCHER_JOBS_FILE=jobs.txt", "RECIBO_FETCHER_LEGACY_SIGNATURES=true", "RECIBO_FETCHER_MAX_RESULT=1GiB",
	})
	if err != nil || len(l.Warnings) > 0 {
		t.Fatal(err, l)
	}
	c := l.Config.Fetcher
	for name, pair := range map[string][2]any{
		"urls":     {strings.Join(c.AMQP.URLs, " "), "amqps://one/vhost amqps://two/vhost"},
		"password": {c.AMQP.Password.Reveal(), "an-access-key-id"},
		"queue":    {c.AMQP.Queue, fetcher.DefaultAMQPConfig().Queue},
		"external": {strings.Join(setting.RevealAll(c.ExternalHMACKey), " "), oneKey + " " + otherKey},
		"storage":  {strings.Join(setting.RevealAll(c.StorageKey), " "), otherKey + " " + oneKey},
		"id":       {c.Objects.AccessKey.Reveal(), "an-access-key-id"},
		"jobs":     {c.JobsFile, filepath.Dir(path) + "/jobs.txt"},
		"legacy":   {c.LegacySignatures, true},
		"origin":   {l.Origin("fetcher.amqp.urls").String(), "environment RECIBO_FETCHER_AMQP_URLS"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: got %v, want %v", name, pair[0], pair[1])
		}
	}
}

// Each place of a file that is wrong in many ways is told in one run, so that one edit mends it.
func TestEveryMistakeInFetcherIsToldAtOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ file, want string }{
		"values and sources": {`fetcher:
  amqp:
    urls: ["amqp://recibo:open-sesame-4711@rabbit/"]
    queue: ""
    tls: {ca_file: ca.pem}
  ulr: https://fetcher
  proxy: socks4://a:open-sesame-4711@proxy
  external_hmac_key: [open-sesame-4711]
  objects:
    endpoint: https://s3.example.com/path
    access_key: id
    bucket: house
  storage_key: [ONE]
  encrypted: maybe
  max_result: 0
  mode: "0999"
  legacy_signatures: true
  jobs_file: https://x
  sources:
    - {dir: a, amqp: {routing_keys: [~]}}
    - {source: //a, tenant: t, external_hmac_key_file: none}
    - {source: //a, tenant: t, storage_key: ["0123"], objects: {endpoint: "https://a:open-sesame-4711@s3"}}
    - {tenant: u, sauce: x, url: ftp://f}
    - {tenant: v, amqp: amqps://v, storage_key: [ONE, ""]}
    - none
`, `3:5 fetcher.amqp.urls: amqp://rabbit:5672/ is not amqps:// and tls is set
4:5 fetcher.amqp.queue: missing
5:5 fetcher.amqp.tls: stat
6:3 fetcher.ulr: unknown key; did you mean url?
7:3 fetcher.proxy: must begin with http://, https://, socks5:// or socks5h://
8:3 fetcher.external_hmac_key: entry 1 must be 64 hex digits
10:5 fetcher.objects.endpoint: must end with the host and its port
11:5 fetcher.objects.access_key: access_key and secret_key go together
14:14 fetcher.encrypted: must be one of refuse, deliver, not "maybe"
15:3 fetcher.max_result: 0 is not between
16:3 fetcher.mode: "0999" is no octal mode
17:3 fetcher.legacy_signatures: can't be true with fetcher.sources
18:14 fetcher.jobs_file: must be a path, not an address
20:8 fetcher.sources[0].source: missing
20:38 fetcher.sources[0].amqp.routing_keys[0]: has no value
21:56 fetcher.sources[1].external_hmac_key_file: can't be read
22:8 fetcher.sources[2].source: the same source and tenant as fetcher.sources[1]
22:32 fetcher.sources[2].storage_key: entry 1 must be 64 hex digits
22:55 fetcher.sources[2].objects.access_key: access_key and secret_key go together
22:65 fetcher.sources[2].objects.endpoint: holds credentials
23:19 fetcher.sources[3].sauce: unknown key
23:29 fetcher.sources[3].url: must begin with http
24:25 fetcher.sources[4].amqp: must be a section
24:116 fetcher.sources[4].storage_key[1]: is an empty secret
25:7 fetcher.sources[5]: must be a section`},
		"what is missing": {`fetcher:
  amqp:
  objects: {endpoint: https://s3.example.com}
`, `1:1 fetcher.external_hmac_key: missing
1:1 fetcher.storage_key: missing
2:3 fetcher.amqp.urls: missing
3:3 fetcher.objects.bucket: missing`},
		"what is missing for a source": {`fetcher:
  encrypted: deliver
  objects: {endpoint: https://s3.example.com}
  sources:
    - {source: //a, amqp: {urls: [amqp://a]}, objects: {bucket: bucket}}
    - {source: //b, external_hmac_key: [ONE]}
`, `5:8 fetcher.sources[0].external_hmac_key: missing
6:8 fetcher.sources[1].objects.bucket: missing`},
	} {
		_, err := Load(writeFetcher(t, tt.file), nil)
		var all *Error
		if !errors.As(err, &all) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		// The rest of a line is the section's own to choose.
		want := strings.Split(tt.want, "\n")
		got := make([]string, len(all.Problems))
		for i, p := range all.Problems {
			place := strings.TrimPrefix(p.Position.String(), p.File+":")
			got[i] = place + " " + p.Key + ": " + p.Text
			if i < len(want) && strings.HasPrefix(got[i], want[i]) {
				got[i] = want[i]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if strings.Contains(err.Error(), sesame) {
			t.Errorf("%s: tells a secret: %v", name, err)
		}
	}
}

func TestFetcherIsShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	path := writeFetcher(t, wholeFetcher)
	l, err := Load(path, []string{"SECRET=a-secret-key"})
	if err != nil {
		t.Fatal(err)
	}
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		if err := l.Print(&out, asJSON); err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{sesame, oneKey, otherKey, "a-secret-key", "an-access-key-id"} {
			if strings.Contains(out.String(), secret) {
				t.Errorf("holds %s:\n%s", secret, &out)
			}
		}
		for _, shown := range []string{"amqp://recibo:[hidden]@one/%2F", "amqps://two:5671/vhost", "amqp://one/acme"} {
			if !strings.Contains(out.String(), shown) {
				t.Errorf("lacks %s:\n%s", shown, &out)
			}
		}
	}
}

// What an editor is told of a section that is off: its keys, and the defaults it has where it stands.
func TestSchemaHasTheDefaultsOfEachSubscription(t *testing.T) {
	t.Parallel()
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	type amqp struct {
		Properties struct {
			Exchange struct{ Default string }
			Queue    struct{ Default string }
		}
	}
	var schema struct {
		Properties struct {
			Fetcher struct {
				Properties struct {
					AMQP    amqp
					Sources struct {
						Items struct {
							Properties struct{ AMQP amqp }
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	section := schema.Properties.Fetcher.Properties
	var want amqp
	want.Properties.Exchange.Default = fetcher.DefaultAMQPConfig().Exchange
	want.Properties.Queue.Default = fetcher.DefaultAMQPConfig().Queue
	if got := section.AMQP; got != want {
		t.Errorf("fetcher.amqp: %+v", got)
	}
	if got := section.Sources.Items.Properties.AMQP; got != want {
		t.Errorf("fetcher.sources: %+v", got)
	}
}
