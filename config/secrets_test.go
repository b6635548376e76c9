package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"recibo/setting"
)

// The values that no output may ever hold.
const (
	sesame   = "open-sesame-4711"
	abracada = "abra-cadabra-0815"
)

func TestSecretsAreReadFromWhereTheyAreKept(t *testing.T) {
	t.Parallel()
	files := map[string]string{"token": "  " + sesame + "\n", "list": sesame + "\n\n " + abracada + "\r\n"}
	for name, tt := range map[string]struct {
		file string
		env  []string
		want string
	}{
		"value":               {file: "token: " + sesame, want: sesame},
		"number":              {file: "token: 007", want: "007"},
		"variable":            {file: "token: ${T}", env: []string{"T=" + sesame}, want: sesame},
		"file":                {file: "token_file: token", want: sesame},
		"file by variable":    {file: "token_file: ${F}", env: []string{"F=token"}, want: sesame},
		"empty":               {file: `token: ""`, want: ""},
		"empty file name":     {file: "token_file: ${F:-}", want: ""},
		"empty beside a file": {file: "token_file: token\n  token: ${T:-}", want: sesame},
		"empty file beside":   {file: "token: " + sesame + "\n  token_file: ${F:-}", want: sesame},
		"list":                {file: "secrets: [" + sesame + ", " + abracada + "]", want: sesame + " " + abracada},
		"list in a file":      {file: "secrets_file: list", want: sesame + " " + abracada},
		"element":             {file: "keys: [{id: a, secret_file: token}]", want: sesame},
		"overriding":          {file: "token: x", env: []string{"RECIBO_DOOR_TOKEN=" + sesame}, want: sesame},
		"overriding file":     {file: "token: x", env: []string{"RECIBO_DOOR_TOKEN_FILE=token"}, want: sesame},
		"overriding a file":   {file: "token_file: none", env: []string{"RECIBO_DOOR_TOKEN=" + sesame}, want: sesame},
		"overriding list":     {file: "secrets_file: none", env: []string{"RECIBO_DOOR_SECRETS=" + sesame + "," + abracada}, want: sesame + " " + abracada},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, _, _, err := loadHouse(t, "door:\n  "+tt.file+"\n", files, tt.env...)
			if err != nil {
				t.Fatal(err)
			}
			all := append([]setting.Secret{h.Door.Token}, h.Door.Secrets...)
			for _, key := range h.Door.Keys {
				all = append(all, key.Secret)
			}
			var values []string
			for _, s := range all {
				if s.IsSet() {
					values = append(values, s.Reveal())
				}
			}
			if got := strings.Join(values, " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Every line is a mistake around a secret; the message must help without telling it.
func TestMistakesWithSecretsAreToldWithoutThem(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file, want string
		env        []string
	}{
		"value and file":   {file: "door:\n  token: " + sesame + "\n  token_file: token\n", want: "house.yaml:3:3: door.token_file: token and token_file are both given: keep one"},
		"list and file":    {file: "door:\n  secrets: [a]\n  secrets_file: token\n", want: "house.yaml:3:3: door.secrets_file: secrets and secrets_file are both given: keep one"},
		"two variables":    {env: []string{"RECIBO_DOOR_TOKEN=" + sesame, "RECIBO_DOOR_TOKEN_FILE=token"}, want: "environment RECIBO_DOOR_TOKEN_FILE: door.token_file: token and token_file are both given: keep one"},
		"no file":          {file: "door:\n  token_file: none\n", want: "house.yaml:2:15: door.token_file: can't be read: stat DIR/none: no such file or directory"},
		"empty file":       {file: "door:\n  token_file: empty\n", want: "house.yaml:2:15: door.token_file: can't be read: DIR/empty: the file holds no value"},
		"empty list file":  {file: "door:\n  secrets_file: empty\n", want: "house.yaml:2:17: door.secrets_file: can't be read: DIR/empty: the file holds no value"},
		"file without":     {file: "door:\n  token_file:\n", want: "house.yaml:2:3: door.token_file: has no value: write \"\" for an empty text, or remove the key to keep the default"},
		"section":          {file: "door:\n  token: {a: " + sesame + "}\n", want: "house.yaml:2:11: door.token: must be a single value, not a section"},
		"list":             {file: "door:\n  token: [" + sesame + "]\n", want: "house.yaml:2:10: door.token: must be a single value, not a list"},
		"value for a list": {file: "door:\n  secrets: " + sesame + "\n", want: "house.yaml:2:12: door.secrets: must be a list: [one, two], or a line with a dash for each"},
		"empty in a list":  {file: "door:\n  secrets: [a, '']\n", want: "house.yaml:2:16: door.secrets[1]: is an empty secret"},
		"mark of print":    {file: "door:\n  token: '[hidden]'\n", want: "house.yaml:2:10: door.token: is the mark that `config print` shows instead of a secret, not the secret"},
		"dollar in it":     {file: "door:\n  token: " + sesame + "${\n", want: "house.yaml:2:10: door.token: a ${ is not closed by }; a dollar that stands for itself is written $$"},
		"name in it":       {file: "door:\n  token: ${" + sesame + "}\n", want: "house.yaml:2:10: door.token: between ${ and } stands no name of a variable; a dollar that stands for itself is written $$"},
		"bad YAML":         {file: "door:\n  token: " + sesame + ": x\n", want: "house.yaml:2:10: mapping value is not allowed in this context"},
		"section's own check quotes it": {
			file: "garden:\n  trees: 99\n  password: " + sesame + "\n",
			want: "house.yaml:3:3: garden.password: [hidden] is too weak for so many trees",
		},
		"password of an address": {
			file: "kitchen:\n  poll_every: amqp://user:" + sesame + "@host/\n",
			want: `house.yaml:2:15: kitchen.poll_every: "amqp://user:[hidden]@host/" is no duration such as 90s, 5m, 48h or 400d`,
		},
		"token of an address": {
			file: "kitchen:\n  style: nats://" + sesame + "@host,nats://a:" + abracada + "@host\n",
			want: `house.yaml:2:10: kitchen.style: must be one of keep, replace, not "nats://[hidden]@host,nats://a:[hidden]@host"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, _, err := loadHouse(t, tt.file, map[string]string{"token": abracada, "empty": " \n"}, tt.env...)
			if err == nil {
				t.Fatal("was taken")
			}
			if err.Error() != tt.want {
				t.Errorf("\n got %s\nwant %s", err, tt.want)
			}
			if strings.Contains(err.Error(), sesame) || strings.Contains(err.Error(), abracada) {
				t.Error("tells the secret")
			}
		})
	}
}

func TestNoOutputHoldsASecret(t *testing.T) {
	t.Parallel()
	file := `
door:
  url: nats://user:` + abracada + `@127.0.0.1:4222
  token_file: token
  secrets: [` + sesame + `, "${S}"]
  subjects: ["x-` + sesame + `"]
  keys:
    - {id: a, secret: ` + sesame + `}
garden:
  password: ` + sesame + `
`
	h, origins, warnings, err := loadHouse(t, file, map[string]string{"token": abracada}, "S="+abracada, "RECIBO_X="+sesame)
	if err != nil {
		t.Fatal(err)
	}
	m, v := houseModel(), reflect.ValueOf(h)
	var yaml bytes.Buffer
	if err := m.print(&yaml, v, origins); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(m.json(m.root, v, secretsOf(m.root, v)))
	if err != nil {
		t.Fatal(err)
	}
	schema, err := m.schema(reflect.ValueOf(newHouse()))
	if err != nil {
		t.Fatal(err)
	}
	for name, output := range map[string]string{
		"yaml": yaml.String(), "json": string(asJSON), "schema": string(schema),
		"origins": fmt.Sprint(origins), "warnings": fmt.Sprint(warnings), "secrets": fmt.Sprintf("%+v %#v", h.Door.Keys, h.Door.Secrets),
	} {
		for _, secret := range []string{sesame, abracada} {
			if at := strings.Index(output, secret); at >= 0 {
				t.Errorf("%s holds a secret: %s", name, output[max(0, at-60):at])
			}
		}
	}
	if n := strings.Count(yaml.String(), setting.Hidden); n != 7 {
		t.Errorf("%d values are marked as hidden:\n%s", n, &yaml)
	}
}

func TestSecretOfAFileFollowsTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "list")
	put(t, file, "one\n")
	h := newHouse()
	src := source{file: "house.yaml", dir: dir, data: []byte("door: {secrets_file: list, token_file: list}")}
	if _, _, err := houseModel().load(src, &h); err != nil {
		t.Fatal(err)
	}
	put(t, file, "two\nthree\n")
	if got := fmt.Sprint(setting.RevealAll(h.Door.Secrets)); got != "[two three]" {
		t.Errorf("list: %s", got)
	}
	if got := h.Door.Token.Reveal(); got != "two\nthree" {
		t.Errorf("token: %q", got)
	}
}

func put(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
