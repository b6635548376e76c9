package fetcher

import (
	"slices"
	"strings"
	"testing"

	"recibo/rest"
	"recibo/setting"
)

func TestConfigurationErrorsNameTheKey(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"fetcher.url: ":                               func(c *Config) { c.URL = "fetcher:4006" },
		"fetcher.client_credentials.url: ":            func(c *Config) { c.URL, c.ClientCredentials = "http://x", &rest.ClientCredentials{} },
		"fetcher.proxy: ":                             func(c *Config) { c.Proxy = "http://user:open-sesame@" },
		"fetcher.external_hmac_key: entry 2 ":         func(c *Config) { c.ExternalHMACKey = secrets(keyA, "open-sesame") },
		"fetcher.storage_key: entry 1 ":               func(c *Config) { c.StorageKey = secrets("open-sesame") },
		"fetcher.encrypted: ":                         func(c *Config) { c.Encrypted = "" },
		"fetcher.max_result: ":                        func(c *Config) { c.MaxResult = 0 },
		"fetcher.memory: ":                            func(c *Config) { c.Memory = -1 },
		"fetcher.mode: ":                              func(c *Config) { c.Mode = "0060" },
		"fetcher.objects.endpoint: ":                  func(c *Config) { c.Objects.Endpoint = "s3.example.org:9000" },
		"fetcher.objects.endpoint: holds credentials": func(c *Config) { c.Objects.Endpoint = "https://user:open-sesame@s3.example.org" },
		"fetcher.objects.endpoint: must end":          func(c *Config) { c.Objects.Endpoint = "https://s3.example.org/bucket" },
		"fetcher.objects.endpoint: not an address":    func(c *Config) { c.Objects.Endpoint = "https://user:open-sesame@s3 example" },
		"fetcher.objects.bucket: ":                    func(c *Config) { c.Objects.Bucket = "Not A Bucket" },
		"fetcher.objects.prefix: ":                    func(c *Config) { c.Objects.Prefix = "../" },
		"fetcher.objects.access_key: ":                func(c *Config) { c.Objects.SecretKey = setting.NewSecret("open-sesame") },
		"fetcher.objects.tls: ":                       func(c *Config) { c.Objects.TLS.CertFile = "x" },
		"fetcher.sources[0].source: missing":          func(c *Config) { c.Sources = []SourceConfig{{Dir: "x"}} },
		"fetcher.sources[1].source: the same":         func(c *Config) { c.Sources = []SourceConfig{{Tenant: "a"}, {Tenant: "a"}} },
		"fetcher.sources[1].source: the same source and tenant as fetcher.sources[0]; none is": func(c *Config) {
			c.Sources = []SourceConfig{{Source: "a"}, {Source: "a", Tenant: SingleTenant}}
		},
		"fetcher.sources[0].url: ":                 func(c *Config) { c.Sources = []SourceConfig{{Tenant: "a", URL: "ftp://x"}} },
		"fetcher.sources[0].storage_key: entry 1 ": func(c *Config) { c.Sources = []SourceConfig{{Tenant: "a", StorageKey: secrets("open-sesame")}} },
		"fetcher.sources[1].objects.bucket: ": func(c *Config) {
			c.Sources = []SourceConfig{{Tenant: "a"}, {Tenant: "b", Objects: ObjectsConfig{Bucket: "x"}}}
		},
		"fetcher.legacy_signatures: ": func(c *Config) { c.LegacySignatures, c.Sources = true, []SourceConfig{{Tenant: "a"}} },
	} {
		c := complete()
		change(&c)
		err := c.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: got %v", want, err)
		} else if holds(err.Error(), "open-sesame") {
			t.Errorf("%s: a secret is quoted: %v", want, err)
		}
	}
}

func TestWhatIsMissing(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Error("the defaults:", err)
	}
	missing := func() []string {
		err := c.Complete()
		if err == nil {
			return nil
		}
		var keys []string
		for line := range strings.SplitSeq(err.Error(), "\n") {
			key, _, _ := strings.Cut(line, ":")
			keys = append(keys, key)
		}
		return keys
	}
	all := []string{"fetcher.external_hmac_key", "fetcher.storage_key", "fetcher.objects.endpoint", "fetcher.objects.bucket"}
	if got := missing(); !slices.Equal(got, all) {
		t.Errorf("missing %q", got)
	}
	c.Encrypted = Deliver
	c.ExternalHMACKey = secrets(keyA)
	c.Sources = []SourceConfig{{Tenant: "a", Objects: ObjectsConfig{Endpoint: "https://x", Bucket: "results"}}, {Tenant: "b"}}
	if got := missing(); !slices.Equal(got, []string{"fetcher.sources[1].objects.endpoint", "fetcher.sources[1].objects.bucket"}) {
		t.Errorf("missing %q", got)
	}
	c.Sources = c.Sources[:1]
	if got := missing(); got != nil {
		t.Errorf("missing %q", got)
	}
}

func TestASourceTakesFromTheSectionWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	c := keyed(keyA)
	c.URL, c.StorageKey = "http://common", secrets(keyB)
	c.Objects = ObjectsConfig{
		Endpoint: "https://common", Region: "r", Bucket: "common", Prefix: "p/", AccessKey: setting.NewSecret("a"),
		SecretKey: setting.NewSecret("b"), TLS: setting.TLS{CAFile: "ca"},
	}
	if got := c.With(SourceConfig{Tenant: "t"}); got.URL != c.URL || got.Objects != c.Objects || len(got.StorageKey) != 1 {
		t.Errorf("%+v", got)
	}
	got := c.With(SourceConfig{URL: "http://own", StorageKey: secrets(keyC, keyA), Objects: ObjectsConfig{
		Bucket: "own", PathStyle: true, AccessKey: setting.NewSecret("c"), SecretKey: setting.NewSecret("d"),
	}})
	o := got.Objects
	if got.URL != "http://own" || len(got.StorageKey) != 2 || len(got.ExternalHMACKey) != 1 || o.Bucket != "own" || !o.PathStyle ||
		o.Endpoint != "https://common" || o.Prefix != "p/" || o.AccessKey.Reveal() != "c" || o.SecretKey.Reveal() != "d" || o.TLS.CAFile != "ca" {
		t.Errorf("%+v", got)
	}
}
