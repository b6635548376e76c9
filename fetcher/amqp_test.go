package fetcher

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"recibo/hub"
	"recibo/setting"
)

// queue returns a section of a subscription that is valid.
func queue(name string, change ...func(*hub.AMQPConfig)) *hub.AMQPConfig {
	c := DefaultAMQPConfig()
	c.URLs, c.Queue = []string{"amqps://rabbit.example.org/" + name}, name
	for _, apply := range change {
		apply(&c)
	}
	return &c
}

func TestASubscriptionWithNothingSet(t *testing.T) {
	t.Parallel()
	c := DefaultAMQPConfig()
	keys := []string{"job.completed", "job.failed"}
	if c.Exchange != "fetcher.job.events" || c.Queue != "recibo.jobs" || !slices.Equal(c.RoutingKeys, keys) || !c.Declare ||
		len(c.URLs) != 0 {
		t.Errorf("%+v", c)
	}
}

func TestAFetcherIsOnOnceItIsNamed(t *testing.T) {
	t.Parallel()
	section, own := queue("a"), SourceConfig{Tenant: "b", AMQP: queue("b")}
	bare, asked := SourceConfig{Tenant: "a"}, SourceConfig{Tenant: "b", URL: "http://x"}
	same := SourceConfig{Tenant: "c", AMQP: queue("a")}
	several := func(sources ...SourceConfig) []SourceConfig { return sources }
	for name, test := range map[string]struct {
		config        Config
		on            bool
		subscriptions []string // queues
	}{
		"nothing":                   {Config{}, false, nil},
		"keys alone":                {complete(), false, nil},
		"its messages":              {Config{AMQP: section}, true, []string{"a"}},
		"an address":                {Config{URL: "http://x"}, true, nil},
		"sources without either":    {Config{Sources: several(bare)}, false, nil},
		"the address of a source":   {Config{Sources: several(bare, asked)}, true, nil},
		"the messages of a source":  {Config{Sources: several(bare, own)}, true, []string{"b"}},
		"sources that share":        {Config{AMQP: section, Sources: several(bare, asked)}, true, []string{"a"}},
		"one with its own":          {Config{AMQP: section, Sources: several(bare, own)}, true, []string{"a", "b"}},
		"all with their own":        {Config{AMQP: section, Sources: several(own)}, true, []string{"b"}},
		"the section's, said again": {Config{AMQP: section, Sources: several(same, bare)}, true, []string{"a"}},
	} {
		var got []string
		for _, s := range test.config.Subscriptions() {
			got = append(got, s.Queue)
		}
		if test.config.On() != test.on || !slices.Equal(got, test.subscriptions) {
			t.Errorf("%s: on %v, subscriptions %q", name, test.config.On(), got)
		}
	}
}

func TestSubscriptionsAreDistinctInEveryKey(t *testing.T) {
	t.Parallel()
	password := func(value string) func(*hub.AMQPConfig) {
		return func(c *hub.AMQPConfig) { c.Username, c.Password = "recibo", setting.NewSecret(value) }
	}
	for name, change := range map[string]func(*hub.AMQPConfig){
		"urls":         func(c *hub.AMQPConfig) { c.URLs = append(c.URLs, "amqps://second") },
		"username":     func(c *hub.AMQPConfig) { c.Username = "other" },
		"password":     password("other"),
		"exchange":     func(c *hub.AMQPConfig) { c.Exchange = "other" },
		"queue":        func(c *hub.AMQPConfig) { c.Queue = "other" },
		"routing_keys": func(c *hub.AMQPConfig) { c.RoutingKeys = []string{"job.#"} },
		"declare":      func(c *hub.AMQPConfig) { c.Declare = false },
		"tls":          func(c *hub.AMQPConfig) { c.TLS.CAFile = "ca.pem" },
	} {
		c := Config{AMQP: queue("a", password("secret")), Sources: []SourceConfig{
			{Tenant: "a", AMQP: queue("a", password("secret"), change)}, {Tenant: "b", AMQP: queue("a", password("secret"))}, {Tenant: "c"},
		}}
		if got := c.Subscriptions(); len(got) != 2 {
			t.Errorf("%s: %d subscriptions", name, len(got))
		}
	}
}

func TestTheRoutingKeysOfFetcher1AreBoundByWhereItIsTaken(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		legacy     bool
		configured []string
		want       []string
	}{
		"both forms":        {true, nil, []string{"job.completed.#", "job.failed.#"}},
		"Fetcher 2 alone":   {false, nil, []string{"job.completed", "job.failed"}},
		"keys of one's own": {true, []string{"job.failed"}, []string{"job.failed"}},
		"and of Fetcher 2":  {false, []string{"job.*"}, []string{"job.*"}},
	} {
		c := Config{LegacySignatures: test.legacy, AMQP: queue("a")}
		if test.configured != nil {
			c.AMQP.RoutingKeys = test.configured
		}
		if got := c.Subscriptions(); len(got) != 1 || !slices.Equal(got[0].RoutingKeys, test.want) {
			t.Errorf("%s: %+v", name, got)
		}
		if test.configured == nil && !slices.Equal(c.AMQP.RoutingKeys, DefaultAMQPConfig().RoutingKeys) {
			t.Errorf("%s: the section was changed: %q", name, c.AMQP.RoutingKeys)
		}
	}
}

func TestSubscriptionErrorsNameTheKey(t *testing.T) {
	t.Parallel()
	c := complete()
	c.AMQP = queue("a", func(c *hub.AMQPConfig) { c.URLs = nil })
	c.Sources = []SourceConfig{
		{Tenant: "a"},
		{Tenant: "b", AMQP: queue("b", func(c *hub.AMQPConfig) { c.Queue, c.Username = "amq.b", "recibo" })},
	}
	err := c.Validate()
	for _, want := range []string{
		"fetcher.amqp.urls: missing", "fetcher.sources[1].amqp.queue: ", "fetcher.sources[1].amqp.password: missing",
	} {
		if err == nil || !strings.Contains("\n"+err.Error(), "\n"+want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	if lines := strings.Count(fmt.Sprint(err), "\n"); lines != 2 {
		t.Errorf("%d more lines: %v", lines-2, err)
	}
}

func TestAFetcherThatIsOnMustBeComplete(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]func(*Config){
		"its messages": func(c *Config) { c.AMQP = queue("a") },
		"an address":   func(c *Config) { c.URL = "http://fetcher:4006" },
	} {
		c := DefaultConfig()
		on(&c)
		err := c.Validate()
		missing := []string{"fetcher.external_hmac_key: missing", "fetcher.storage_key: missing", "fetcher.objects.bucket: missing"}
		if err == nil || !holds(err.Error(), missing...) {
			t.Errorf("%s: got %v", name, err)
		}
		c = complete()
		on(&c)
		if err := c.Validate(); err != nil {
			t.Errorf("%s, complete: %v", name, err)
		}
	}
}

// What a source leaves out of its own section is the common one's, key by key; a user is not sent to a broker that has one.
func TestASourceTakesWhatItLeavesOutFromTheSection(t *testing.T) {
	t.Parallel()
	common := DefaultAMQPConfig()
	common.URLs, common.Username, common.Password = []string{"amqp://common"}, "hans", setting.NewSecret("pw")
	common.Exchange, common.Declare = "jobs", false
	own := func(change func(*hub.AMQPConfig)) *hub.AMQPConfig {
		c := DefaultAMQPConfig()
		change(&c)
		return &c
	}
	for name, test := range map[string]struct {
		own  *hub.AMQPConfig
		want func(*hub.AMQPConfig)
	}{
		"nothing":    {nil, func(*hub.AMQPConfig) {}},
		"a queue":    {own(func(c *hub.AMQPConfig) { c.Queue = "acme" }), func(c *hub.AMQPConfig) { c.Queue = "acme" }},
		"an address": {own(func(c *hub.AMQPConfig) { c.URLs = []string{"amqp://own"} }), func(c *hub.AMQPConfig) { c.URLs = []string{"amqp://own"} }},
		"a user":     {own(func(c *hub.AMQPConfig) { c.Username = "eva" }), func(c *hub.AMQPConfig) { c.Username, c.Password = "eva", setting.Secret{} }},
		"a user of its own in the address": {own(func(c *hub.AMQPConfig) { c.URLs = []string{"amqp://eva:x@own"} }), func(c *hub.AMQPConfig) {
			c.URLs, c.Username, c.Password = []string{"amqp://eva:x@own"}, "", setting.Secret{}
		}},
		"routing keys": {own(func(c *hub.AMQPConfig) { c.RoutingKeys = []string{"job.#"} }), func(c *hub.AMQPConfig) { c.RoutingKeys = []string{"job.#"} }},
	} {
		want := common
		test.want(&want)
		got := (Config{AMQP: &common}).With(SourceConfig{AMQP: test.own}).AMQP
		if !sameAMQP(*got, want) {
			t.Errorf("%s: %+v", name, *got)
		}
	}
}
