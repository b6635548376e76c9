package fetcher

import (
	"fmt"
	"net/url"
	"reflect"
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

// Idle reports whether the section says something although there is no Fetcher to take jobs from.
func (c Config) Idle() bool { return !c.On() && !reflect.DeepEqual(c, DefaultConfig()) }

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

// mergeAMQP returns a source's own section with what it leaves out taken from the common one. A name of a user goes with its
// password: those of the section stand for a source that gives neither, in keys or in its addresses.
func mergeAMQP(own, common *hub.AMQPConfig) *hub.AMQPConfig {
	if own == nil || common == nil {
		return or(own, common)
	}
	merged, defaults := *own, DefaultAMQPConfig()
	if len(own.URLs) == 0 {
		merged.URLs = common.URLs
	}
	if own.Username == "" && !own.Password.IsSet() && !slices.ContainsFunc(own.URLs, holdsUser) {
		merged.Username, merged.Password = common.Username, common.Password
	}
	merged.TLS = or(own.TLS, common.TLS)
	if own.Exchange == defaults.Exchange {
		merged.Exchange = common.Exchange
	}
	if own.Queue == defaults.Queue {
		merged.Queue = common.Queue
	}
	if slices.Equal(own.RoutingKeys, defaults.RoutingKeys) {
		merged.RoutingKeys = common.RoutingKeys
	}
	merged.Declare = own.Declare && common.Declare
	return &merged
}

func holdsUser(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.User != nil
}

func sameAMQP(a, b hub.AMQPConfig) bool {
	return slices.Equal(a.URLs, b.URLs) && a.Username == b.Username && a.Password.Reveal() == b.Password.Reveal() &&
		a.Exchange == b.Exchange && a.Queue == b.Queue && slices.Equal(a.RoutingKeys, b.RoutingKeys) && a.Declare == b.Declare &&
		a.TLS == b.TLS
}

// checkAMQP names every value of the subscriptions that can't work. What a source has from the section is told once.
func (c Config) checkAMQP() []error {
	common := faults(c.AMQP)
	errs := at("fetcher.amqp", common)
	for i, s := range c.Sources {
		if s.AMQP != nil {
			own := slices.DeleteFunc(faults(c.With(s).AMQP), func(fault string) bool { return slices.Contains(common, fault) })
			errs = append(errs, at(fmt.Sprintf("fetcher.sources[%d].amqp", i), own)...)
		}
	}
	return errs
}

// faults lists what is wrong with a section, each beginning with its key.
func faults(c *hub.AMQPConfig) []string {
	if c == nil {
		return nil
	}
	if err := c.Validate(); err != nil {
		return strings.Split(err.Error(), "\n")
	}
	return nil
}

func at(section string, faults []string) []error {
	errs := make([]error, len(faults))
	for i, fault := range faults {
		errs[i] = fmt.Errorf("%s.%s", section, fault)
	}
	return errs
}
