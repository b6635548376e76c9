package command

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/urfave/cli/v2"

	"recibo/config"
	"recibo/console"
	"recibo/downloads"
	"recibo/hub"
	"recibo/reporter"
	"recibo/rest"
	"recibo/setting"
	"recibo/store"
)

// verdict is the outcome of one check, in the order in which the worst wins.
type verdict int

const (
	good verdict = iota
	warning
	bad
	unknown
)

var verdictNames = [...]string{"ok", "warning", "failed", "unknown"}

// checked is one line of `recibo check`.
type checked struct {
	What    string  `json:"check"`
	Verdict verdict `json:"-"`
	State   string  `json:"state"`
	Detail  string  `json:"detail"`
	Remedy  string  `json:"remedy,omitempty"`
	code    int
}

func (a *app) checkCommand() *cli.Command {
	return a.command(cli.Command{
		Name:  "check",
		Usage: "is everything reachable and right? one line each, with the remedy",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "nagios", Usage: "one line and the exit code of a monitoring plug-in: 0 ok, 1 warning, 2 critical, 3 unknown"},
			jsonFlag(),
		},
		Action: a.check,
	})
}

// checkTimeout bounds each question to something on the network.
const checkTimeout = 15 * time.Second

func (a *app) check(c *cli.Context) error {
	loaded, err := a.load(c)
	if err != nil {
		if c.Bool("nagios") {
			a.print("RECIBO UNKNOWN: %s", oneLine(err.Error()))
			return silent(3)
		}
		return err
	}
	results := a.checks(c.Context, loaded)
	if c.Bool("nagios") {
		return a.nagios(results)
	}
	code := exitDone
	for _, r := range results {
		if c.Bool("json") {
			if err := a.printJSON(r); err != nil {
				return err
			}
		} else {
			a.print("%-8s %-14s %s", r.State, r.What, oneLine(r.Detail))
			if r.Remedy != "" {
				a.print("%23s remedy: %s", "", oneLine(r.Remedy))
			}
		}
		if r.Verdict >= bad && code == exitDone {
			code = r.code
		}
	}
	return silent(code)
}

func (a *app) nagios(results []checked) error {
	worst, wrong := good, []string(nil)
	for _, r := range results {
		worst = max(worst, r.Verdict)
		if r.Verdict > good {
			wrong = append(wrong, r.What+": "+oneLine(r.Detail))
		}
	}
	word := [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[worst]
	if worst == good {
		a.print("RECIBO OK: %d checks passed", len(results))
	} else {
		a.print("RECIBO %s: %s", word, strings.Join(wrong, "; "))
	}
	return silent(int(worst))
}

func (a *app) checks(ctx context.Context, l *config.Loaded) []checked {
	c := &l.Config
	where := l.Path
	if where == "" {
		where = "no file; the defaults hold"
	}
	results := []checked{{What: "configuration", Detail: where}}
	ledger, owner := a.checkLedger(ctx, c)
	results = append(results, ledger...)
	results = append(results, a.checkFolder(ctx, c.Downloads, owner))
	for _, dir := range jobFolders(c) {
		own := c.Downloads
		own.Dir = dir
		results = append(results, a.checkFolder(ctx, own, owner))
	}
	if c.Reporter.Enabled {
		results = append(results, a.checkReporter(ctx, c)...)
	}
	if c.Hub.Enabled && c.Hub.NATS != nil {
		results = append(results, a.checkNATS(ctx, c, owner.Instance))
	}
	if c.Fetcher.On() {
		results = append(results, a.checkFetcher(ctx, c)...)
	} else if c.Fetcher.Idle() {
		results = append(results, checked{What: "fetcher", Verdict: warning, Detail: "the section fetcher has neither amqp nor url, so that no job comes",
			Remedy: "fetcher.amqp names the broker that job events come from"})
	}
	results = append(results, checkCertificates(c)...)
	for i := range results {
		results[i].State = verdictNames[results[i].Verdict]
		if results[i].Verdict >= bad && results[i].code == 0 {
			results[i].code = exitUnreachable
		}
	}
	return results
}

// checkLedger asks the owner, or opens the ledger, and reports what needs a person. Where there is no ledger that can be
// read, the owner is empty.
func (a *app) checkLedger(ctx context.Context, c *config.Config) (results []checked, owner console.StatusResult) {
	r := checked{What: "ledger", Detail: c.Store.Path}
	if _, err := os.Stat(c.Store.Path); errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		r.Detail += " is not there yet; run or poll makes it"
		if err := store.Preview(c.Store.Path); err != nil {
			r.Verdict, r.Detail, r.code = bad, err.Error(), exitFailed
			r.Remedy = "let this user write the folder of store.path, or choose another on a local disk"
		}
		return []checked{r}, console.StatusResult{}
	}
	var s console.StatusResult
	if err := a.call(ctx, c, wish{}, console.CallStatus, nil, console.Handlers{}, &s); err != nil {
		f := classify(err)
		r.Verdict, r.Detail, r.code = bad, f.Error(), f.code
		if len(f.hints) > 0 {
			r.Remedy = f.hints[0]
		}
		return []checked{r}, s
	}
	receipts := int64(0)
	for _, state := range store.States {
		receipts += s.Ledger.Count(state)
	}
	r.Detail = fmt.Sprintf("%s, %s, %s", c.Store.Path, humanize.IBytes(uint64(s.Ledger.FileSize)), english.Plural(int(receipts), "receipt", ""))
	results = append(results, r)
	if n := s.Ledger.Count(store.Parked); n > 0 {
		results = append(results, checked{What: "parked", Verdict: warning, Detail: english.PluralWord(int(n), "a receipt waits", fmt.Sprintf("%d receipts wait", n)) + " for a person",
			Remedy: "recibo list --state parked; then recibo retry, or recibo dismiss what nobody waits for"})
	}
	if n := s.Ledger.Quarantined; n > 0 {
		results = append(results, checked{What: "quarantine", Verdict: warning, Detail: english.Plural(int(n), "event", "") + " could not be processed",
			Remedy: "recibo quarantine list"})
	}
	results = append(results, checkAgent(c, &s))
	if s.Agent.Working {
		results = append(results, checkSubscriptions(s.Subscriptions)...)
	}
	if s.Agent.Silent {
		results = append(results, checked{What: "silence", Verdict: warning,
			Detail: "polling found reports that no event had announced, and no event has come since",
			Remedy: "is the subscription's stream, durable and filter right? does the producer publish?"})
	}
	return results, s
}

// sweptWithin is how long ago the last sweep may be where no agent runs: cron's recibo poll is due once a day at least.
const sweptWithin = 25 * time.Hour

// checkAgent tells whether anything brings home what is due: an agent, or recibo poll by cron.
func checkAgent(c *config.Config, s *console.StatusResult) checked {
	r := checked{What: "agent"}
	if s.Agent.Working {
		r.Detail = fmt.Sprintf("runs as process %d, version %s", s.PID, s.Version)
		return r
	}
	r.Detail = "none runs"
	if !c.Reporter.Enabled {
		return r
	}
	last := s.Agent.LastSweep
	if last == nil {
		r.Detail += ", and Reporter's list was never swept"
	} else {
		r.Detail += "; Reporter's list was swept " + ago(last.End)
	}
	if last == nil || time.Since(last.End) > sweptWithin {
		r.Verdict, r.Remedy = warning, "start recibo run, or have cron start recibo poll"
	}
	return r
}

// checkSubscriptions tells how the running agent is bound: only it knows.
func checkSubscriptions(list []hub.Health) []checked {
	var results []checked
	for _, h := range list {
		r := checked{What: "subscription", Detail: h.Transport + ": " + h.Detail}
		if !h.Healthy {
			r.Verdict, r.Remedy = bad, "the agent's log says more"
		}
		results = append(results, r)
	}
	return results
}

// checkFolder tries what publishing does: rights, room, rename, fsync.
func (a *app) checkFolder(ctx context.Context, c downloads.Config, owner console.StatusResult) checked {
	r := checked{What: "downloads", Detail: c.Dir}
	taken := slices.Contains(owner.Folders, c.Dir)
	look := func() (int64, error) { return downloads.Probe(ctx, c, owner.Instance) }
	if !taken {
		look = func() (int64, error) { return downloads.Preview(c, owner.Instance) }
	}
	free, err := look()
	if err != nil {
		r.Verdict, r.Detail = bad, err.Error()
		var problem *downloads.Error
		var foreign *downloads.ForeignOwnerError
		if errors.As(err, &problem) {
			r.Remedy = problem.Remedy
		} else if errors.As(err, &foreign) {
			r.code, r.Remedy = exitOwned, takeOverHint
		}
		return r
	}
	r.Detail = fmt.Sprintf("%s, %s free", c.Dir, humanize.IBytes(uint64(free)))
	if !taken && owner.Instance != "" {
		r.Verdict = warning
		r.Detail += "; it is new to this ledger, and the next recibo run makes it its own"
		r.Remedy = "is it right? what was delivered before stays in the folder from before"
	}
	if free < int64(c.MinFree) {
		r.Verdict, r.Remedy = bad, "make room, or lower downloads.min_free"
		r.Detail += ", which is below downloads.min_free"
	}
	return r
}

func (a *app) checkReporter(ctx context.Context, c *config.Config) []checked {
	r := checked{What: "reporter", Detail: c.Reporter.URL}
	client, err := reporter.New(c.REST, c.Reporter, rest.Options{UserAgent: userAgent()})
	if err != nil {
		r.Verdict, r.Detail, r.code = bad, err.Error(), exitUsage
		return []checked{r}
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := client.Ready(ctx); err != nil {
		r.Verdict, r.Detail, r.Remedy = bad, err.Error(), "is reporter.url right, and does Reporter run?"
	}
	token := checked{What: "reporter list", Detail: "listed with the configured credentials"}
	err = client.Acquire(ctx, rest.Get)
	if err == nil {
		_, err = client.Page(ctx, 1, 1, reporter.ListQuery{})
	}
	var refused *rest.Error
	switch {
	case errors.As(err, &refused) && refused.Kind == rest.Auth:
		token.Verdict, token.Detail = bad, err.Error()
		token.Remedy = "look at reporter.token or reporter.client_credentials, and at the rights they carry"
	case err != nil:
		token.Verdict, token.Detail = bad, err.Error()
	}
	return []checked{r, token}
}

func (a *app) checkNATS(ctx context.Context, c *config.Config, instance string) checked {
	n := c.Hub.NATS
	r := checked{What: "nats", Detail: fmt.Sprintf("%s, stream %s, durable %s", harmlessURL(n.URL), n.Stream, n.Durable)}
	normaliser, err := hub.NewNormaliser(c.Hub)
	if err == nil {
		var sub *hub.NATS
		if sub, err = hub.NewNATS(*n, normaliser, hub.NATSOptions{Owner: cmp.Or(instance, "no ledger yet")}); err == nil {
			ctx, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			err = sub.Check(ctx)
		}
	}
	var foreign *hub.ForeignOwnerError
	if err != nil {
		r.Verdict, r.Detail = bad, err.Error()
		r.Remedy = "is hub.nats.url right, is the stream there, and may this user read it?"
	}
	if errors.As(err, &foreign) {
		r.code, r.Remedy = exitOwned, takeOverHint
	}
	return r
}

// harmlessURL leaves out what may be a credential.
func harmlessURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.User == nil {
		return s
	}
	u.User = nil
	return u.String()
}

// expiryWarning is how long before its end a certificate is worth a word.
const expiryWarning = 30 * 24 * time.Hour

// checkCertificates looks at the client certificates that the configuration names.
func checkCertificates(c *config.Config) []checked {
	var results []checked
	files := map[string]setting.TLS{"reporter.tls": c.Reporter.TLS}
	if c.Hub.NATS != nil {
		files["hub.nats.tls"] = c.Hub.NATS.TLS
	}
	files["fetcher.tls"], files["fetcher.objects.tls"] = c.Fetcher.TLS, c.Fetcher.Objects.TLS
	if c.Fetcher.AMQP != nil {
		files["fetcher.amqp.tls"] = c.Fetcher.AMQP.TLS
	}
	for i, s := range c.Fetcher.Sources {
		files[fmt.Sprintf("fetcher.sources[%d].objects.tls", i)] = s.Objects.TLS
		if s.AMQP != nil {
			files[fmt.Sprintf("fetcher.sources[%d].amqp.tls", i)] = s.AMQP.TLS
		}
	}
	for _, key := range slices.Sorted(maps.Keys(files)) {
		t := files[key]
		if t.CertFile == "" {
			continue
		}
		r := checked{What: "certificate"}
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		switch {
		case err != nil:
			r.Verdict, r.Detail, r.code = bad, fmt.Sprintf("%s: %v", key, err), exitUsage
		case time.Now().After(pair.Leaf.NotAfter):
			r.Verdict, r.Detail, r.Remedy = bad, fmt.Sprintf("%s ended %s", key, humanize.Time(pair.Leaf.NotAfter)), "renew it"
		case time.Until(pair.Leaf.NotAfter) < expiryWarning:
			r.Verdict, r.Detail, r.Remedy = warning, fmt.Sprintf("%s ends %s", key, humanize.Time(pair.Leaf.NotAfter)), "renew it"
		default:
			r.Detail = fmt.Sprintf("%s is good until %s", key, pair.Leaf.NotAfter.UTC().Format(time.DateOnly))
		}
		results = append(results, r)
	}
	return results
}
