package rest

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"recibo/setting"
)

// Config is the section rest: what every HTTP client of the agent has in common.
type Config struct {
	CAFile        string        `yaml:"ca_file" doc:"PEM file of roots added to the system's, for every HTTP client"`
	Proxy         string        `yaml:"proxy" doc:"empty: from the environment; none: direct; otherwise the URL of a proxy"`
	IdleTimeout   time.Duration `yaml:"idle_timeout" doc:"how long a body may send nothing"`
	HeaderTimeout time.Duration `yaml:"header_timeout" doc:"how long an answer's first byte may take"`
}

// DefaultConfig returns an idle limit of 60 s and 5 min for the headers, since a server may read 2 GiB before its first byte.
func DefaultConfig() Config {
	return Config{IdleTimeout: time.Minute, HeaderTimeout: 5 * time.Minute}
}

// Validate says which value can't work.
func (c Config) Validate() error {
	client, err := New(c, Service{URL: "http://127.0.0.1"}, Options{})
	if err != nil {
		return err
	}
	client.Close()
	return nil
}

// ClientCredentials asks Access Manager for tokens.
type ClientCredentials struct {
	URL          string         `yaml:"url" doc:"Access Manager's address, with or without the path of its token endpoint"`
	ClientID     string         `yaml:"client_id" doc:"client id"`
	ClientSecret setting.Secret `yaml:"client_secret" doc:"client secret"`
}

// Service is one peer: where it is and what it is told about us. Token and ClientCredentials exclude each other; with
// neither, requests carry no Authorization.
type Service struct {
	Section           string // prefix of the keys in configuration errors, such as reporter
	URL               string // http or https, with an optional path that goes before every request's
	Token             setting.Secret
	ClientCredentials *ClientCredentials
	TLS               setting.TLS
	Proxy             string      // as Config.Proxy, and before it
	Header            http.Header // sent with every request to the service itself, never to another origin
}

// Options are what a caller or a test may set; every zero value has a default.
type Options struct {
	Log          *slog.Logger                       // default: nothing is logged
	Now          func() time.Time                   // default time.Now
	Jitter       func() float64                     // in [0, 1); default math/rand
	UserAgent    string                             // default recibo
	ObjectCode   func(status int, code string) bool // the answer is about the object asked for; default: any below 500
	ProbeCap     time.Duration                      // longest wait between two probes of a closed gate, jitter included; default 30 s
	ProbeBase    time.Duration                      // first wait; doubles up to ProbeCap; default 1 s
	TokenPath    string                             // default /v1/login/oauth/access_token
	TokenTimeout time.Duration                      // for all of the request for a token; default 30 s
	MinRate      int64                              // lowest mean rate of a body, bytes per second; default 1024
	MinRateFor   time.Duration                      // over which time; default 5 min
	MaxJSON      int64                              // bytes that Client.JSON reads into memory; default 16 MiB
}

// The waits that have no key of their own.
const (
	defaultProbeCap     = 30 * time.Second
	defaultProbeBase    = time.Second
	defaultTokenPath    = "/v1/login/oauth/access_token"
	defaultTokenTimeout = 30 * time.Second // a small answer: the limits meant for files would hold a worker for minutes
	defaultMinRate      = 1024
	defaultMinRateFor   = 5 * time.Minute
	defaultMaxJSON      = 16 << 20
	longestPause        = time.Hour // whatever a Retry-After says, one wait is no longer (law 8: every wait has a bound)
)

func (c Config) withDefaults() (Config, error) {
	d := DefaultConfig()
	if c.IdleTimeout < 0 {
		return c, errors.New("rest.idle_timeout: must not be negative")
	}
	if c.HeaderTimeout < 0 {
		return c, errors.New("rest.header_timeout: must not be negative")
	}
	c.IdleTimeout = or(c.IdleTimeout, d.IdleTimeout)
	c.HeaderTimeout = or(c.HeaderTimeout, d.HeaderTimeout)
	return c, nil
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	if o.ObjectCode == nil {
		o.ObjectCode = func(status int, _ string) bool { return status < 500 }
	}
	o.UserAgent = or(o.UserAgent, "recibo")
	o.ProbeCap = or(o.ProbeCap, defaultProbeCap)
	o.ProbeBase = min(or(o.ProbeBase, defaultProbeBase), o.ProbeCap)
	o.TokenPath = or(o.TokenPath, defaultTokenPath)
	o.TokenTimeout = or(o.TokenTimeout, defaultTokenTimeout)
	o.MinRate = or(o.MinRate, defaultMinRate)
	o.MinRateFor = or(o.MinRateFor, defaultMinRateFor)
	o.MaxJSON = or(o.MaxJSON, defaultMaxJSON)
	return o
}

func or[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// key is the full name of one of the service's keys.
func (s Service) key(name string) string {
	if s.Section == "" {
		return name
	}
	return s.Section + "." + name
}

// check returns the service's base address, or an error that names the key at fault.
func (s Service) check() (*url.URL, error) {
	base, err := address(s.key("url"), s.URL)
	if err != nil {
		return nil, err
	}
	for name, values := range s.Header {
		for _, value := range values {
			if !headerValue(value) {
				return nil, fmt.Errorf("%s: the value of %s holds characters that no header may carry", s.key("header"), name)
			}
		}
	}
	cc := s.ClientCredentials
	if cc == nil {
		return base, nil
	}
	if s.Token.IsSet() {
		return nil, fmt.Errorf("%s: set either this or %s", s.key("token"), s.key("client_credentials"))
	}
	if _, err := address(s.key("client_credentials.url"), cc.URL); err != nil {
		return nil, err
	}
	if cc.ClientID == "" {
		return nil, fmt.Errorf("%s: missing", s.key("client_credentials.client_id"))
	}
	if !cc.ClientSecret.IsSet() {
		return nil, fmt.Errorf("%s: missing", s.key("client_credentials.client_secret"))
	}
	return base, nil
}

// address reads a URL that may hold no credentials. The reason of a failed parse is left out: it quotes parts of the
// value, and those may be part of a password (law 7: a secret is never shown).
func address(key, value string) (*url.URL, error) {
	if value == "" {
		return nil, fmt.Errorf("%s: missing", key)
	}
	u, err := url.Parse(value)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: not a URL", key)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%s: must begin with http:// or https://", key)
	case u.Hostname() == "":
		return nil, fmt.Errorf("%s: names no host", key)
	case u.User != nil:
		return nil, fmt.Errorf("%s: must not hold a user name or password", key)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("%s: must not hold a query or fragment", key)
	}
	return u, nil
}

// headerValue reports whether value can be sent in a header field (RFC 9110 §5.5).
func headerValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; c != '\t' && (c < ' ' || c == 0x7f) {
			return false
		}
	}
	return true
}
