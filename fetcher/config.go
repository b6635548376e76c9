package fetcher

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7/pkg/s3utils"

	"recibo/hub"
	"recibo/rest"
	"recibo/setting"
)

// Values of Config.Encrypted.
const (
	Refuse  = "refuse"
	Deliver = "deliver"
)

// Config is the section fetcher: where messages come from and what verifies them, where results are and what opens them.
type Config struct {
	AMQP              *hub.AMQPConfig         `yaml:"amqp" doc:"RabbitMQ that the messages of jobs come from; without it jobs are known by asking alone"`
	URL               string                  `yaml:"url" doc:"Fetcher's address, usually on port 4006; empty: jobs are known by their messages alone"`
	Token             setting.Secret          `yaml:"token" doc:"fixed bearer token"`
	ClientCredentials *rest.ClientCredentials `yaml:"client_credentials" doc:"Access Manager, in place of a fixed token"`
	TLS               setting.TLS             `yaml:"tls" doc:"roots and client certificate for Fetcher's address"`
	Proxy             string                  `yaml:"proxy" doc:"as rest.proxy, for Fetcher and its object store alone"`
	ExternalHMACKey   []setting.Secret        `yaml:"external_hmac_key" doc:"derived keys that sign messages and results, hex; several for a rotation"`
	StorageKey        []setting.Secret        `yaml:"storage_key" doc:"derived keys that seal result objects, hex; several for a rotation"`
	Objects           ObjectsConfig           `yaml:"objects" doc:"object store that results are in"`
	Encrypted         string                  `yaml:"encrypted" doc:"without a storage key: refuse results, or deliver them as they are stored" enum:"refuse,deliver"`
	MaxResult         setting.Size            `yaml:"max_result" doc:"largest result taken, before encryption"`
	Memory            setting.Size            `yaml:"memory" doc:"memory that results of more than 1 MiB may take together; each waits for its share"`
	Mode              string                  `yaml:"mode" doc:"octal mode of result files, set before publishing"`
	LegacySignatures  bool                    `yaml:"legacy_signatures" doc:"accept the messages of Fetcher 1.x, whose signatures cover neither tenant nor route, and bind by their routing keys too"`
	Sources           []SourceConfig          `yaml:"sources" doc:"several workers or tenants, each with its own keys; when set, other sources are quarantined"`
	JobsFile          string                  `yaml:"jobs_file" doc:"file of job ids to expect, one a line"`
}

// ObjectsConfig is the section fetcher.objects.
type ObjectsConfig struct {
	Endpoint  string         `yaml:"endpoint" doc:"address of the S3 API, such as https://s3.example.org:9000"`
	Region    string         `yaml:"region" doc:"the bucket's region; empty: the store is asked"`
	Bucket    string         `yaml:"bucket" doc:"bucket that results are in"`
	Prefix    string         `yaml:"prefix" doc:"goes before a result's path as it stands; a folder ends with /"`
	AccessKey setting.Secret `yaml:"access_key" doc:"access key id; without one AWS_* or MINIO_* of the environment, session tokens included"`
	SecretKey setting.Secret `yaml:"secret_key" doc:"the access key's secret"`
	PathStyle bool           `yaml:"path_style" doc:"bucket in the path instead of the host name; hosts other than Amazon's get it in any case"`
	TLS       setting.TLS    `yaml:"tls" doc:"roots and client certificate for the object store"`
}

// SourceConfig is one of fetcher.sources. What it leaves out is taken from the section.
type SourceConfig struct {
	Source          string           `yaml:"source" doc:"the ce-source it stands for; empty: any of the tenant"`
	Tenant          string           `yaml:"tenant" doc:"the tenant it stands for; empty: any of the source"`
	Dir             string           `yaml:"dir" doc:"folder of its results"`
	AMQP            *hub.AMQPConfig  `yaml:"amqp" doc:"RabbitMQ that its messages come from"`
	URL             string           `yaml:"url" doc:"Fetcher's address"`
	ExternalHMACKey []setting.Secret `yaml:"external_hmac_key" doc:"derived keys that sign its messages and results, hex"`
	StorageKey      []setting.Secret `yaml:"storage_key" doc:"derived keys that seal its result objects, hex"`
	Objects         ObjectsConfig    `yaml:"objects" doc:"object store that its results are in"`
}

// DefaultConfig returns the documented defaults. They run nothing: keys and an object store have none.
func DefaultConfig() Config {
	return Config{Encrypted: Refuse, MaxResult: 256 << 20, Memory: 384 << 20, Mode: "0600"}
}

// With returns the section as it holds for one source: its own values, and the section's where it has none.
func (c Config) With(s SourceConfig) Config {
	c.Sources = nil
	c.AMQP, c.URL = mergeAMQP(s.AMQP, c.AMQP), or(s.URL, c.URL)
	if len(s.ExternalHMACKey) > 0 {
		c.ExternalHMACKey = s.ExternalHMACKey
	}
	if len(s.StorageKey) > 0 {
		c.StorageKey = s.StorageKey
	}
	own, common := s.Objects, c.Objects
	c.Objects = ObjectsConfig{
		Endpoint:  or(own.Endpoint, common.Endpoint),
		Region:    or(own.Region, common.Region),
		Bucket:    or(own.Bucket, common.Bucket),
		Prefix:    or(own.Prefix, common.Prefix),
		AccessKey: common.AccessKey,
		SecretKey: common.SecretKey,
		PathStyle: own.PathStyle || common.PathStyle,
		TLS:       or(own.TLS, common.TLS),
	}
	if own.AccessKey.IsSet() || own.SecretKey.IsSet() { // the two belong together
		c.Objects.AccessKey, c.Objects.SecretKey = own.AccessKey, own.SecretKey
	}
	return c
}

// Validate names every value that can't work, and what is missing where there is a Fetcher to take jobs from: see On.
func (c Config) Validate() error {
	var errs []error
	add := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("fetcher.%s: %w", key, err))
		}
	}
	if c.Encrypted != Refuse && c.Encrypted != Deliver {
		add("encrypted", fmt.Errorf("%q is neither refuse nor deliver", c.Encrypted))
	}
	if c.MaxResult <= 0 || c.MaxResult > largestResult {
		add("max_result", fmt.Errorf("%s is not between 1 byte and %s", c.MaxResult, largestResult))
	}
	if c.Memory <= 0 {
		add("memory", errors.New("must be more than nothing"))
	}
	add("mode", checkMode(c.Mode))
	_, err := rest.Proxy("fetcher.proxy", c.Proxy, "")
	errs = append(errs, err)
	if c.LegacySignatures && len(c.Sources) > 0 {
		add("legacy_signatures", errors.New("can't be true with fetcher.sources: a message of Fetcher 1.x names no source"))
	}
	if c.URL != "" && err == nil {
		client, err := NewClient(rest.DefaultConfig(), c, rest.Options{})
		errs = append(errs, err)
		if err == nil {
			client.Close()
		}
	}
	errs = append(errs, c.checkAMQP()...)
	all, err := newSources(c)
	errs = append(errs, err)
	for _, s := range all {
		errs = append(errs, s.validate())
	}
	if c.On() {
		errs = append(errs, c.Complete())
	}
	return errors.Join(errs...)
}

// largestResult is what one AES-GCM message can hold by far, and what a buffer can be on every platform.
const largestResult setting.Size = 32 << 30

// Complete names what is missing for messages to be verified and results to be brought home.
func (c Config) Complete() error {
	all, _ := newSources(c) // Validate tells what is wrong with what is there
	var errs []error
	missing := func(s *source, key, why string) {
		errs = append(errs, fmt.Errorf("%s.%s: missing%s", s.key, key, why))
	}
	for _, s := range all {
		if len(s.config.ExternalHMACKey) == 0 {
			missing(s, "external_hmac_key", "; recibo keys derives it")
		}
		if len(s.config.StorageKey) == 0 && c.Encrypted == Refuse {
			missing(s, "storage_key", "; recibo keys derives it, or set fetcher.encrypted to deliver")
		}
		if s.config.Objects.Endpoint == "" {
			missing(s, "objects.endpoint", "")
		}
		if s.config.Objects.Bucket == "" {
			missing(s, "objects.bucket", "")
		}
	}
	return errors.Join(errs...)
}

// validate checks what a source has in effect. The key in an error is the source's own, or the section's when the value
// is that of the section.
func (s *source) validate() error {
	if s.own != nil && s.own.URL != "" {
		if u, err := url.Parse(s.own.URL); err != nil || u.Hostname() == "" || u.User != nil || !web(u.Scheme) {
			return fmt.Errorf("%s.url: must begin with http:// or https://, name a host and hold no credentials", s.key)
		}
	}
	key := s.key
	if s.own != nil && s.own.Objects == (ObjectsConfig{}) {
		if s.number > 0 {
			return nil // the section's, reported once
		}
		key = "fetcher"
	}
	var errs []error
	for _, err := range s.config.Objects.check() {
		errs = append(errs, fmt.Errorf("%s.objects.%w", key, err))
	}
	if _, err := setting.NewMaterial(s.config.Objects.TLS); err != nil {
		errs = append(errs, fmt.Errorf("%s.objects.tls: %w", key, err))
	}
	return errors.Join(errs...)
}

func web(scheme string) bool { return scheme == "http" || scheme == "https" }

// check returns an error for each key that can't work; keys that are not set are not looked at.
func (c ObjectsConfig) check() []error {
	var errs []error
	add := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	if c.Endpoint != "" {
		_, err := c.address()
		add("endpoint", err)
	}
	if c.Bucket != "" {
		if err := s3utils.CheckValidBucketName(c.Bucket); err != nil {
			add("bucket", fmt.Errorf("%q: %w", c.Bucket, err))
		}
	}
	if c.Prefix != "" {
		add("prefix", cleanPath(c.Prefix+"x"))
	}
	if c.AccessKey.IsSet() != c.SecretKey.IsSet() {
		add("access_key", errors.New("access_key and secret_key go together: one of them is missing"))
	}
	return errs
}

// address reads the endpoint. It may hold no credentials: addresses are shown and logged, secrets are not (law 7).
func (c ObjectsConfig) address() (*url.URL, error) {
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || !web(u.Scheme) || u.Hostname() == "":
		return nil, errors.New("not an address such as https://s3.example.org:9000") // the parser's error would quote a password
	case u.User != nil:
		return nil, errors.New("holds credentials; they belong into access_key and secret_key")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("must end with the host and its port: S3 has no path before the bucket")
	}
	return u, nil
}

func checkMode(mode string) error {
	if mode == "inherit" {
		return nil
	}
	bits, err := strconv.ParseUint(mode, 8, 32)
	if err != nil || bits&^0o777 != 0 || bits&0o400 == 0 {
		return fmt.Errorf(`%q is no octal mode such as "0600" that lets the agent read its own files`, mode)
	}
	return nil
}

func or[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
