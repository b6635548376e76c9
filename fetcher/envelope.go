// Package fetcher takes the results of Fetcher's extraction jobs. It guarantees that an accepted message was signed with
// a key of the source it claims, for this job, tenant and route; and that a result is reported as had only after its seal
// was opened, its length compared and its HMAC verified, within the memory that is set aside for results.
package fetcher

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"recibo/hub"
)

// The names of the events of a job. Its routing keys are the same.
const (
	JobCompleted = "job.completed"
	JobFailed    = "job.failed"
)

// MaxUnverified is how much is kept of the body of a message that fails verification, in bytes.
const MaxUnverified = 1 << 20

// Route is the way by which a message came. It is part of what is signed.
type Route struct {
	Exchange   string
	RoutingKey string
}

// Verifier turns messages of Fetcher into deliveries. It may be used by several goroutines.
type Verifier struct {
	sources   sources
	legacy    bool
	now       func() time.Time
	tolerance time.Duration
}

// VerifierOptions are what a caller or a test may set; every zero value has a default.
type VerifierOptions struct {
	Now             func() time.Time // default time.Now
	FutureTolerance time.Duration    // how far the sender's clock may be ahead of ours; default 5 min
}

const defaultFutureTolerance = 5 * time.Minute

// NewVerifier returns a verifier with the keys of the configuration. Its errors name the key that must change.
func NewVerifier(c Config, o VerifierOptions) (*Verifier, error) {
	all, err := newSources(c)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.external.empty() {
			return nil, fmt.Errorf("%s.external_hmac_key: missing; without it no message can be verified", s.key)
		}
	}
	v := &Verifier{sources: all, legacy: c.LegacySignatures, now: o.Now, tolerance: or(o.FutureTolerance, defaultFutureTolerance)}
	if v.now == nil {
		v.now = time.Now
	}
	return v, nil
}

// Delivery judges one message. It never fails: a message under another routing key is skipped, and one that fails a
// check is quarantined with the check as its reason. Nothing but the signature is trusted until it is verified, and what
// it does not cover (the ce- headers) must then agree with what it does.
func (v *Verifier) Delivery(m hub.Message, r Route) hub.Delivery {
	d := hub.Delivery{Feed: hub.Jobs, Transport: m.Transport, Origin: m.Origin, Raw: m.Body}
	d.Event.Name, d.Event.Headers, d.Event.Data = r.RoutingKey, map[string]string{}, m.Body
	status, legacy, ours := readRoute(r.RoutingKey)
	if !ours {
		return judged(d, hub.Skip, fmt.Sprintf("routing key %s is not asked for", shown(r.RoutingKey)))
	}
	msg := &message{route: r, status: status, legacy: legacy, body: m.Body}
	if err := v.authenticate(msg, m.Headers); err != nil {
		msg.describe(&d.Event)
		d.Raw = d.Raw[:min(len(d.Raw), MaxUnverified)]
		d.Event.Data, d.Unproven = d.Raw, true
		return judged(d, hub.Quarantine, err.Error())
	}
	msg.describe(&d.Event)
	d.Event.ID = strings.ToLower(msg.id()) // one job in two spellings of its id is one job
	if err := msg.check(); err != nil {
		return judged(d, hub.Quarantine, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return d
}

// Again judges a message that was kept in quarantine, from what was kept of it: the event's headers and the body.
func (v *Verifier) Again(headers map[string]string, raw []byte, transport, origin string) hub.Delivery {
	m := hub.Message{Headers: map[string][]string{}, Body: raw, Transport: transport, Origin: origin}
	for name, value := range headers {
		if isSigned(name) || name == "traceparent" {
			m.Headers[name] = []string{value}
		} else {
			m.Headers["ce-"+name] = []string{value}
		}
	}
	return v.Delivery(m, Route{Exchange: headers[exchangeName], RoutingKey: headers[routingKeyName]})
}

func judged(d hub.Delivery, verdict hub.Verdict, reason string) hub.Delivery {
	d.Verdict, d.Reason = verdict, reason
	return d
}

// readRoute reads job.<status>, and the job.<status>.<source> of Fetcher 1.x.
func readRoute(key string) (status string, legacy, ours bool) {
	rest, ok := strings.CutPrefix(key, "job.")
	status, source, legacy := strings.Cut(rest, ".")
	ours = ok && (status == Completed || status == Failed) && (!legacy || source != "")
	return status, legacy, ours
}

// message is a message taken apart.
type message struct {
	route   Route
	status  string // of the routing key
	legacy  bool
	headers headers
	body    []byte
	parts   body
}

// authenticate reads no more of a message than its signature needs, and verifies that. The order of the checks is that
// of what a person can mend: the form, the source, the key.
func (v *Verifier) authenticate(m *message, sent map[string][]string) error {
	var headErr, bodyErr error
	m.headers, headErr = readHeaders(sent)
	m.parts, bodyErr = readBody(m.body)
	switch {
	case m.legacy && !v.legacy:
		return errors.New("form: signed as Fetcher 1.x does, and fetcher.legacy_signatures is false")
	case headErr != nil:
		return fmt.Errorf("headers: %w", headErr)
	case m.legacy && m.headers.claimsEvent():
		return errors.New("form: routed as by Fetcher 1.x, with the ce- headers of Fetcher 2")
	case bodyErr != nil:
		return fmt.Errorf("body: %w", bodyErr)
	}
	return v.verify(m)
}

// id is the event's id, rebuilt from what is signed: the same on every re-emission of one job and status, and nothing
// else is.
func (m *message) id() string { return "fetcher.job." + m.status + "." + m.parts.jobID }

// check compares what the signature does not cover with what it does, and the body with the contract.
func (m *message) check() error {
	var errs []error
	if m.parts.status != m.status {
		errs = append(errs, fmt.Errorf("status: %s in the body, %s by the routing key", shown(m.parts.status), m.status))
	}
	if !m.legacy {
		errs = append(errs, m.checkHeaders())
	}
	a, err := m.parts.announced()
	if err != nil {
		errs = append(errs, fmt.Errorf("contract: %w", err))
	} else {
		errs = append(errs, m.checkResult(a.Result))
	}
	return errors.Join(errs...)
}

func (m *message) checkHeaders() error {
	var errs []error
	for _, c := range []struct {
		name, want string
		needed     bool
	}{
		{"id", m.id(), true},
		{"specversion", "1.0", true},
		{"subject", m.parts.jobID, false},
		{"resourcetype", "job", false},
		{"eventtype", m.status, false},
	} {
		switch got, sent := m.headers[c.name]; {
		case !sent && c.needed:
			errs = append(errs, fmt.Errorf("ce-%s: missing", c.name))
		case sent && got != c.want:
			errs = append(errs, fmt.Errorf("ce-%s: %s where the signed message says %s", c.name, shown(got), shown(c.want)))
		}
	}
	if got, want := m.headers["tenantid"], m.headers[tenantHeader]; tenantOf(got) != tenantOf(want) {
		errs = append(errs, fmt.Errorf("ce-tenantid: %s where the signed tenant is %s", shown(got), shown(want)))
	}
	if got := m.headers["type"]; got != "" && !strings.HasSuffix(got, ".job."+m.status) {
		errs = append(errs, fmt.Errorf("ce-type: %s is not that of job.%s", shown(got), m.status))
	}
	if major, _, _ := strings.Cut(m.headers["schemaversion"], "."); major != "" && major != "1" {
		errs = append(errs, fmt.Errorf("ce-schemaversion: %s is another major version than 1", shown(m.headers["schemaversion"])))
	}
	return errors.Join(errs...)
}

// checkResult compares a result with the message that announces it.
func (m *message) checkResult(r *Result) error {
	switch tenant := m.tenant(); {
	case r == nil:
		return nil
	case r.Legacy && !m.legacy:
		return errors.New("contract: result: integrity and protection are missing")
	case tenant != "" && tenant != SingleTenant && !strings.HasPrefix(r.Path, tenant+"/"):
		return fmt.Errorf("contract: result: path %s is not that of tenant %s", shown(r.Path), shown(tenant))
	}
	return nil
}

// SingleTenant is what a deployment without tenants writes in place of one.
const SingleTenant = "single-tenant"

// tenantOf takes a missing tenant for that of a deployment without tenants.
func tenantOf(header string) string { return or(header, SingleTenant) }

// tenant is the one that is signed; Fetcher 1.x signed none.
func (m *message) tenant() string {
	if m.legacy {
		return ""
	}
	return m.headers[tenantHeader]
}

// describe fills in all that can be told of a message, also of one that is not accepted, so that a person who looks at
// it finds it complete. Of one that is not verified these are claims.
func (m *message) describe(e *hub.Event) {
	h := m.headers
	e.Name = "job." + m.status
	e.Version, e.Source, e.Type, e.Tenant = h["schemaversion"], h["source"], h["type"], m.tenant()
	e.Time, _ = time.Parse(time.RFC3339Nano, h["time"])
	e.ReportID = m.parts.jobID
	if id := h["id"]; len(id) <= hub.MaxID && utf8.ValidString(id) && !strings.ContainsFunc(id, unicode.IsControl) {
		e.ID = id
	}
	for name, value := range h {
		e.Headers[name] = value
	}
	e.Headers[exchangeName], e.Headers[routingKeyName] = m.route.Exchange, m.route.RoutingKey
}
