package console

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"recibo/agent"
	"recibo/hub"
	"recibo/store"
)

// The calls about quarantined events.

// page is how many entries one look at the quarantine takes; between pages no transaction is open.
const page = 256

// entries walks through the quarantine, oldest first.
func (b *Backend) entries(ctx context.Context) iter.Seq2[*store.Quarantined, error] {
	return func(yield func(*store.Quarantined, error) bool) {
		for after := uint64(0); ; {
			entries, err := b.Ledger.Quarantine(ctx, after, page)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(entries) == 0 {
				return
			}
			for _, q := range entries {
				after = q.ID
				if !yield(&q, nil) {
					return
				}
			}
		}
	}
}

func (b *Backend) quarantined(ctx context.Context, req EntryRequest, out Stream) (any, error) {
	for q, err := range b.entries(ctx) {
		if err != nil {
			return nil, err
		}
		if !q.Open() && !req.Dropped {
			continue
		}
		if err := out.Item(q); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// open returns the entries of these numbers, all of which must wait for a decision.
func (b *Backend) open(ctx context.Context, ids []uint64) ([]*store.Quarantined, error) {
	if len(ids) == 0 {
		return nil, Errorf(Usage, "no number of an event was given")
	}
	var entries []*store.Quarantined
	for _, id := range ids {
		q, err := b.Ledger.Quarantined(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil, Errorf(NotFound, "there is no quarantined event %d%s", id, unchanged(len(ids)))
		case err != nil:
			return nil, err
		case !q.Open():
			return nil, Errorf(Failed, "event %d is closed: %s%s", id, q.Closed(), unchanged(len(ids)))
		}
		entries = append(entries, q)
	}
	return entries, nil
}

func (b *Backend) entry(ctx context.Context, req EntryRequest, _ Stream) (any, error) {
	if len(req.IDs) != 1 {
		return nil, Errorf(Usage, "one event is shown at a time")
	}
	return b.Ledger.Quarantined(ctx, req.IDs[0])
}

func (b *Backend) drop(ctx context.Context, req EntryRequest, _ Stream) (any, error) {
	if strings.TrimSpace(req.Reason) == "" {
		return nil, Errorf(Usage, needsReason)
	}
	if _, err := b.open(ctx, req.IDs); err != nil {
		return nil, err
	}
	for _, id := range req.IDs {
		if err := b.Ledger.Drop(ctx, id, req.Reason); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// release admits events in their order, until one can't be.
func (b *Backend) release(ctx context.Context, req EntryRequest, out Stream) (any, error) {
	if req.Verified {
		return b.releaseVerified(ctx)
	}
	entries, err := b.open(ctx, req.IDs)
	if err != nil {
		return nil, err
	}
	for _, q := range entries {
		released, err := b.releaseEntry(ctx, q, req.Report)
		if err == nil {
			err = out.Item(released)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (b *Backend) releaseEntry(ctx context.Context, q *store.Quarantined, report string) (*Released, error) {
	switch {
	case q.Feed == store.Jobs && report != "":
		return nil, Errorf(Usage, "event %d is of a job: what it is about is signed, and can't be named", q.ID)
	case report == "":
		report = q.Receipt.ID
	}
	if q.Feed == store.Reports && !hub.PlainID(report) {
		return nil, &Error{Usage, fmt.Sprintf("event %d does not name a report", q.ID), "name it: quarantine release --report ID"}
	}
	key, outcome, err := b.Agent.Release(ctx, q, report)
	if errors.Is(err, agent.ErrNotVerified) {
		return nil, &Error{Failed, fmt.Sprintf("event %d: %v", q.ID, err), "once a missing key is in the configuration, " +
			"recibo quarantine release --verified admits all that it fits; what is forged stays out: recibo quarantine drop"}
	}
	return &Released{q.ID, key, outcome == store.Admitted}, err
}

// releaseVerified admits what could not be verified and now can, as after a key was added.
func (b *Backend) releaseVerified(ctx context.Context) (any, error) {
	var res ReleasedVerified
	for q, err := range b.entries(ctx) {
		if err != nil {
			return res, err
		}
		if !q.Open() || !q.Unproven {
			continue
		}
		switch outcome, err := b.Agent.ReleaseVerified(ctx, q); {
		case errors.Is(err, agent.ErrNotVerified):
			res.Left++
		case errors.Is(err, store.ErrNotOpen), errors.Is(err, store.ErrNotFound): // somebody else has closed it meanwhile
		case err != nil:
			return res, err
		case outcome == store.Admitted:
			res.Admitted++
		case outcome == store.Repeated:
			res.Repeated++
		default:
			res.Disputed = append(res.Disputed, q.ID)
		}
	}
	return res, nil
}
