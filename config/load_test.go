package config

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// write puts a config.yaml into a folder of the test's own.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	put(t, path, content)
	return path
}

func TestFileIsLookedForInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"flag", "variable", "first", "second"} {
		put(t, filepath.Join(dir, name), "")
	}
	in := func(names ...string) (paths []string) {
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, name))
		}
		return paths
	}
	for name, tt := range map[string]struct {
		flag, variable string
		places         []string
		path           string
		looked         []string
		fault          string
	}{
		"flag before all":    {flag: "flag", variable: "variable", places: []string{"first"}, path: "flag", looked: []string{"flag"}},
		"variable":           {variable: "variable", places: []string{"first"}, path: "variable", looked: []string{"variable"}},
		"first place":        {places: []string{"first", "second"}, path: "first", looked: []string{"first"}},
		"second place":       {places: []string{"none", "second"}, path: "second", looked: []string{"none", "second"}},
		"nowhere":            {places: []string{"none", "nil"}, looked: []string{"none", "nil"}},
		"flag to nothing":    {flag: "none", places: []string{"first"}, path: "none", looked: []string{"none"}, fault: "DIR/none (from --config): no such file or directory"},
		"variable to none":   {variable: "none", path: "none", looked: []string{"none"}, fault: "DIR/none (from RECIBO_CONFIG): no such file or directory"},
		"flag to a folder":   {flag: ".", path: ".", looked: []string{"."}, fault: "DIR (from --config): is a folder, not a file"},
		"place is a folder":  {places: []string{".", "first"}, path: ".", looked: []string{"."}, fault: "DIR: is a folder, not a file"},
		"place in no folder": {places: []string{"first/x"}, path: "first/x", looked: []string{"first/x"}, fault: "DIR/first/x: not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			named := func(name string) string {
				if name == "" {
					return ""
				}
				return filepath.Join(dir, name)
			}
			path, looked, err := find(named(tt.flag), named(tt.variable), in(tt.places...))
			if path != named(tt.path) || !slices.Equal(looked, in(tt.looked...)) {
				t.Errorf("got %q, looked at %q", path, looked)
			}
			fault := ""
			if err != nil {
				fault = strings.ReplaceAll(err.Error(), dir, "DIR")
			}
			if fault != tt.fault {
				t.Errorf("got %q, want %q", fault, tt.fault)
			}
			if strings.Contains(tt.fault, "no such file") && !errors.Is(err, fs.ErrNotExist) {
				t.Error("does not say that it does not exist")
			}
		})
	}
}

func TestLoadReadsEverySection(t *testing.T) {
	t.Parallel()
	path := write(t, `
hub:
  major_version: 3
  nats: {url: "nats://hub:4222", durable: mine}
  signing_keys:
    - {id: k1, source: //lerian/reporter, secret: 0123456789abcdef0123456789abcdef}
rest: {idle_timeout: 90s, ca_file: ca.pem}
reporter:
  url: ${REPORTER:-http://reporter:4005}
  client_credentials: {url: http://access, client_id: me, client_secret_file: secret}
store: {path: ledger/recibo.db, retention: 800d}
downloads: {mode: 0600, max_size: 1GB, layout: "{yyyy}/{id}.{ext}"}
agent: {backoff: 2s..1h, start_at: 2026-01-31}
console: {socket: run/recibo.sock}
log: {level: debug}
`)
	dir := filepath.Dir(path)
	put(t, filepath.Join(dir, "secret"), sesame)
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	server.Close()
	put(t, filepath.Join(dir, "ca.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	l, err := Load(path, []string{"RECIBO_AGENT_WORKERS=7", "RECIBO_LOG_FORMAT=json", "RECIBO_NOTHING=1"})
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	for name, pair := range map[string][2]any{
		"path":     {l.Path, path},
		"dir":      {l.Dir, dir},
		"warnings": {len(l.Warnings), 1},
		"hub":      {c.Hub.MajorVersion, 3},
		"nats":     {c.Hub.NATS.URL + " " + c.Hub.NATS.Durable + " " + c.Hub.NATS.Stream, "nats://hub:4222 mine STREAMING_HUB"},
		"keys":     {len(c.Hub.SigningKeys), 1},
		"rest":     {c.REST.IdleTimeout, 90 * time.Second},
		"ca":       {c.REST.CAFile, dir + "/ca.pem"},
		"reporter": {c.Reporter.URL, "http://reporter:4005"},
		"secret":   {c.Reporter.ClientCredentials.ClientSecret.Reveal(), sesame},
		"store":    {c.Store.Path, dir + "/ledger/recibo.db"},
		"keep":     {c.Store.Retention, 800 * 24 * time.Hour},
		"mode":     {c.Downloads.Mode, "0600"},
		"size":     {c.Downloads.MaxSize.String(), "1GB"},
		"default":  {c.Downloads.Dir, dir + "/data/downloads"},
		"backoff":  {c.Agent.Backoff.String(), "2s..1h"},
		"workers":  {c.Agent.Workers, 7},
		"socket":   {c.Console.Socket, dir + "/run/recibo.sock"},
		"log":      {c.Log, Log{Level: "debug", Format: "json"}},
		"origin":   {l.Origin("agent.workers").String(), "environment RECIBO_AGENT_WORKERS"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: got %v, want %v", name, pair[0], pair[1])
		}
	}
}

func TestLoadWithoutAFileIsRelativeToTheWorkingFolder(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	path, looked, err := find("", "", []string{"config.yaml"})
	if path != "" || err != nil || !slices.Equal(looked, []string{"config.yaml"}) {
		t.Fatal(path, looked, err)
	}
	if got, err := folder(""); got != working || err != nil {
		t.Errorf("relative to %s, want %s: %v", got, working, err)
	}
	put(t, "config.yaml", "")
	l, err := Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if l.Path != "config.yaml" || l.Dir != working || l.Config.Store.Path != working+"/data/recibo.db" {
		t.Errorf("got %q %q %q", l.Path, l.Dir, l.Config.Store.Path)
	}
}

func TestLoadReportsWhatSectionsRefuse(t *testing.T) {
	t.Parallel()
	path := write(t, `
agent:
  workers: 0
  backoff: 0..1s
hub:
  major_version: 0
  signing_keys:
    - {id: a, source: b, secret: short-secret}
downloads:
  max_size: 0
log:
  level: loud
`)
	_, err := Load(path, nil)
	var all *Error
	if !errors.As(err, &all) {
		t.Fatalf("got %v", err)
	}
	var got []string
	for _, p := range all.Problems {
		place, _, _ := strings.Cut(strings.TrimPrefix(p.Position.String(), path+":"), ":")
		got = append(got, place+" "+p.Key)
	}
	want := []string{"3 agent.workers", "4 agent.backoff", "6 hub.major_version", "8 hub.signing_keys[0].secret", "10 downloads.max_size", "12 log.level"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\n%v", got, err)
	}
	if strings.Contains(err.Error(), "short-secret") {
		t.Error("tells the secret")
	}
}

func TestLoadRefusesAFileItCannotRead(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"none": filepath.Join(t.TempDir(), "none"), "folder": t.TempDir()} {
		if _, err := Load(file, nil); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
	if _, err := Load("", []string{"RECIBO_CONFIG=/nowhere/config.yaml"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestPrintedDefaultsAreTheDefaults(t *testing.T) {
	t.Parallel()
	first, err := Load(write(t, ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := first.Print(&out, false); err != nil {
		t.Fatal(err)
	}
	second, err := Load(write(t, out.String()), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if !reflect.DeepEqual(first.Config, second.Config) {
		t.Errorf("got %+v\nwant %+v", second.Config, first.Config)
	}
	for line := range strings.Lines(out.String()) {
		if !strings.HasSuffix(line, ":\n") && !strings.HasSuffix(line, "  # default\n") && !strings.HasSuffix(line, ": off\n") {
			t.Errorf("no default: %s", line)
		}
	}
}

func TestPrintAsJSON(t *testing.T) {
	t.Parallel()
	path := write(t, "reporter:\n  token: "+sesame+"\n")
	l, err := Load(path, []string{"RECIBO_AGENT_WORKERS=2"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := l.Print(&out, true); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Path, Dir string
		Values    struct {
			Agent    struct{ Workers int }
			Reporter struct{ Token string }
		}
		Origins map[string]string
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Path != path || got.Dir != filepath.Dir(path) || got.Values.Agent.Workers != 2 || got.Values.Reporter.Token != "[hidden]" ||
		got.Origins["reporter.token"] != path+":2" || got.Origins["agent.workers"] != "environment RECIBO_AGENT_WORKERS" {
		t.Errorf("got %+v", got)
	}
	if strings.Contains(out.String(), sesame) {
		t.Error("tells the secret")
	}
}

func TestSchemaIsWritten(t *testing.T) {
	t.Parallel()
	data, err := Schema()
	if err != nil || !json.Valid(data) {
		t.Fatalf("%v: %s", err, data)
	}
}
