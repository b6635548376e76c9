package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrintTellsWhereEachValueCameFrom(t *testing.T) {
	t.Parallel()
	file := `# a remark
door:
  url: http://${HOST}/
  token_file: token
  subjects: ["${A}", b]
  keys:
    - id: first
      secret: ` + sesame + `
    - {id: "2"}
kitchen:
  mode: 0600
  style: 'replace'
  start_at: 2026-01-31
garden:
`
	h, origins, _, err := loadHouse(t, file, map[string]string{"token": abracada}, "HOST=h", "A=a: b", "RECIBO_KITCHEN_POLL_EVERY=90s")
	if err != nil {
		t.Fatal(err)
	}
	want := `door:
  url: http://h/  # house.yaml:3 with HOST
  token: "[hidden]"  # secret file DIR/token (house.yaml:4)
  secrets: []  # default
  keys:  # house.yaml:6
    - id: first  # house.yaml:7
      secret: "[hidden]"  # house.yaml:8
      weight: 1  # default
    - id: "2"  # house.yaml:9
      secret: ""  # default
      weight: 1  # default
  subjects: ["a: b", b]  # house.yaml:5 with A
  tls:
    ca_file: ""  # default
    cert_file: ""  # default
    key_file: ""  # default
  from: []  # default
kitchen:
  cooks: 4  # default
  poll_every: 1m30s  # environment RECIBO_KITCHEN_POLL_EVERY
  pot: 64MiB  # default
  backoff: 1s..15m  # default
  start_at: "2026-01-31T00:00:00Z"  # house.yaml:13
  mode: "0600"  # house.yaml:11
  open: true  # default
  style: replace  # house.yaml:12
  share: 0.25  # default
  dir: DIR/data  # default
  # limit: not set
  port: 0  # default
garden:  # house.yaml:14
  trees: 3  # default
  path: /events  # default
  password: ""  # default
  log: ""  # default
`
	var got bytes.Buffer
	if err := houseModel().print(&got, reflect.ValueOf(h), origins); err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSuffix(origins["door.token"].SecretFile, "/token")
	if diff := cmp.Diff(want, strings.ReplaceAll(got.String(), dir, "DIR")); diff != "" {
		t.Error(diff)
	}
}

// Values that YAML or the variables could take for something else.
func TestWhatIsPrintedCanBeReadAgain(t *testing.T) {
	t.Parallel()
	values := []string{
		"plain", "", " ", "true", "No", "null", "~", "0640", "1e3", "-", "- a", "a: b", "a:", "a #b", "#", "'", `"`, `\`, "{id}.{ext}", "[a]",
		"a\nb", "tab\t", "$", "$$", "$$$", "${A}", "$${A}", "a$b", "&a", "*a", "!a", "|", ">", "%", "@", "`", "ä€😀", "<&>", "=", "?", "\u2028", "nats://h:1,x",
	}
	h := newHouse()
	h.Door.Subjects, h.Garden = values, &garden{Trees: 1}
	for i, value := range values {
		h.Kitchen.Mode, h.Door.URL = value, values[len(values)-1-i]
		var out bytes.Buffer
		if err := houseModel().print(&out, reflect.ValueOf(h), nil); err != nil {
			t.Fatal(err)
		}
		again, _, _, err := loadHouse(t, out.String(), nil)
		if err != nil {
			t.Fatalf("%q: %v\n%s", value, err, &out)
		}
		if again.Kitchen.Mode != value || again.Door.URL != h.Door.URL || !reflect.DeepEqual(again.Door.Subjects, values) || again.Kitchen.Backoff != h.Kitchen.Backoff {
			t.Errorf("%q came back as %q; %q; %q", value, again.Kitchen.Mode, again.Door.URL, again.Door.Subjects)
		}
	}
}

func TestPrintShowsWhatIsOff(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := houseModel().print(&out, reflect.ValueOf(newHouse()), nil); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "\n# garden: off\n") {
		t.Error(out.String())
	}
}

func TestJSONHasTheShapeOfTheFile(t *testing.T) {
	t.Parallel()
	h, _, _, err := loadHouse(t, "door: {token: "+sesame+", url: 'http://h/?a=<b>&c'}\nkitchen: {dir: /d}", nil)
	if err != nil {
		t.Fatal(err)
	}
	m := houseModel()
	data, err := marshal(m.json(m.root, reflect.ValueOf(h), nil))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"door":{"url":"http://h/?a=<b>&c","token":"[hidden]","secrets":[],"keys":[],"subjects":["report.finished","report.partial"],` +
		`"tls":{"ca_file":"","cert_file":"","key_file":""},"from":[]},` +
		`"kitchen":{"cooks":4,"poll_every":"5m","pot":"64MiB","backoff":"1s..15m","start_at":"","mode":"0640","open":true,"style":"keep",` +
		`"share":0.25,"dir":"/d","limit":null,"port":0},"garden":null}`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Error(diff)
	}
}

func TestSchemaKnowsEveryKey(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		m        *model
		defaults any
	}{
		"house":  {houseModel(), newHouse()},
		"recibo": {shape(), Default()},
	} {
		data, err := tt.m.schema(reflect.ValueOf(tt.defaults))
		if err != nil {
			t.Fatal(err)
		}
		var schema map[string]any
		if err := json.Unmarshal(data, &schema); err != nil {
			t.Fatal(err)
		}
		if schema["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
			t.Errorf("%s: $schema is %v", name, schema["$schema"])
		}
		sameKeys(t, name, tt.m.root, schema)
	}
}

// sameKeys compares a section with its schema, in both directions.
func sameKeys(t *testing.T, key string, f *field, schema map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	if schema["additionalProperties"] != false {
		t.Errorf("%s: other keys are let in", key)
	}
	if want := f.names(); len(properties) != len(want) {
		t.Errorf("%s: %d keys, want %v", key, len(properties), want)
	}
	for _, child := range f.fields {
		property, ok := properties[child.name].(map[string]any)
		if !ok {
			t.Errorf("%s.%s is missing", key, child.name)
			continue
		}
		if property["description"] != child.doc || child.doc == "" {
			t.Errorf("%s.%s: description %q", key, child.name, property["description"])
		}
		if _, twin := properties[child.name+fileSuffix]; child.isSecret() && !twin {
			t.Errorf("%s.%s has no twin", key, child.name)
		}
		if _, has := property["default"]; has && child.isSecret() {
			t.Errorf("%s.%s shows a default", key, child.name)
		}
		switch {
		case child.kind == section:
			sameKeys(t, key+"."+child.name, child, property)
		case child.kind == sequence && child.elem.kind == section:
			items, _ := property["items"].(map[string]any)
			sameKeys(t, key+"."+child.name, child.elem, items)
		}
	}
}

func TestSchemaDescribesValues(t *testing.T) {
	t.Parallel()
	data, err := houseModel().schema(reflect.ValueOf(newHouse()))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			Kitchen struct{ Properties map[string]json.RawMessage }
			Door    struct{ AllOf json.RawMessage }
		}
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"cooks":      `{"description":"at a time","type":["integer","string"],"pattern":"\\$\\{","minimum":1,"maximum":64,"default":4}`,
		"open":       `{"description":"is it open","type":["boolean","string"],"pattern":"\\$\\{","default":true}`,
		"style":      `{"description":"how","anyOf":[{"enum":["keep","replace"]},{"type":"string","pattern":"\\$\\{"}],"default":"keep"}`,
		"mode":       `{"description":"octal mode","type":["string","number"],"default":"0640"}`,
		"poll_every": `{"description":"pause","anyOf":[{"const":0},{"type":"string","pattern":"^(0|[0-9]+d|([0-9]+d)?([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$|\\$\\{"}],"default":"5m"}`,
	} {
		var got bytes.Buffer
		if err := json.Compact(&got, schema.Properties.Kitchen.Properties[key]); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.String()); diff != "" {
			t.Error(diff)
		}
	}
	if got := string(schema.Properties.Door.AllOf); !strings.Contains(got, `"token_file"`) || !strings.Contains(got, `"secrets_file"`) {
		t.Errorf("both of a pair are let in: %s", got)
	}
}
