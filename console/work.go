package console

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"recibo/agent"
	"recibo/store"
)

// The calls that make the agent work, and wait for it.

// tally counts receipts by state and sends each as an item.
func tally(out Stream, o *Outcome) func(*store.Receipt) error {
	o.States = map[store.State]int{}
	return func(r *store.Receipt) error {
		o.Receipts++
		o.States[r.State]++
		return out.Item(r)
	}
}

// withProgress tells about downloads while f runs.
func (b *Backend) withProgress(ctx context.Context, out Stream, f func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { b.tell(ctx, out) })
	defer wg.Wait()
	defer cancel()
	return f()
}

func (b *Backend) fetch(ctx context.Context, req IDs, out Stream) (any, error) {
	keys, err := b.knownOrNew(ctx, req.IDs, req.Job)
	if err == nil {
		err = b.works(keys)
	}
	if err != nil {
		return nil, err
	}
	if err := b.canBeHad(ctx, keys); err != nil {
		return nil, err
	}
	asked, err := b.Agent.Fetch(ctx, keys, req.Force)
	if err != nil {
		return nil, err
	}
	var o Outcome
	err = b.withProgress(ctx, out, func() error { return b.Agent.Wait(ctx, asked, false, tally(out, &o)) })
	return o, err
}

// canBeHad says which jobs can't be fetched: those that no event has told of where there is nobody to ask.
func (b *Backend) canBeHad(ctx context.Context, keys []store.Key) error {
	for _, k := range keys {
		if k.Kind != store.Job || b.Agent.AsksAboutJobs() {
			continue
		}
		if _, err := b.Ledger.Get(ctx, k); errors.Is(err, store.ErrNotFound) {
			return &Error{Usage, "no event has told of " + k.String() + ", and there is no fetcher.url to ask", "recibo watch --job expects its event"}
		} else if err != nil {
			return err
		}
	}
	return nil
}

// canEnd says which jobs this process would wait for in vain: those that have not ended where neither an event can come nor
// anybody be asked.
func (b *Backend) canEnd(ctx context.Context, keys []store.Key) error {
	if err := b.ready(); err != nil || b.Agent.AsksAboutJobs() || len(b.Agent.JobSubscriptions) > 0 {
		return err
	}
	for _, k := range keys {
		if k.Kind != store.Job {
			continue
		}
		r, err := b.Ledger.Get(ctx, k)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err != nil || r.State == store.Pending || r.State == store.Expected {
			return &Error{Usage, "no agent runs that gets the event of " + k.String() + ", and there is no fetcher.url to ask",
				"recibo run receives events; without --wait the job is only expected"}
		}
	}
	return nil
}

// works says why these would not be brought home here.
func (b *Backend) works(keys []store.Key) error {
	if err := b.served(keys); err != nil {
		return err
	}
	return b.ready()
}

// served says for which of these there is nobody to ask.
func (b *Backend) served(keys []store.Key) error {
	for _, k := range keys {
		switch {
		case k.Kind == store.Report && b.Agent.Reporter == nil:
			return Errorf(Usage, "reporter is turned off (reporter.enabled): there is nobody to ask about reports")
		case k.Kind == store.Job && b.Agent.Fetcher == nil:
			return &Error{Usage, "there is no section fetcher: jobs can't be brought home", "fetcher.amqp or fetcher.url turns it on"}
		}
	}
	return nil
}

// ready says why nothing at all would be brought home here.
func (b *Backend) ready() error {
	if b.Agent.Reporter == nil && b.Agent.Fetcher == nil {
		return Errorf(Usage, "reporter is turned off (reporter.enabled), and there is no section fetcher: there is nobody to ask")
	}
	if b.Agent.Folder == nil || !b.Agent.Working() {
		return Errorf(Busy, "the agent is starting or stopping")
	}
	return nil
}

func (b *Backend) watch(ctx context.Context, req IDs, out Stream) (any, error) {
	keys, err := b.knownOrNew(ctx, req.IDs, req.Job)
	if err == nil {
		err = b.served(keys) // or they would be expected for ever
	}
	if err == nil && req.Wait {
		err = b.canEnd(ctx, keys)
	}
	if err != nil {
		return nil, err
	}
	asked, err := b.Agent.Watch(ctx, keys)
	if err != nil {
		return nil, err
	}
	var o Outcome
	each := tally(out, &o)
	if req.Wait {
		err := b.withProgress(ctx, out, func() error { return b.Agent.Wait(ctx, asked, true, each) })
		return o, err
	}
	return o, b.sendAll(ctx, keys, each)
}

func (b *Backend) sendAll(ctx context.Context, keys []store.Key, each func(*store.Receipt) error) error {
	for _, k := range keys {
		r, err := b.Ledger.Get(ctx, k)
		if err == nil {
			err = each(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) retry(ctx context.Context, req IDs, out Stream) (any, error) {
	var o Outcome
	keys, err := b.named(ctx, req)
	if err != nil {
		return nil, err
	}
	if _, err := b.Agent.Retry(ctx, keys); err != nil {
		return nil, err
	}
	return o, b.sendAll(ctx, keys, tally(out, &o))
}

// named are the receipts on record that a request means: by their ids, or all that are in a state.
func (b *Backend) named(ctx context.Context, req IDs) ([]store.Key, error) {
	if len(req.States) == 0 {
		return b.known(ctx, req.IDs, req.Job)
	}
	// The rows of a state move as they are changed: all of them are read before the first is.
	var keys []store.Key
	for r, err := range b.Ledger.All(ctx, store.Query{States: req.States}) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, r.Key())
	}
	return keys, nil
}

// dismiss changes nothing where one of those that were named can't be dismissed.
func (b *Backend) dismiss(ctx context.Context, req IDs, out Stream) (any, error) {
	var o Outcome
	if strings.TrimSpace(req.Reason) == "" {
		return nil, Errorf(Usage, needsReason)
	}
	keys, err := b.named(ctx, req)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		r, err := b.Ledger.Get(ctx, k)
		if err != nil {
			return nil, err
		}
		if refusal := undismissable(r); refusal != "" {
			return nil, Errorf(Failed, "%s %s%s", k, refusal, unchanged(len(keys)))
		}
	}
	if err := b.Agent.Dismiss(ctx, keys, req.Reason); err != nil {
		return nil, err
	}
	return o, b.sendAll(ctx, keys, tally(out, &o))
}

const needsReason = "a reason is needed: it stays on record"

// unchanged is added to why one of several could not be had, since then none is.
func unchanged(several int) string {
	if several > 1 {
		return "; nothing was changed"
	}
	return ""
}

func undismissable(r *store.Receipt) string {
	switch {
	case r.Intent != nil:
		return "is being published just now"
	case !agent.Dismissable(r) && !r.Dismissed:
		return fmt.Sprintf("is %s: it waits for nothing", r.State)
	}
	return ""
}

func (b *Backend) verify(ctx context.Context, req VerifyRequest, out Stream) (any, error) {
	if b.Agent.Folder == nil {
		return nil, Errorf(Busy, "the download folder is not open")
	}
	var res VerifyResult
	var again []store.Key
	var read int64
	told := time.Now()
	progress := func(n int64) {
		res.Bytes += n
		if read += n; time.Since(told) >= 200*time.Millisecond {
			_ = out.Progress(Progress{Bytes: read})
			read, told = 0, time.Now()
		}
	}
	err := b.Agent.Verify(ctx, func(v agent.Verification) error {
		wanted, err := b.judge(ctx, req, v, &res)
		if err != nil {
			return err
		}
		if wanted {
			again = append(again, store.Key{Kind: v.Kind, ID: v.ID})
		}
		return out.Item(v)
	}, progress)
	if err != nil {
		return res, err
	}
	if req.Adopt {
		if res.Adopted, err = b.adopt(ctx); err != nil {
			return res, err
		}
	}
	res.Repaired, err = b.fetchAgain(ctx, again, out)
	res.Left -= res.Repaired
	return res, err
}

// judge counts a verdict and tells whether the file is to be downloaded again. Only the newest of its receipt can be:
// upstream keeps no others.
func (b *Backend) judge(ctx context.Context, req VerifyRequest, v agent.Verification, res *VerifyResult) (again bool, err error) {
	switch v.Verdict {
	case "sound":
		res.Sound++
	case "damaged":
		res.Damaged++
		res.Left++
		again = req.Repair
	default:
		res.Collected++
		again = req.Missing
	}
	if !again {
		return false, nil
	}
	r, err := b.Ledger.Get(ctx, store.Key{Kind: v.Kind, ID: v.ID})
	if err != nil {
		return false, err
	}
	newest := r.Newest()
	again = newest != nil && newest.Revision == v.Revision
	if again && v.Verdict != "damaged" {
		res.Left++
	}
	return again, nil
}

// fetchAgain downloads damaged or missing files again and counts those that are sound afterwards.
func (b *Backend) fetchAgain(ctx context.Context, keys []store.Key, out Stream) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	if err := b.works(keys); err != nil {
		return 0, err
	}
	asked, err := b.Agent.Fetch(ctx, keys, true)
	if err != nil {
		return 0, err
	}
	repaired := 0
	err = b.withProgress(ctx, out, func() error {
		return b.Agent.Wait(ctx, asked, false, func(r *store.Receipt) error {
			sound, err := b.Agent.Sound(ctx, r)
			if sound {
				repaired++
			}
			return err
		})
	})
	return repaired, err
}

// adopt asks about every file in the folder that looks like a report and is not on record. Downloading it finds the
// same bytes under its name and takes the file over instead of writing another beside it.
func (b *Backend) adopt(ctx context.Context) (int, error) {
	if err := b.ready(); err != nil {
		return 0, err
	}
	ids, err := b.Agent.Unrecorded(ctx)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	asked, err := b.Agent.Fetch(ctx, ids, false)
	if err != nil {
		return 0, err
	}
	adopted := 0
	err = b.Agent.Wait(ctx, asked, false, func(r *store.Receipt) error {
		sound, err := b.Agent.Sound(ctx, r)
		if sound {
			adopted++
		}
		return err
	})
	return adopted, err
}
