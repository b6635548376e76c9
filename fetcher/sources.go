package fetcher

import (
	"errors"
	"fmt"
)

// source is a Fetcher whose messages are taken, with what verifies and opens them.
type source struct {
	key    string        // in the configuration: fetcher, or fetcher.sources[0]
	number int           // in fetcher.sources
	own    *SourceConfig // nil: the section itself, which stands for every source and tenant
	config Config        // in effect for it

	external, storage *keyring
}

type sources []*source

// newSources reads the keys. Errors name the key of the configuration and the entry, and quote nothing.
func newSources(c Config) (sources, error) {
	if len(c.Sources) == 0 {
		s, err := newSource("fetcher", c, nil)
		return sources{s}, err
	}
	var all sources
	var errs []error
	for i, own := range c.Sources {
		key := fmt.Sprintf("fetcher.sources[%d]", i)
		if own.Source == "" && own.Tenant == "" {
			errs = append(errs, fmt.Errorf("%s.source: missing; a source is known by its ce-source, its tenant or both", key))
		}
		for j, earlier := range c.Sources[:i] {
			if earlier.Source == own.Source && tenantOf(earlier.Tenant) == tenantOf(own.Tenant) {
				errs = append(errs, fmt.Errorf("%s.source: the same source and tenant as fetcher.sources[%d]; none is the same as %s",
					key, j, SingleTenant))
			}
		}
		s, err := newSource(key, c.With(own), &own)
		s.number = i
		all, errs = append(all, s), append(errs, err)
	}
	return all, errors.Join(errs...)
}

func newSource(key string, effective Config, own *SourceConfig) (*source, error) {
	s := &source{key: key, own: own, config: effective}
	var errs [2]error
	s.external, errs[0] = newKeyring(s.keyOf("external_hmac_key", own != nil && len(own.ExternalHMACKey) > 0), effective.ExternalHMACKey)
	s.storage, errs[1] = newKeyring(s.keyOf("storage_key", own != nil && len(own.StorageKey) > 0), effective.StorageKey)
	return s, errors.Join(errs[:]...)
}

// keyTrouble says which file of keys can't be used now.
func (all sources) keyTrouble() error {
	for _, s := range all {
		for _, ring := range []*keyring{s.external, s.storage} {
			if err := ring.trouble(); err != nil {
				return err
			}
		}
	}
	return nil
}

// keyOf is the full name of a key that the source has of its own, or from the section.
func (s *source) keyOf(name string, own bool) string {
	if own {
		return s.key + "." + name
	}
	return "fetcher." + name
}

// find returns the source that speaks for a ce-source and a tenant, nil when none is configured. One that names both is
// before one that names the ce-source alone, and that before one that names the tenant alone.
func (all sources) find(name, tenant string) *source {
	var best *source
	most := -1
	for _, s := range all {
		if s.own == nil {
			return s
		}
		if (s.own.Source != "" && s.own.Source != name) || (s.own.Tenant != "" && s.own.Tenant != tenantOf(tenant)) {
			continue
		}
		fit := 0
		if s.own.Source != "" {
			fit += 2
		}
		if s.own.Tenant != "" {
			fit++
		}
		if fit > most {
			best, most = s, fit
		}
	}
	return best
}
