package config

import (
	"bytes"
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

// Every line is a text that may stand in the file or in a message, and what of it is shown.
func TestCredentialsInAddressesAreHidden(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		// What holds none is left as it is.
		"":                                "",
		"amqp://host:5672/vhost":          "amqp://host:5672/vhost",
		"nats://one:4222,nats://two:4222": "nats://one:4222,nats://two:4222",
		"//lerian.fetcher/worker":         "//lerian.fetcher/worker",
		"ops@example.org":                 "ops@example.org",
		"report.finished":                 "report.finished",
		"a://":                            "a://",

		"amqp://user:pw@host/vhost":             "amqp://user:[hidden]@host/vhost",
		"amqps://user:pw@[::1]:5671/%2F?x=y":    "amqps://user:[hidden]@[::1]:5671/%2F?x=y",
		"amqp://us%40er:p%40s%2Fs%3Aw@host/":    "amqp://us%40er:[hidden]@host/",
		"amqp://user:p@ss@host":                 "amqp://user:[hidden]@host",
		"amqp://user:p/w@host":                  "amqp://user:[hidden]@host",
		"amqp://user:12/w@host":                 "amqp://user:[hidden]@host",
		"amqp://user:p?w#x@host":                "amqp://user:[hidden]@host",
		"amqp://user:p:w@host":                  "amqp://user:[hidden]@host",
		"amqp://user:p w@host":                  "amqp://user:[hidden]@host",
		"amqp://user:p,w@host":                  "amqp://user:[hidden]@host",
		"amqp://user:p://w@host":                "amqp://user:[hidden]@host",
		"amqp://user:p ://w@host":               "amqp://user:[hidden]@host",
		"amqp://user://w@host":                  "amqp://user:[hidden]@host",
		"nats://token@host":                     "nats://[hidden]@host",
		"nats://token:@host":                    "nats://[hidden]@host",
		"nats://:pw@host":                       "nats://:[hidden]@host",
		"amqp://user:[hidden]@host/":            "amqp://user:[hidden]@host/",
		"http://user:pw@proxy:3128":             "http://user:[hidden]@proxy:3128",
		"see nats://user:pw@host or mail a@b":   "see nats://user:[hidden]@b", // rather too much
		`"amqp://user:pw@host/" is no duration`: `"amqp://user:[hidden]@host/" is no duration`,

		// Several servers in one text, each with a scheme or only the first.
		"nats://a:one@h,nats://b:two@i":                     "nats://a:[hidden]@h,nats://b:[hidden]@i",
		"nats://a:one@h, tls://two@i ,nats://j":             "nats://a:[hidden]@h, tls://[hidden]@i ,nats://j",
		"nats://h:4222,nats://b:two@i":                      "nats://h:4222,nats://b:[hidden]@i",
		"nats://a:o,ne@h,nats://b:t@w,o@i":                  "nats://a:[hidden]@h,nats://b:[hidden]@i",
		"nats://a:one@h,b:two@i":                            "nats://a:[hidden]@i",
		"nats://h:4222,b:two@i":                             "nats://h:[hidden]@i",
		"nats://one@h:4222,b:two@i":                         "nats://[hidden]@i",
		"nats://h,one@i:4222":                               "nats://[hidden]@i:4222",
		`["amqp://a:one@h" "amqp://b:two@i"]`:               `["amqp://a:[hidden]@h" "amqp://b:[hidden]@i"]`,
		`parse "amqp://a:b@h": no; parse 'amqp://c:d@h': x`: `parse "amqp://a:[hidden]@h": no; parse 'amqp://c:[hidden]@h': x`,
	} {
		if got := hideUser(text); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// FuzzHideUser looks for a password that shows, written as it is or as it should be.
func FuzzHideUser(f *testing.F) {
	for _, password := range []string{"pw", "p@w", "p/w", "p,w", "p:w", "p w", "://", "a,b@c", `"`, "[hidden]", "\u00e9\n"} {
		f.Add(password)
	}
	f.Fuzz(func(t *testing.T, password string) {
		if password == "" || nextURL(password+"@") < len(password)+1 {
			return // what looks like another URL is taken for one
		}
		for _, written := range []string{password, strings.TrimPrefix(url.UserPassword("", password).String(), ":")} {
			text := "amqp://user:" + written + "@host/a,amqps://other:" + written + "@host/b"
			if got, want := hideUser(text), "amqp://user:[hidden]@host/a,amqps://other:[hidden]@host/b"; got != want {
				t.Errorf("%q\n got %q\nwant %q", text, got, want)
			}
		}
	})
}

// Addresses are no secrets by their key; what they hold is one all the same, whatever key they stand at.
func TestNoOutputHoldsCredentialsOfAnAddress(t *testing.T) {
	t.Parallel()
	const file = `
door:
  url: nats://a:pw-1@one:4222,nats://pw-2@two:4222
  subjects: ["amqp://b:pw-3@one/", "amqps://c:pw%2D4/@two/v", plain]
kitchen:
  mode: http://d:pw-5@proxy:3128
`
	h, origins, _, err := loadHouse(t, file, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, v := houseModel(), reflect.ValueOf(h)
	var yaml bytes.Buffer
	if err := m.print(&yaml, v, origins); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(m.json(m.root, v, nil))
	if err != nil {
		t.Fatal(err)
	}
	for name, output := range map[string]string{"yaml": yaml.String(), "json": string(asJSON)} {
		if at := strings.Index(output, "pw"); at >= 0 {
			t.Errorf("%s holds a password: %s", name, output[max(0, at-60):at])
		}
		if n := strings.Count(output, "[hidden]@"); n != 5 {
			t.Errorf("%s: %d are hidden:\n%s", name, n, output)
		}
	}
	for _, want := range []string{
		`url: "nats://a:[hidden]@one:4222,nats://[hidden]@two:4222"`,
		`subjects: ["amqp://b:[hidden]@one/", "amqps://c:[hidden]@two/v", plain]`,
	} {
		if !strings.Contains(yaml.String(), want) {
			t.Errorf("lacks %s:\n%s", want, &yaml)
		}
	}
}

// An address may stand where something else belongs, a key included.
func TestNoProblemQuotesCredentialsOfAnAddress(t *testing.T) {
	t.Parallel()
	const file = `
door:
  url: {"amqp://a:pw-1@one/": x}
  "amqp://b:pw-2/@two/": x
  keys: [{id: a, weight: "amqp://c:pw-3@w@three/"}]
  from: ["amqp://d:pw-4@four/"]
kitchen:
  style: "nats://a:pw,5@one, nats://pw-6@two"
  backoff: "amqp://e:pw 7@host"
  dir: ftp://g:pw-9@host/
garden:
  password_file: ftp://h:pw-10@host/
`
	_, _, _, err := loadHouse(t, file, nil, "RECIBO_KITCHEN_COOKS=amqp://f:pw-8@host/")
	if err == nil {
		t.Fatal("was taken")
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 9 || strings.Contains(err.Error(), "pw") {
		t.Errorf("%d problems: %v", n, err)
	}
}
