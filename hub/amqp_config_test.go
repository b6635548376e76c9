package hub

import (
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"recibo/setting"
)

func validAMQP() AMQPConfig {
	c := DefaultAMQPConfig()
	c.URLs = []string{"amqps://a.example.org", "amqps://b.example.org:5671/tenant"}
	return c
}

func TestAMQPValidateNamesTheKey(t *testing.T) {
	t.Parallel()
	if err := validAMQP().Validate(); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		change func(*AMQPConfig)
		want   string
	}{
		"no url":              {func(c *AMQPConfig) { c.URLs = nil }, "urls: missing"},
		"other scheme":        {func(c *AMQPConfig) { c.URLs = []string{"http://u:hunter2@x"} }, "urls: number 1 is not an address"},
		"no host":             {func(c *AMQPConfig) { c.URLs[1] = "amqp:///vhost" }, "urls: number 2"},
		"unparsable":          {func(c *AMQPConfig) { c.URLs[0] = "amqp://u:hunter2@x:port%" }, "urls: number 1"},
		"bad parameter":       {func(c *AMQPConfig) { c.URLs[0] = "amqp://u:hunter2@x?heartbeat=soon" }, "urls: number 1"},
		"plain with tls":      {func(c *AMQPConfig) { c.URLs[0], c.TLS.CAFile = "amqp://u:hunter2@x", "ca" }, "urls: amqp://x:5672/ is not amqps"},
		"no queue":            {func(c *AMQPConfig) { c.Queue = "" }, "queue: missing"},
		"reserved queue":      {func(c *AMQPConfig) { c.Queue = "amq.gen" }, "queue: "},
		"no exchange":         {func(c *AMQPConfig) { c.Exchange = "" }, "exchange: missing"},
		"long exchange":       {func(c *AMQPConfig) { c.Exchange = strings.Repeat("x", 256) }, "exchange: longer"},
		"no routing key":      {func(c *AMQPConfig) { c.RoutingKeys = nil }, "routing_keys: missing"},
		"empty routing key":   {func(c *AMQPConfig) { c.RoutingKeys = []string{"a", ""} }, "routing_keys: \"\" is not"},
		"user without secret": {func(c *AMQPConfig) { c.Username = "u" }, "password: missing beside username"},
		"half a pair":         {func(c *AMQPConfig) { c.TLS.CertFile = "x" }, "tls: "},
	} {
		config := validAMQP()
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

func TestAMQPWithoutDeclareNeedsNoExchange(t *testing.T) {
	t.Parallel()
	c := validAMQP()
	c.Declare, c.Exchange, c.RoutingKeys = false, "", nil
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestAMQPBrokersAreShownWithoutCredentials(t *testing.T) {
	t.Parallel()
	c := AMQPConfig{URLs: []string{"amqp://u:hunter2@a", "amqps://u@[::1]:99/x%2Fy?auth_mechanism=external"}}
	if got, want := c.Brokers(), []string{"amqp://a:5672/", "amqps://[::1]:99/x/y"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestAMQPLogin(t *testing.T) {
	t.Parallel()
	for address, c := range map[string]struct {
		config AMQPConfig
		want   string
	}{
		"amqp://x":                          {AMQPConfig{}, "PLAIN \x00guest\x00guest"},
		"amqp://u:p@x":                      {AMQPConfig{}, "PLAIN \x00u\x00p"},
		"amqp://u@x":                        {AMQPConfig{Password: setting.NewSecret("p")}, "PLAIN \x00u\x00p"},
		"amqp://u:q@x":                      {AMQPConfig{Username: "v", Password: setting.NewSecret("p")}, "PLAIN \x00v\x00p"},
		"amqps://x?auth_mechanism=external": {AMQPConfig{}, "EXTERNAL \x00*\x00*"},
	} {
		broker, err := amqp.ParseURI(address)
		if err != nil {
			t.Fatal(err)
		}
		auth := c.config.login(broker)
		if got := auth.Mechanism() + " " + auth.Response(); got != c.want {
			t.Errorf("%s: %q", address, got)
		}
	}
}

func TestAMQPRefusesWhatCanNotWork(t *testing.T) {
	t.Parallel()
	judge := func(AMQPMessage) Delivery { return Delivery{} }
	bad := validAMQP()
	bad.TLS.CAFile = write(t, "ca.pem", "nothing")
	for name, c := range map[string]struct {
		config  AMQPConfig
		options AMQPOptions
		want    string
	}{
		"section": {AMQPConfig{}, AMQPOptions{Normalise: judge}, "amqp: urls: missing"},
		"judge":   {validAMQP(), AMQPOptions{}, "nothing judges"},
		"tls":     {bad, AMQPOptions{Normalise: judge}, "amqp: tls: "},
	} {
		if _, err := NewAMQP(c.config, c.options); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
