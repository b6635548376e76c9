package fetcher

import (
	"context"
	"log/slog"
	"slices"

	"recibo/hub"
	"recibo/rest"
)

// Fetcher is everything that the agent needs of the Fetchers of the configuration: what judges their messages, brings
// their results home and asks their REST APIs. Methods take the number of a source in fetcher.sources, 0 without them.
// All may be used concurrently.
//
// A result is fetched after an Acquire, and a job described after an AcquireJob, of the same source: each of these
// services has a gate of its own, so that the trouble of one delays nothing that another could give.
type Fetcher struct {
	*Results
	verifier *Verifier
	clients  []*Client // by source, nil without an address; sources of one address share one
	config   Config
}

// Options are what a caller or a test may set; every zero value has a default. Log, Now, Jitter, UserAgent and the waits
// between two probes of a closed gate count here.
type Options = rest.Options

// New returns the Fetchers of a configuration that is complete: see Config.Complete. It asks none of them. Its errors name
// the key that must change.
func New(rc rest.Config, c Config, o Options) (*Fetcher, error) {
	verifier, err := NewVerifier(c, VerifierOptions{Now: o.Now})
	if err != nil {
		return nil, err
	}
	results, err := NewResults(rc, c, o)
	if err != nil {
		return nil, err
	}
	f := &Fetcher{Results: results, verifier: verifier, config: c}
	if o.Log != nil {
		o.Log = o.Log.With(slog.String("service", "fetcher"))
	}
	shared := map[string]*Client{}
	for _, s := range results.sources {
		address := s.config.URL
		if shared[address] == nil {
			if shared[address], err = NewClient(rc, s.config, o); err != nil {
				f.Close()
				return nil, err
			}
		}
		f.clients = append(f.clients, shared[address])
	}
	return f, nil
}

// Close drops idle connections.
func (f *Fetcher) Close() {
	f.Results.Close()
	for i := range f.clients {
		if f.Asks(i) {
			f.clients[i].Close()
		}
	}
}

// Sources is how many sources there are: 1 without fetcher.sources.
func (f *Fetcher) Sources() int { return len(f.sources) }

// Find returns the source that speaks for a ce-source and a tenant, -1 when none does.
func (f *Fetcher) Find(source, tenant string) int {
	if s := f.sources.find(source, tenant); s != nil {
		return s.number
	}
	return -1
}

// Name returns the ce-source and the tenant that a job is recorded with which was found by asking source i: those of its
// entry, "" where that says nothing. Find of them returns i.
func (f *Fetcher) Name(i int) (source, tenant string) {
	if own := f.sources[i].own; own != nil {
		return own.Source, own.Tenant
	}
	return "", ""
}

// KeyTrouble says which file of keys can't be used now, so that the keys from before stay in force; nil where all can.
func (f *Fetcher) KeyTrouble() error { return f.sources.keyTrouble() }

// Encrypted is what becomes of results that no storage key opens: Refuse or Deliver.
func (f *Fetcher) Encrypted() string { return or(f.config.Encrypted, DefaultConfig().Encrypted) }

// Mode is the octal mode of result files, or inherit.
func (f *Fetcher) Mode() string { return or(f.config.Mode, DefaultConfig().Mode) }

// Delivery judges one message, by the exchange and routing key that it came by; see Verifier.Delivery.
func (f *Fetcher) Delivery(m hub.AMQPMessage) hub.Delivery {
	return f.verifier.Delivery(m.Message, Route{Exchange: m.Exchange, RoutingKey: m.RoutingKey})
}

// Again judges a message that was kept in quarantine; see Verifier.Again.
func (f *Fetcher) Again(headers map[string]string, raw []byte, transport, origin string) hub.Delivery {
	return f.verifier.Again(headers, raw, transport, origin)
}

// Section is where source i stands in the configuration, for people.
func (f *Fetcher) Section(i int) string { return f.sources[i].key }

// Store is the object store of source i, for people.
func (f *Fetcher) Store(i int) string {
	o := f.sources[i].config.Objects
	return o.Endpoint + ", bucket " + o.Bucket
}

// Address is that of the REST API of source i, for people.
func (f *Fetcher) Address(i int) string { return f.sources[i].config.URL }

// Asks reports whether source i has an address. Only then may AcquireJob, CancelJob and Job be called with it.
func (f *Fetcher) Asks(i int) bool { return f.clients[i] != nil }

// AcquireJob waits until the REST API of a source may be asked. The caller then owes exactly one Job or one CancelJob. It
// returns ctx.Err(), and no other error.
func (f *Fetcher) AcquireJob(ctx context.Context, i int) error {
	return f.clients[i].Acquire(ctx, rest.Get)
}

// CancelJob gives an AcquireJob back that no Job will follow.
func (f *Fetcher) CancelJob(i int) { f.clients[i].Cancel(rest.Get) }

// Job describes one job and uses up one AcquireJob; see Client.Job.
func (f *Fetcher) Job(ctx context.Context, i int, id string) (*Job, error) {
	return f.clients[i].Job(ctx, id)
}

// NamedGate is the state of one gate.
type NamedGate struct {
	Service string // fetcher or objects; where there are several with the source that it is of: objects of fetcher.sources[1]
	rest.GateStatus
}

// StoreGate is the state of the gate of source i's object store.
func (f *Fetcher) StoreGate(i int) rest.GateStatus { return f.stores[i].gate.Status() }

// JobGates are the states of the gates of source i's REST API: jobs are described, and tokens are asked for. There are none
// where it has no address.
func (f *Fetcher) JobGates(i int) []rest.GateStatus {
	if f.clients[i] == nil {
		return nil
	}
	return slices.DeleteFunc(f.clients[i].Gates(), func(g rest.GateStatus) bool { return g.Class == rest.Download })
}

// Gates returns the state of every gate: those of the object stores, then those of the REST APIs. A service that several
// sources share is named by the first of them.
func (f *Fetcher) Gates() []NamedGate {
	var all []NamedGate
	for i, store := range f.stores {
		if slices.Index(f.stores, store) == i {
			all = append(all, NamedGate{f.service("objects", i, several(f.stores)), store.gate.Status()})
		}
	}
	for i, client := range f.clients {
		if client == nil || slices.Index(f.clients, client) != i {
			continue
		}
		for _, status := range f.JobGates(i) {
			all = append(all, NamedGate{f.service("fetcher", i, several(f.clients)), status})
		}
	}
	return all
}

// service names a service for people.
func (f *Fetcher) service(kind string, i int, several bool) string {
	if several {
		return kind + " of " + f.sources[i].key
	}
	return kind
}

// several reports whether there is more than one service. One that only some sources have is named as theirs.
func several[T comparable](services []T) bool {
	return slices.ContainsFunc(services, func(s T) bool { return s != services[0] })
}
