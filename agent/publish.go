package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"recibo/downloads"
	"recibo/fetcher"
	"recibo/reporter"
	"recibo/rest"
	"recibo/store"
)

// bringHome downloads one report, or fetches the result of one job, and gives it its place.
func (a *Agent) bringHome(ctx context.Context, t *transfer) {
	receive, cancel := a.receive, func() { a.Reporter.Cancel(rest.Download) }
	if t.key.Kind == store.Job {
		receive, cancel = a.receiveResult, func() { a.Fetcher.Cancel(t.source) }
	}
	if r, err := a.Ledger.Get(ctx, t.key); err == nil && r.Dismissed {
		cancel() // while it waited for its turn
		a.finish(t)
		return
	}
	rec, err := receive(ctx, t)
	if err == nil {
		err = a.place(ctx, t, rec)
	}
	if err == nil {
		a.finish(t)
		return
	}
	var (
		call   *rest.Error
		result *fetcher.ResultError
		format *downloads.NotTheFormatError
		name   *downloads.NameError
	)
	switch {
	case errors.As(err, &call), errors.As(err, &result), errors.As(err, &format), errors.As(err, &name), onlyAPersonCanHelp(err),
		errors.Is(err, errCut), errors.Is(err, errDiffer):
		a.failed(ctx, t, err)
	case errors.Is(err, errDismissed):
		a.finish(t)
	case errors.Is(err, downloads.ErrGone), errors.Is(err, store.ErrUnavailable), ctx.Err() != nil:
		a.interrupted(ctx, t, err) // the lane of downloads waits for the folder
	default:
		a.hindered(ctx, t, err)
	}
}

// place publishes a received file, or throws it away when its bytes are home already.
func (a *Agent) place(ctx context.Context, t *transfer, rec *received) error {
	r, err := a.Ledger.Get(ctx, t.key)
	if err != nil {
		return errors.Join(err, rec.staged.Discard())
	}
	revision := 1
	if newest := r.Newest(); newest != nil {
		revision = newest.Revision + 1
		if newest.SHA256 == rec.sum && newest.Size == rec.size {
			verdict := downloads.Sound
			if r.Force {
				if verdict, err = t.outlet.folder.Verify(ctx, newest.Name, newest.Size, newest.SHA256, nil); err != nil {
					return errors.Join(err, rec.staged.Discard())
				}
			}
			if verdict == downloads.Sound {
				a.settle(ctx, t, a.sameBytes)
				return rec.staged.Discard()
			}
			revision = newest.Revision // the same file once more
		}
	}
	return a.publish(ctx, t, r, rec, revision)
}

// sameBytes settles a completion whose file equals the newest one.
func (a *Agent) sameBytes(t *transfer, r *store.Receipt) {
	t.describedOn(r)
	r.Settled = r.CompletedAt
	if t.described != nil {
		r.Settled = t.completion()
	}
	r.Newest().Completion = r.Settled
	r.Note(a.Now(), "downloaded again with equal bytes; nothing published")
	delivered(r)
}

// renames bounds how often a publication looks for another name because its own was taken meanwhile.
const renames = 3

// publish announces the publication in the ledger, renames, and settles (law: publishing is announced).
func (a *Agent) publish(ctx context.Context, t *transfer, r *store.Receipt, rec *received, revision int) error {
	where := downloads.Place{
		ID: r.ID, Ext: rec.ext, Revision: revision, Template: t.template(r), Tenant: r.Tenant, Completed: t.completedAt(),
	}
	if newest := r.Newest(); newest != nil && rec.ext == extResult && newest.Proof == string(fetcher.Sealed) {
		where.Revision = 1 // the earlier one has another extension
	}
	p, err := t.outlet.folder.Prepare(ctx, where, rec.staged, held(r)...)
	for try := 0; err == nil; try++ {
		if err = a.forRepair(ctx, t, r, revision, &p); err != nil {
			break
		}
		intent := a.intent(t, rec, &p, revision)
		if p.Same {
			a.settle(ctx, t, a.tookOver(intent.File))
			return rec.staged.Discard()
		}
		if err = a.announce(ctx, t, intent, p.Foreign); errors.Is(err, errDismissed) {
			break
		} else if err != nil {
			// The outcome of the commit may be unknown: the staged file stays until the ledger can be read again.
			a.mu.Lock()
			t.outlet.orphans[p.Staged] = t.key
			a.mu.Unlock()
			return fmt.Errorf("announcing %s: %w", p.Name, err)
		}
		a.Step(StepAnnounced)
		err = t.outlet.folder.Publish(ctx, p.Publication)
		if err == nil {
			a.Step(StepPublished)
			a.settleAnnounced(ctx, t, intent)
			return nil
		}
		if !nothingPublished(err) {
			return fmt.Errorf("publishing %s: %w", p.Name, err) // the intent stands, and the next attempt settles it
		}
		if cleared := a.withdraw(ctx, t.key); cleared != nil {
			return errors.Join(err, cleared)
		}
		var occupied *downloads.OccupiedError
		if !errors.As(err, &occupied) || try == renames {
			break
		}
		p, err = t.outlet.folder.PrepareAgain(ctx, where, p.Publication, held(r)...)
	}
	return errors.Join(err, rec.staged.Discard())
}

func (t *transfer) completion() string {
	if t.described == nil {
		return ""
	}
	return t.described.completion()
}

// completedAt is the time of completion, zero where it is not known.
func (t *transfer) completedAt() time.Time {
	if t.described == nil {
		return time.Time{}
	}
	at, _ := reporter.ParseTime(t.described.completedAt)
	return at
}

func (t *transfer) template(r *store.Receipt) string {
	if t.described != nil {
		return t.described.templateID
	}
	return r.TemplateID
}

// held lists our files that are still under their names.
func held(r *store.Receipt) []downloads.Held {
	var list []downloads.Held
	for _, f := range r.Files {
		if !f.Replaced {
			list = append(list, downloads.Held{Name: f.Name, Size: f.Size, SHA256: f.SHA256})
		}
	}
	return list
}

// forRepair lets a file that a person asked for again take its own old name even where damaged bytes hold it.
func (a *Agent) forRepair(ctx context.Context, t *transfer, r *store.Receipt, revision int, p *downloads.Prepared) error {
	newest := r.Newest()
	if !r.Force || newest == nil || newest.Revision != revision || p.Same || p.Name == newest.Name {
		return nil
	}
	there, err := t.outlet.folder.Bytes(ctx, newest.Name)
	if err != nil {
		return err
	}
	p.Name, p.Replaces, p.Previous, p.Foreign = newest.Name, true, there, nil
	return nil
}

func (a *Agent) intent(t *transfer, rec *received, p *downloads.Prepared, revision int) *store.Intent {
	i := &store.Intent{
		Staged: p.Staged,
		File: store.File{
			Revision: revision, Name: p.Name, Size: rec.size, SHA256: rec.sum, Proof: rec.proof, Rows: rec.rows, HMAC: rec.hmac,
			Completion: t.completion(),
		},
		Generation: t.generation,
		At:         a.Now(),
	}
	if t.outlet != a.outlets[0] {
		i.File.Dir = t.outlet.folder.Dir()
	}
	if p.Replaces {
		i.Previous = &store.Previous{Size: p.Previous.Size, SHA256: p.Previous.SHA256}
	}
	return i
}

var errDismissed = errors.New("it was dismissed meanwhile")

// announce commits the intent, together with the description that it rests on. Up to here a dismissal keeps the file away.
func (a *Agent) announce(ctx context.Context, t *transfer, intent *store.Intent, foreign []string) error {
	dismissed := false
	err := a.Ledger.Change(context.WithoutCancel(ctx), []store.Key{t.key}, func(r *store.Receipt, _ bool) bool {
		if dismissed = r.Dismissed; dismissed {
			return false
		}
		t.describedOn(r)
		r.Undescribed = t.described == nil
		r.Intent = intent
		for _, name := range foreign {
			r.Note(a.Now(), name+" is a file that is not ours; it was left alone")
		}
		return true
	})
	if err == nil && dismissed {
		return errDismissed
	}
	return err
}

// withdraw takes back an intent that nothing came of. Only then may the staged file go.
func (a *Agent) withdraw(ctx context.Context, k store.Key) error {
	return a.Ledger.Change(context.WithoutCancel(ctx), []store.Key{k}, func(r *store.Receipt, _ bool) bool {
		r.Intent = nil
		return true
	})
}

// nothingPublished tells the errors of Publish after which the file has certainly not got its name.
func nothingPublished(err error) bool {
	var occupied *downloads.OccupiedError
	return errors.As(err, &occupied) || errors.Is(err, downloads.ErrGone) || errors.Is(err, downloads.ErrNoRoom)
}

// settleAnnounced records a published file.
func (a *Agent) settleAnnounced(ctx context.Context, t *transfer, intent *store.Intent) {
	recorded := a.settle(ctx, t, func(t *transfer, r *store.Receipt) {
		a.addFile(t, r, intent.File, "delivered as")
		r.Intent = nil
	})
	if !recorded {
		return // the intent stands, and the next attempt settles it
	}
	a.counts.delivered.Add(1)
	a.counts.bytes.Add(uint64(intent.File.Size))
	a.Log.Info(string(t.key.Kind)+" delivered", string(t.key.Kind), t.key.ID, "file", intent.File.Name, "bytes", intent.File.Size)
}

// tookOver settles with a file that was under its final name already, with the right bytes.
func (a *Agent) tookOver(f store.File) func(*transfer, *store.Receipt) {
	return func(t *transfer, r *store.Receipt) {
		t.describedOn(r)
		r.Undescribed = t.described == nil
		a.addFile(t, r, f, "taken over from the folder:")
		a.log(t).Info("taken over: the bytes are in the folder already", string(r.Kind), r.ID, "file", f.Name)
	}
}

// addFile puts a file on record as the newest, and the receipt with it.
func (a *Agent) addFile(t *transfer, r *store.Receipt, f store.File, how string) {
	f.Published = a.Now()
	opened := f.Proof == string(fetcher.Verified) && r.Newest() != nil && homeState(r) == store.Encrypted
	kept := r.Files[:0:0]
	for _, old := range r.Files {
		if old.Revision == f.Revision {
			continue // the same file once more
		}
		old.Replaced = old.Replaced || old.Name == f.Name
		kept = append(kept, old)
	}
	r.Files = append(kept, f)
	r.Settled = f.Completion
	what := how + " " + f.Name
	switch {
	case opened:
		what += ", opened now" // it is the result that the file before it holds sealed
	case f.Revision > 1:
		what += ", revision " + strconv.Itoa(f.Revision)
		a.log(t).Warn("a delivered "+string(r.Kind)+" was generated again with other bytes", string(r.Kind), r.ID, "file", f.Name, "revision", f.Revision)
	}
	r.Note(f.Published, what)
	delivered(r)
}
