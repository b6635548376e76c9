package console

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"recibo/agent"
	"recibo/downloads"
	"recibo/hub"
	"recibo/store"
)

// Backend is what the calls work on.
type Backend struct {
	Ledger  *store.Store
	Agent   *agent.Agent
	Folders []string  // that the ledger has made its own
	Began   time.Time // of an owner that works for one call alone: all that changes since then is that call's
	Version string
}

// Calls returns every call of the backend.
func (b *Backend) Calls() map[string]Call {
	return map[string]Call{
		CallStatus:     b.status,
		CallList:       typed(b.list),
		CallShow:       typed(b.show),
		CallPoll:       typed(b.poll),
		CallFetch:      typed(b.fetch),
		CallWatch:      typed(b.watch),
		CallRetry:      typed(b.retry),
		CallDismiss:    typed(b.dismiss),
		CallVerify:     typed(b.verify),
		CallBackup:     typed(b.backup),
		CallQuarantine: typed(b.quarantined),
		CallEntry:      typed(b.entry),
		CallRelease:    typed(b.release),
		CallDrop:       typed(b.drop),
	}
}

// typed decodes the request of a call.
func typed[T any](f func(context.Context, T, Stream) (any, error)) Call {
	return func(ctx context.Context, request json.RawMessage, out Stream) (any, error) {
		var req T
		if err := json.Unmarshal(request, &req); err != nil {
			return nil, Errorf(Usage, "the request can't be read: %v", err)
		}
		result, err := f(ctx, req, out)
		return result, coded(err)
	}
}

const checkHint = "recibo check says what is wrong"

// coded classes the errors that callers decide on.
func coded(err error) error {
	var damaged *store.DamagedError
	var e *Error
	switch {
	case err == nil, errors.As(err, &e):
		return err
	case errors.As(err, &damaged):
		return Errorf(Damaged, "%v", err)
	case errors.Is(err, store.ErrExists):
		return &Error{Failed, err.Error(), "name another file: none is overwritten"}
	case errors.Is(err, store.ErrNotFound):
		return Errorf(NotFound, "%v", err)
	case errors.Is(err, downloads.ErrGone):
		return &Error{Unreachable, err.Error(), checkHint}
	case errors.Is(err, agent.ErrUnreachable):
		return &Error{Unreachable, err.Error(), "what was asked for stays due; " + checkHint}
	}
	return err
}

func (b *Backend) status(ctx context.Context, _ json.RawMessage, _ Stream) (any, error) {
	ledger, err := b.Ledger.Stats(ctx)
	if err != nil {
		return nil, coded(err)
	}
	a, err := b.Agent.Status(ctx)
	if err != nil {
		return nil, coded(err)
	}
	res := StatusResult{PID: os.Getpid(), Version: b.Version, Instance: b.Ledger.InstanceID(), Folders: b.Folders, Agent: a, Ledger: ledger}
	if err := b.Ledger.Healthy(); err != nil {
		res.LedgerTrouble = err.Error()
	}
	if b.Agent.Reporter != nil {
		for _, g := range b.Agent.Reporter.Gates() {
			res.Gates = append(res.Gates, Gate{"reporter", g})
		}
	}
	if b.Agent.Fetcher != nil {
		for _, g := range b.Agent.Fetcher.Gates() {
			res.Gates = append(res.Gates, Gate{g.Service, g.GateStatus})
		}
	}
	for _, s := range slices.Concat(b.Agent.Subscriptions, b.Agent.JobSubscriptions) {
		res.Subscriptions = append(res.Subscriptions, s.Health())
	}
	return res, nil
}

func (b *Backend) list(ctx context.Context, req ListRequest, out Stream) (any, error) {
	sent := 0
	for r, err := range b.Ledger.All(ctx, store.Query{States: req.States, Kind: req.Kind, Since: req.Since, Meta: req.Meta}) {
		if err == nil {
			err = out.Item(r)
		}
		if err != nil {
			return nil, err
		}
		if sent++; sent == req.Limit {
			break
		}
	}
	return nil, nil
}

func (b *Backend) show(ctx context.Context, req IDs, _ Stream) (any, error) {
	keys, err := b.known(ctx, req.IDs, req.Job)
	if err != nil {
		return nil, err
	}
	r, err := b.Ledger.Get(ctx, keys[0])
	if err != nil {
		return nil, err
	}
	res := ShowResult{Receipt: r}
	for _, id := range r.Events {
		e, err := b.Ledger.Event(ctx, r.Kind.Feed(), id)
		if errors.Is(err, store.ErrNotFound) {
			continue // older than the retention
		}
		if err != nil {
			return nil, err
		}
		res.Events = append(res.Events, Event{id, e})
	}
	return res, nil
}

// known resolves ids and unique prefixes of receipts on record.
func (b *Backend) known(ctx context.Context, ids []string, job bool) ([]store.Key, error) {
	if len(ids) == 0 {
		return nil, Errorf(Usage, "no id was given")
	}
	keys := make([]store.Key, 0, len(ids))
	for _, id := range ids {
		found, err := b.resolve(ctx, id, job)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, Errorf(NotFound, "no receipt has the id %q", id)
		}
		keys = append(keys, found[0])
	}
	return keys, nil
}

// wholeID is the form of Reporter's and Fetcher's ids: only such a one is asked for without being on record, so that a
// mistyped prefix makes no receipt.
var wholeID = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)

// knownOrNew also takes ids that are not on record.
func (b *Backend) knownOrNew(ctx context.Context, ids []string, job bool) ([]store.Key, error) {
	kind := store.Report
	if job {
		kind = store.Job
	}
	if len(ids) == 0 {
		return nil, Errorf(Usage, "no id was given")
	}
	keys := make([]store.Key, 0, len(ids))
	for _, id := range ids {
		found, err := b.resolve(ctx, id, job)
		switch {
		case err != nil:
			return nil, err
		case len(found) == 1:
			keys = append(keys, found[0])
		case wholeID.MatchString(id):
			keys = append(keys, store.Key{Kind: kind, ID: hub.CanonicalID(id)})
		default:
			return nil, Errorf(Usage, "%q is neither the id of a receipt on record nor a whole %s id (a UUID)", id, kind)
		}
	}
	return keys, nil
}

// resolve finds the receipt that an id or the beginning of one stands for. One that a report and a job have is the
// report's, unless jobs are meant.
func (b *Backend) resolve(ctx context.Context, id string, job bool) ([]store.Key, error) {
	if id == "" {
		return nil, Errorf(Usage, "an id is empty")
	}
	found, err := b.Ledger.Resolve(ctx, hub.CanonicalID(id))
	if job {
		found = slices.DeleteFunc(found, func(k store.Key) bool { return k.Kind != store.Job })
	} else if len(found) == 2 && found[0].ID == found[1].ID {
		found = slices.DeleteFunc(found, func(k store.Key) bool { return k.Kind != store.Report })
	}
	if err == nil && len(found) > 1 {
		return nil, Errorf(Usage, "%q is the beginning of several ids, %s and %s among them", id, found[0].ID, found[1].ID)
	}
	return found, err
}

func (b *Backend) backup(ctx context.Context, file string, _ Stream) (any, error) {
	if !filepath.IsAbs(file) {
		return nil, Errorf(Usage, "backup: %q is no absolute path", file)
	}
	return nil, b.Ledger.Backup(ctx, file)
}

// tell sends the progress of downloads until ctx ends.
func (b *Backend) tell(ctx context.Context, out Stream) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if transfers := b.Agent.Transfers(); len(transfers) > 0 {
				_ = out.Progress(Progress{Transfers: transfers})
			}
		}
	}
}
