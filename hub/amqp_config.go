package hub

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"recibo/setting"
)

// AMQPConfig is a section of a RabbitMQ subscription, such as hub.amqp.
type AMQPConfig struct {
	URLs        []string       `yaml:"urls" doc:"brokers, tried in turn: amqp:// or amqps://; the path names the virtual host"`
	Username    string         `yaml:"username" doc:"user name; default: the one in the url, else guest"`
	Password    setting.Secret `yaml:"password" doc:"the user's password; default: the one in the url"`
	Exchange    string         `yaml:"exchange" doc:"topic exchange that the events are published to"`
	Queue       string         `yaml:"queue" doc:"durable queue to receive from"`
	RoutingKeys []string       `yaml:"routing_keys" doc:"routing keys that the queue is bound by; AMQP wildcards work"`
	Declare     bool           `yaml:"declare" doc:"declare a missing exchange and queue, and bind them; false: only receive"`
	TLS         setting.TLS    `yaml:"tls" doc:"roots and client certificate"`
}

// DefaultAMQPConfig is the section hub.amqp with nothing set. There is no default broker. The exchange is the one that
// Reporter's chart names; its routing keys are not documented upstream, so that they may have to be configured.
func DefaultAMQPConfig() AMQPConfig {
	return AMQPConfig{
		Exchange:    "reporter.events",
		Queue:       "recibo.reports",
		RoutingKeys: []string{ReportFinished, ReportPartial},
		Declare:     true,
	}
}

// Validate names every value that can't work, by its key within the section: there is more than one such section.
func (c AMQPConfig) Validate() error {
	var errs []error
	add := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	add("urls", c.validateURLs())
	add("queue", validateAMQPName(c.Queue))
	if c.Declare {
		add("exchange", validateAMQPName(c.Exchange))
		add("routing_keys", validateRoutingKeys(c.RoutingKeys))
	}
	if c.Username != "" && !c.Password.IsSet() {
		add("password", errors.New("missing beside username"))
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		add("tls", errors.New("cert_file and key_file go together: one of them is missing"))
	} else if _, err := setting.NewMaterial(c.TLS); err != nil {
		add("tls", err)
	}
	return errors.Join(errs...)
}

func (c AMQPConfig) validateURLs() error {
	brokers, err := c.brokers()
	if err != nil {
		return err
	}
	for _, b := range brokers {
		if b.Scheme != "amqps" && c.TLS != (setting.TLS{}) {
			return fmt.Errorf("%s is not amqps:// and tls is set", shownBroker(b))
		}
	}
	return nil
}

// brokers reads the addresses. An error never quotes one, which may hold a password.
func (c AMQPConfig) brokers() ([]amqp.URI, error) {
	if len(c.URLs) == 0 {
		return nil, errors.New("missing")
	}
	var brokers []amqp.URI
	for i, text := range c.URLs {
		parsed, err := url.Parse(text)
		if err != nil || parsed.Hostname() == "" || (parsed.Scheme != "amqp" && parsed.Scheme != "amqps") {
			return nil, fmt.Errorf("number %d is not an address such as amqps://host:5671/vhost", i+1)
		}
		broker, err := amqp.ParseURI(text)
		if err != nil {
			return nil, fmt.Errorf("number %d is not an address such as amqps://host:5671/vhost", i+1)
		}
		brokers = append(brokers, broker)
	}
	return brokers, nil
}

// login returns how to log in to a broker, with the password as it is now.
func (c AMQPConfig) login(b amqp.URI) amqp.Authentication {
	if slices.ContainsFunc(b.AuthMechanism, func(m string) bool { return strings.EqualFold(m, "external") }) {
		return &amqp.ExternalAuth{}
	}
	plain := b.PlainAuth()
	if c.Username != "" {
		plain.Username = c.Username
	}
	if c.Password.IsSet() {
		plain.Password = c.Password.Reveal()
	}
	return plain
}

// Brokers lists the addresses for people: without credentials, which a URL may hold.
func (c AMQPConfig) Brokers() []string {
	brokers, _ := c.brokers()
	shown := make([]string, len(brokers))
	for i, b := range brokers {
		shown[i] = shownBroker(b)
	}
	return shown
}

// shownBroker is an address without credentials.
func shownBroker(b amqp.URI) string {
	shown := url.URL{Scheme: b.Scheme, Host: net.JoinHostPort(b.Host, strconv.Itoa(b.Port)), Path: "/"}
	if b.Vhost != "/" {
		shown.Path += b.Vhost
	}
	return shown.String()
}

// validateAMQPName applies the limits of AMQP 0-9-1 (short string) and the prefix that RabbitMQ keeps for itself.
func validateAMQPName(name string) error {
	switch {
	case name == "":
		return errors.New("missing")
	case len(name) > 255:
		return errors.New("longer than 255 bytes")
	case strings.HasPrefix(name, "amq.") || strings.ContainsAny(name, "\r\n\x00"):
		return fmt.Errorf("%q is not a name that can be declared", name)
	}
	return nil
}

func validateRoutingKeys(keys []string) error {
	if len(keys) == 0 {
		return errors.New("missing")
	}
	for _, key := range keys {
		if key == "" || len(key) > 255 {
			return fmt.Errorf("%q is not a routing key: 1 to 255 bytes", key)
		}
	}
	return nil
}
