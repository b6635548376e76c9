// Package sandbox is a Streaming Hub, a Reporter and a Fetcher that run inside the process, and a RabbitMQ of their own
// beside it, for demonstrations and tests. They answer as their contracts say, every fault that a client must survive can be
// ordered, and the bytes of every report and result follow from its seed, so that what was brought home can be judged byte
// for byte without keeping a copy.
package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// Options of a sandbox. The zero value is useful: random ports on the loopback address, no authentication, no limits.
type Options struct {
	Dir      string       // of the JetStream store; default: a temporary one, removed by Close
	Seed     uint64       // of everything that is drawn
	Log      *slog.Logger // default: silence
	Stream   string       // default STREAMING_HUB
	Subjects []string     // default report.finished and report.partial
	NoHub    bool         // Reporter alone
	Reporter ReporterOptions
	Hub      HubOptions
}

// ReporterOptions shape the Reporter.
type ReporterOptions struct {
	Listen string // default 127.0.0.1:0
	Era    Era    // default V1

	// Requests need a token when Token or ClientID is set: the fixed Token, or one that the token endpoint
	// POST /v1/login/oauth/access_token of the same address gave for ClientID and ClientSecret.
	ClientID     string
	ClientSecret string
	Token        string
	TokenTTL     time.Duration // how long a token that was given lives; default 1h, told to the client in whole seconds, rounded up

	DownloadLimit int           // downloads of one client address per Window; 0: no limit
	GetLimit      int           // other GETs of one client address per Window; 0: no limit
	Window        time.Duration // default 60s
	Latency       time.Duration // before every answer of the API
}

// HubOptions shape the Streaming Hub.
type HubOptions struct {
	Host     string // default 127.0.0.1
	Port     int    // default -1: a random one, which stays the same over Stop and Start
	User     string // with Password, asked of every client
	Password string
}

// Sandbox is a running Hub and Reporter.
type Sandbox struct {
	Reporter *Reporter
	Hub      *Hub // nil with Options.NoHub

	temporary string // a folder that Close removes
}

// Start brings both up; ctx bounds the start, Close ends the sandbox.
func Start(ctx context.Context, o Options) (*Sandbox, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Stream == "" {
		o.Stream = "STREAMING_HUB"
	}
	if len(o.Subjects) == 0 {
		o.Subjects = []string{reportFinished, reportPartial}
	}
	s := &Sandbox{}
	if err := s.start(ctx, o); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Sandbox) start(ctx context.Context, o Options) (err error) {
	if s.Reporter, err = startReporter(ctx, o.Reporter, o.Seed, o.Log); err != nil {
		return fmt.Errorf("sandbox: start the Reporter: %w", err)
	}
	if o.NoHub {
		return nil
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "recibo-sandbox-"); err != nil {
			return fmt.Errorf("sandbox: make the Hub's folder: %w", err)
		}
		s.temporary = o.Dir
	}
	if s.Hub, err = startHub(ctx, o); err != nil {
		return fmt.Errorf("sandbox: start the Hub: %w", err)
	}
	return nil
}

// Close stops everything, requests in progress included, and waits until it has ended. It may be called again.
func (s *Sandbox) Close() {
	if s.Hub != nil {
		s.Hub.Stop()
	}
	if s.Reporter != nil {
		s.Reporter.close()
	}
	if s.temporary != "" {
		_ = os.RemoveAll(s.temporary) // a leftover in the system's temporary folder harms nobody
	}
}

// NATSURL is the Hub's address, without credentials; empty without a Hub.
func (s *Sandbox) NATSURL() string {
	if s.Hub == nil {
		return ""
	}
	return s.Hub.URL()
}

// ReporterURL is the base address of the Reporter and of the token endpoint.
func (s *Sandbox) ReporterURL() string { return s.Reporter.URL() }
