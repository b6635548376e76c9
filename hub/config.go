package hub

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"recibo/setting"
)

// What happens to events that carry no readable schema version.
const (
	MissingQuarantine = "quarantine"
	MissingAccept     = "accept"
)

// MinSigningSecret is the shortest secret of a producer signature, in bytes; lib-streaming refuses shorter ones too.
const MinSigningSecret = 32

// Config is the section hub: which events are taken, and through which transport.
type Config struct {
	Enabled        bool         `yaml:"enabled" doc:"false: no subscription, polling only"`
	MajorVersion   int          `yaml:"major_version" doc:"major version to process; other majors are skipped and counted"`
	MissingVersion string       `yaml:"missing_version" doc:"events that carry no readable version: quarantine or accept" enum:"quarantine,accept"`
	Tenant         string       `yaml:"tenant" doc:"when set, events of another ce-tenantid are quarantined; events without one pass"`
	NATS           *NATSConfig  `yaml:"nats" doc:"NATS JetStream; on by default when no other transport is named"`
	SigningKeys    []SigningKey `yaml:"signing_keys" doc:"keys of producer signatures (ce-sig); when set, unsigned events are quarantined"`
}

// NATSConfig is the section hub.nats.
type NATSConfig struct {
	URL             string         `yaml:"url" doc:"servers, comma-separated: nats://, tls://, ws:// or wss://"`
	Stream          string         `yaml:"stream" doc:"name of the stream"`
	Durable         string         `yaml:"durable" doc:"name of the durable pull consumer"`
	Subjects        []string       `yaml:"subjects" doc:"subjects to receive; NATS wildcards work"`
	Manage          bool           `yaml:"manage" doc:"create or update the durable; false: only bind"`
	CredentialsFile string         `yaml:"credentials_file" doc:"file with the user's JWT and seed"`
	User            string         `yaml:"user" doc:"user name"`
	Password        setting.Secret `yaml:"password" doc:"the user's password"`
	Token           setting.Secret `yaml:"token" doc:"authentication token"`
	TLS             setting.TLS    `yaml:"tls" doc:"roots and client certificate"`
}

// SigningKey is one key of producer signatures. It vouches for one ce-source only: a producer can't sign for another.
type SigningKey struct {
	ID     string         `yaml:"id" doc:"the key's id, as ce-sigkid names it"`
	Source string         `yaml:"source" doc:"the ce-source whose events the key signs"`
	Secret setting.Secret `yaml:"secret" doc:"shared secret of at least 32 bytes"`
}

// DefaultConfig takes major version 2 from a NATS server on this machine.
func DefaultConfig() Config {
	nats := DefaultNATSConfig()
	return Config{Enabled: true, MajorVersion: 2, MissingVersion: MissingQuarantine, NATS: &nats}
}

// DefaultNATSConfig is the section hub.nats with nothing set.
func DefaultNATSConfig() NATSConfig {
	return NATSConfig{
		URL:      "nats://127.0.0.1:4222",
		Stream:   "STREAMING_HUB",
		Durable:  "recibo",
		Subjects: []string{ReportFinished, ReportPartial},
		Manage:   true,
	}
}

// Validate names every value that can't work. It reads no network.
func (c Config) Validate() error {
	var errs []error
	if c.MajorVersion < 1 {
		errs = append(errs, fmt.Errorf("hub.major_version: %d is not a major version; 1 or more", c.MajorVersion))
	}
	if c.MissingVersion != MissingQuarantine && c.MissingVersion != MissingAccept {
		errs = append(errs, fmt.Errorf("hub.missing_version: %q is neither quarantine nor accept", c.MissingVersion))
	}
	for i, key := range c.SigningKeys {
		if err := key.validate(); err != nil {
			errs = append(errs, fmt.Errorf("hub.signing_keys[%d].%w", i, err))
		}
	}
	if c.NATS != nil {
		errs = append(errs, c.NATS.Validate())
	} else if c.Enabled {
		errs = append(errs, errors.New("hub: no transport; add a section nats, or set enabled to false"))
	}
	return errors.Join(errs...)
}

func (k SigningKey) validate() error {
	switch {
	case k.ID == "":
		return errors.New("id: missing")
	case k.Source == "":
		return errors.New("source: missing; a key is bound to one ce-source")
	case !k.Secret.IsSet():
		return errors.New("secret: missing")
	case len(k.Secret.Reveal()) < MinSigningSecret:
		return fmt.Errorf("secret: shorter than %d bytes", MinSigningSecret)
	}
	return nil
}

// Validate names every value of the section that can't work.
func (c NATSConfig) Validate() error {
	var errs []error
	add := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("hub.nats.%s: %w", key, err))
		}
	}
	_, err := c.servers()
	add("url", err)
	add("stream", validateName(c.Stream))
	add("durable", validateName(c.Durable))
	add("subjects", validateSubjects(c.Subjects))
	if c.User == "" && c.Password.IsSet() {
		add("password", errors.New("set without user"))
	}
	if c.CredentialsFile != "" {
		_, err := os.ReadFile(c.CredentialsFile)
		add("credentials_file", err)
	}
	ways := 0
	for _, set := range []bool{c.CredentialsFile != "", c.User != "", c.Token.IsSet()} {
		if set {
			ways++
		}
	}
	if ways > 1 {
		add("user", errors.New("credentials_file, user and token exclude each other"))
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		add("tls", errors.New("cert_file and key_file go together: one of them is missing"))
	}
	return errors.Join(errs...)
}

// servers splits the addresses. One that holds credentials is refused: addresses are shown and logged, secrets are not.
func (c NATSConfig) servers() ([]string, error) {
	var servers []string
	web := 0
	for part := range strings.SplitSeq(c.URL, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		if !strings.Contains(part, "://") {
			part = "nats://" + part
		}
		u, err := url.Parse(part)
		if err != nil || u.Hostname() == "" {
			return nil, errors.New("not an address such as nats://host:4222") // the parser's error would quote a password
		}
		if u.User != nil {
			return nil, errors.New("holds credentials; they belong into user and password, or token")
		}
		switch u.Scheme {
		case "ws", "wss":
			web++
		case "nats", "tls":
		default:
			return nil, fmt.Errorf("scheme %s is none of nats, tls, ws, wss", u.Scheme)
		}
		servers = append(servers, part)
	}
	switch {
	case len(servers) == 0:
		return nil, errors.New("missing")
	case web != 0 && web != len(servers):
		return nil, errors.New("websocket and other addresses can't be mixed")
	}
	return servers, nil
}

// validateName applies the rules of JetStream for the names of streams and consumers.
func validateName(name string) error {
	if name == "" {
		return errors.New("missing")
	}
	for _, r := range name {
		if strings.ContainsRune(`.*>/\`, r) || r <= ' ' || r == 0x7f {
			return fmt.Errorf("%q holds %q, which JetStream allows in no name", name, r)
		}
	}
	return nil
}

// validateSubjects refuses what JetStream would refuse as the filter of one consumer.
func validateSubjects(subjects []string) error {
	if len(subjects) == 0 {
		return errors.New("missing")
	}
	for i, subject := range subjects {
		tokens := strings.Split(subject, ".")
		for j, token := range tokens {
			if token == "" || strings.ContainsAny(token, " \t\r\n") || (token == ">" && j != len(tokens)-1) {
				return fmt.Errorf("%q is not a subject", subject)
			}
		}
		for _, other := range subjects[:i] {
			if overlap(subject, other) {
				return fmt.Errorf("%q and %q overlap: JetStream refuses that in one consumer", other, subject)
			}
		}
	}
	return nil
}

// overlap reports whether some subject matches both patterns.
func overlap(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		switch {
		case as[i] == ">" || bs[i] == ">":
			return true
		case as[i] != bs[i] && as[i] != "*" && bs[i] != "*":
			return false
		}
	}
	return len(as) == len(bs)
}
