package fetcher

import (
	"fmt"
	"slices"
	"strings"

	"recibo/hub"
)

// defaultExchange is the one that Fetcher's chart names.
const defaultExchange = "fetcher.job.events"

// DefaultAMQPConfig is the section fetcher.amqp, or that of one of fetcher.sources, with nothing set. There is no default
// broker.
func DefaultAMQPConfig() hub.AMQPConfig {
	c := hub.DefaultAMQPConfig()
	c.Exchange, c.Queue, c.RoutingKeys = defaultExchange, "recibo.jobs", []string{JobCompleted, JobFailed}
	return c
}

// On reports whether there is a Fetcher to take jobs from: one whose messages are received, or one that can be asked.
func (c Config) On() bool {
	named := func(s SourceConfig) bool { return s.AMQP != nil || s.URL != "" }
	return named(SourceConfig{AMQP: c.AMQP, URL: c.URL}) || slices.ContainsFunc(c.Sources, named)
}

// Subscriptions returns what messages are received by, each once: the sources that name none share that of the section,
// and those that name the same broker and queue in the same words share that. A Fetcher that is only asked has none.
//
// Fetcher 1.x adds the source to its routing keys, as in job.completed.reporter. With legacy_signatures the default keys
// are therefore bound by with a wildcard, which matches both forms; keys that are configured stay as they are.
func (c Config) Subscriptions() []hub.AMQPConfig {
	var all []hub.AMQPConfig
	add := func(own *hub.AMQPConfig) {
		if own != nil && !slices.ContainsFunc(all, func(other hub.AMQPConfig) bool { return sameAMQP(*own, other) }) {
			all = append(all, *own)
		}
	}
	if len(c.Sources) == 0 {
		add(c.AMQP)
	}
	for _, s := range c.Sources {
		add(c.With(s).AMQP)
	}
	for i := range all {
		if c.LegacySignatures && slices.Equal(all[i].RoutingKeys, DefaultAMQPConfig().RoutingKeys) {
			all[i].RoutingKeys = []string{JobCompleted + ".#", JobFailed + ".#"}
		}
	}
	return all
}

func sameAMQP(a, b hub.AMQPConfig) bool {
	return slices.Equal(a.URLs, b.URLs) && a.Username == b.Username && a.Password.Reveal() == b.Password.Reveal() &&
		a.Exchange == b.Exchange && a.Queue == b.Queue && slices.Equal(a.RoutingKeys, b.RoutingKeys) && a.Declare == b.Declare &&
		a.TLS == b.TLS
}

// checkAMQP names every value of the subscriptions that can't work.
func (c Config) checkAMQP() []error {
	errs := checkSubscription("fetcher.amqp", c.AMQP)
	for i, s := range c.Sources {
		errs = append(errs, checkSubscription(fmt.Sprintf("fetcher.sources[%d].amqp", i), s.AMQP)...)
	}
	return errs
}

func checkSubscription(section string, own *hub.AMQPConfig) []error {
	if own == nil {
		return nil
	}
	err := own.Validate()
	if err == nil {
		return nil
	}
	var errs []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		errs = append(errs, fmt.Errorf("%s.%s", section, line))
	}
	return errs
}
