package hub

import (
	"strings"
	"testing"

	"recibo/setting"
)

func TestDefaultConfigIsValid(t *testing.T) {
	t.Parallel()
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesTheKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"major":             {func(c *Config) { c.MajorVersion = 0 }, "hub.major_version"},
		"missing":           {func(c *Config) { c.MissingVersion = "" }, "hub.missing_version"},
		"no transport":      {func(c *Config) { c.NATS = nil }, "no transport"},
		"key without id":    {func(c *Config) { c.SigningKeys = []SigningKey{{Source: "s"}} }, "hub.signing_keys[0].id"},
		"key without src":   {func(c *Config) { c.SigningKeys = []SigningKey{{ID: "k"}} }, "hub.signing_keys[0].source"},
		"key without value": {func(c *Config) { c.SigningKeys = []SigningKey{{ID: "k", Source: "s"}} }, "hub.signing_keys[0].secret: missing"},
		"short key": {func(c *Config) {
			c.SigningKeys = []SigningKey{{ID: "k", Source: "s", Secret: setting.NewSecret("hunter2")}}
		}, "shorter than 32"},
		"url empty":        {func(c *Config) { c.NATS.URL = " , " }, "hub.nats.url: missing"},
		"url scheme":       {func(c *Config) { c.NATS.URL = "http://x" }, "scheme http"},
		"url mixed":        {func(c *Config) { c.NATS.URL = "nats://x,wss://y" }, "mixed"},
		"url credentials":  {func(c *Config) { c.NATS.URL = "nats://a:hunter2@x" }, "credentials"},
		"url unparsable":   {func(c *Config) { c.NATS.URL = "nats://a:hunter2@x:port%" }, "hub.nats.url"},
		"stream":           {func(c *Config) { c.NATS.Stream = "a.b" }, "hub.nats.stream"},
		"durable":          {func(c *Config) { c.NATS.Durable = "" }, "hub.nats.durable"},
		"no subjects":      {func(c *Config) { c.NATS.Subjects = nil }, "hub.nats.subjects"},
		"subject":          {func(c *Config) { c.NATS.Subjects = []string{"a..b"} }, "not a subject"},
		"subject tail":     {func(c *Config) { c.NATS.Subjects = []string{"a.>.b"} }, "not a subject"},
		"subjects overlap": {func(c *Config) { c.NATS.Subjects = []string{"a.*.c", "a.b.>"} }, "overlap"},
		"two logins":       {func(c *Config) { c.NATS.User, c.NATS.Token = "u", setting.NewSecret("t") }, "exclude"},
		"password alone":   {func(c *Config) { c.NATS.Password = setting.NewSecret("p") }, "hub.nats.password"},
		"half a pair":      {func(c *Config) { c.NATS.TLS.CertFile = "x" }, "hub.nats.tls"},
	} {
		config := DefaultConfig()
		c.change(&config)
		err := config.Validate()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error holds a secret: %v", name, err)
		}
	}
}

func TestValidateAcceptsWhatWorks(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"off":          func(c *Config) { c.Enabled, c.NATS = false, nil },
		"several urls": func(c *Config) { c.NATS.URL = "nats://a:4222, tls://b,c:4222" },
		"websocket":    func(c *Config) { c.NATS.URL = "wss://hub.example.org/nats" },
		"wildcards":    func(c *Config) { c.NATS.Subjects = []string{"a.*.finished", "a.*.partial", "b.>"} },
	} {
		config := DefaultConfig()
		change(&config)
		if err := config.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
