package command

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"recibo/agent"
	"recibo/config"
	"recibo/console"
	"recibo/downloads"
	"recibo/fetcher"
	"recibo/hub"
	"recibo/reporter"
	"recibo/rest"
	"recibo/store"
)

// wish is what a command needs of the ledger's owner, if it becomes the owner itself.
type wish struct {
	create   bool // make ledger and folder when there are none
	work     bool // bring reports and results home
	intake   bool // hold the subscriptions
	takeOver bool // of the folder and the subscription of another ledger
	once     bool // the owner lives for one call alone
	log      *slog.Logger
	config   string // where the configuration came from, for the log
	step     func(agent.Step)
}

// owner holds the ledger: the lock first, then the socket, then the ledger and the folder, released in the reverse order.
type owner struct {
	lock     *store.Lock
	server   *console.Server
	ledger   *store.Store
	folder   *downloads.Folder
	folders  []*downloads.Folder // of jobs
	taken    []string            // folders that the ledger has made its own
	reporter *reporter.Client
	fetcher  *fetcher.Fetcher
	agent    *agent.Agent
}

// own becomes the owner. *store.OwnedError means that somebody else is.
func own(c *config.Config, w wish) (_ *owner, err error) {
	if !w.create {
		if err := exists(c.Store.Path); err != nil {
			return nil, err
		}
	}
	o := &owner{}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close(0))
		}
	}()
	if o.lock, err = store.Acquire(c.Store.Path); err != nil {
		return nil, err
	}
	if err = nobodyServes(c); err != nil {
		return nil, err
	}
	if o.server, err = console.Listen(c.Console, c.Console.Path(c.Store.Path)); err != nil {
		return nil, fmt.Errorf("the socket for the command line: %w", err)
	}
	o.ledger, err = store.Open(c.Store.Path, store.Options{Create: w.create, MinFree: c.Store.MinFree, Log: w.log})
	if err != nil {
		return nil, err
	}
	if o.folder, err = o.openFolder(c.Downloads, w, factFolder); err != nil {
		return nil, err
	}
	opts := agent.Options{
		Config: c.Agent, Ledger: o.ledger, Folder: o.folder, Manifest: c.Downloads.Manifest, MaxSize: c.Downloads.MaxSize,
		Retention: c.Store.Retention, Log: w.log, Step: w.step,
	}
	if c.Reporter.Enabled {
		o.reporter, err = reporter.New(c.REST, c.Reporter, rest.Options{Log: w.log, UserAgent: userAgent()})
		if err != nil {
			return nil, &failure{code: exitUsage, err: err}
		}
		opts.Reporter = o.reporter
	}
	if w.intake {
		if opts.Subscriptions, err = subscriptions(c, o.ledger.InstanceID(), w); err != nil {
			return nil, err
		}
	}
	if c.Fetcher.On() {
		if err = o.addFetcher(c, w, &opts); err != nil {
			return nil, err
		}
	}
	o.agent = agent.New(opts)
	backend := &console.Backend{Ledger: o.ledger, Agent: o.agent, Folders: o.taken, Version: version()}
	if w.once {
		backend.Began = time.Now()
	}
	o.server.Offer(backend.Calls())
	return o, nil
}

// nobodyServes guards against a lock file that was removed under a running agent: its socket must not be taken from it.
func nobodyServes(c *config.Config) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	socket := c.Console.Path(c.Store.Path)
	client, err := console.Dial(ctx, socket)
	if err != nil {
		return nil
	}
	client.Close()
	return &store.OwnedError{Lock: socket}
}

// factFolder is the fact that names the folder which the ledger has made its own.
const factFolder = "downloads.dir"

// openFolder opens a download folder where work needs it; commands that only read the ledger go without. Only a folder
// that the ledger has not had before, by the fact of this name, is made or adopted: the same path without its marker is a
// share that is not mounted.
func (o *owner) openFolder(c downloads.Config, w wish, fact string) (*downloads.Folder, error) {
	ctx := context.Background()
	had, err := o.ledger.Fact(ctx, fact)
	if err != nil {
		return nil, err
	}
	first := string(had) != c.Dir
	if !first {
		o.taken = append(o.taken, c.Dir)
	}
	folder, err := downloads.Open(c, downloads.Options{
		Owner: o.ledger.InstanceID(), TakeOver: w.takeOver, Create: w.create && (first || w.takeOver), Lock: w.work, Log: w.log,
	})
	switch {
	case err == nil && first:
		o.taken = append(o.taken, c.Dir)
		return folder, o.ledger.SetFact(ctx, fact, []byte(c.Dir))
	case err != nil && !w.work:
		w.log.Debug("a download folder is not open", "error", err)
		return nil, nil
	}
	return folder, err
}

// addFetcher gives the agent what it needs for jobs: Fetcher's services, the folders of sources that have their own, and
// where events are taken in, a subscription for each queue.
func (o *owner) addFetcher(c *config.Config, w wish, opts *agent.Options) (err error) {
	o.fetcher, err = fetcher.New(c.REST, c.Fetcher, rest.Options{Log: w.log, UserAgent: userAgent()})
	if err != nil {
		return &failure{code: exitUsage, err: err}
	}
	opts.Fetcher, opts.JobsFile = o.fetcher, c.Fetcher.JobsFile
	if opts.JobFolders, err = o.openJobFolders(c, w); err != nil {
		return err
	}
	if !w.intake {
		return nil
	}
	for _, section := range c.Fetcher.Subscriptions() {
		queue, err := hub.NewAMQP(section, hub.AMQPOptions{Log: w.log, Normalise: o.fetcher.Delivery})
		if err != nil {
			return &failure{code: exitUsage, err: fmt.Errorf("fetcher: %w", err)}
		}
		opts.JobSubscriptions = append(opts.JobSubscriptions, queue)
	}
	return nil
}

// jobFolders lists the folders that sources have beside the folder of reports, each once.
func jobFolders(c *config.Config) []string {
	var dirs []string
	for _, s := range c.Fetcher.Sources {
		if s.Dir != "" && s.Dir != c.Downloads.Dir && !slices.Contains(dirs, s.Dir) {
			dirs = append(dirs, s.Dir)
		}
	}
	return dirs
}

// openJobFolders opens each folder of fetcher.sources once. The result goes by the number of the source; nil is the folder
// of reports.
func (o *owner) openJobFolders(c *config.Config, w wish) ([]*downloads.Folder, error) {
	opened := map[string]*downloads.Folder{}
	for _, dir := range jobFolders(c) {
		own := c.Downloads
		own.Dir = dir
		folder, err := o.openFolder(own, w, fmt.Sprintf("%s %x", factFolder, sha256.Sum256([]byte(dir))))
		if err != nil {
			return nil, fmt.Errorf("fetcher.sources: dir: %w", err)
		}
		if folder != nil {
			opened[dir] = folder
			o.folders = append(o.folders, folder)
		}
	}
	folders := make([]*downloads.Folder, len(c.Fetcher.Sources))
	for i, s := range c.Fetcher.Sources {
		folders[i] = opened[s.Dir]
	}
	return folders, nil
}

func subscriptions(c *config.Config, instance string, w wish) ([]hub.Subscription, error) {
	if !c.Hub.Enabled || c.Hub.NATS == nil {
		return nil, nil
	}
	normaliser, err := hub.NewNormaliser(c.Hub)
	if err != nil {
		return nil, &failure{code: exitUsage, err: err}
	}
	nats, err := hub.NewNATS(*c.Hub.NATS, normaliser, hub.NATSOptions{
		Log: w.log, Owner: instance, TakeOver: w.takeOver, Retention: c.Store.Retention,
	})
	if err != nil {
		return nil, &failure{code: exitUsage, err: err}
	}
	return []hub.Subscription{nats}, nil
}

// close releases everything. Calls in progress get patience; the agent's own work must have ended.
func (o *owner) close(patience time.Duration) error {
	var errs []error
	if o.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		errs = append(errs, o.server.Close(ctx))
		cancel()
	}
	if o.reporter != nil {
		o.reporter.Close()
	}
	if o.fetcher != nil {
		o.fetcher.Close()
	}
	for _, folder := range append(o.folders, o.folder) {
		if folder != nil {
			errs = append(errs, folder.Close())
		}
	}
	if o.ledger != nil {
		errs = append(errs, o.ledger.Close())
	}
	if o.lock != nil {
		errs = append(errs, o.lock.Release())
	}
	return errors.Join(errs...)
}
