package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"recibo/fetcher"
	"recibo/reporter"
	"recibo/setting"
	"recibo/store"
)

// maxMetadata bounds what one receipt keeps of a report's metadata, in bytes.
const maxMetadata = 256 << 10

// maxDepth bounds how deep it may be nested: encoders of those who read it have limits of their own.
const maxDepth = 64

// readableMetadata is metadata as a receipt keeps it: as it was written, but for bytes that are no UTF-8, which other
// readers of JSON would refuse the whole receipt for.
func readableMetadata(m json.RawMessage) json.RawMessage {
	m = bytes.ToValidUTF8(m, []byte("\uFFFD"))
	if len(m) <= maxMetadata && depth(m) <= maxDepth {
		return m
	}
	note, _ := json.Marshal(map[string]any{"recibo": fmt.Sprintf("metadata of %d bytes left out", len(m))})
	return note
}

// depth returns how deep a JSON value is nested.
func depth(m json.RawMessage) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(m); i++ {
		switch c := m[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}', c == ']':
			now--
		}
	}
	return deepest
}

func (a *Agent) settledSame(t *transfer, r *store.Receipt) {
	t.describedOn(r)
	if r.State != homeState(r) {
		r.Note(a.Now(), "the file of this completion is home already")
	}
	delivered(r)
}

// homeState is the state of a receipt whose newest file is home.
func homeState(r *store.Receipt) store.State {
	if r.Newest().Proof == string(fetcher.Sealed) {
		return store.Encrypted
	}
	return store.Delivered
}

// delivered clears what an undelivered receipt carries.
func delivered(r *store.Receipt) {
	r.State, r.Reason, r.FailedSources, r.SourcesKnown = homeState(r), "", nil, false
	r.Attempts, r.Asked, r.Stale, r.Force, r.Dismissed = 0, 0, false, false, false
}

func (a *Agent) recordPartial(t *transfer, r *store.Receipt) {
	same := r.State == store.Partial && reporter.SameCompletion(r.CompletedAt, t.described.completedAt)
	t.describedOn(r)
	failure := t.described.failure
	r.State, r.Reason, r.SourcesKnown, r.Attempts, r.Stale = store.Partial, failure.Reason, failure.Known, 0, false
	r.FailedSources = nil
	for _, s := range failure.Sources {
		r.FailedSources = append(r.FailedSources, store.FailedSource{Name: s.Name, Code: s.Code})
	}
	a.askWhileItMayChange(r)
	if !same {
		r.Note(a.Now(), fmt.Sprintf("partial: %d data sources failed", len(r.FailedSources)))
		a.log(t).Warn("report is partial", "report", r.ID, "failed_sources", len(r.FailedSources))
	}
}

func (a *Agent) recordFailure(t *transfer, r *store.Receipt) {
	same := r.State == store.Failed
	t.describedOn(r)
	r.State, r.Reason, r.Attempts, r.Asked, r.Stale = store.Failed, t.described.failure.Reason, 0, 0, false
	r.FailedSources, r.SourcesKnown, r.Force = nil, false, false
	if !same {
		r.Note(a.Now(), "failed: "+r.Reason)
		a.log(t).Warn(string(r.Kind)+" failed", string(r.Kind), r.ID, "reason", r.Reason)
	}
}

func (a *Agent) keepDelivered(t *transfer, r *store.Receipt) {
	d := t.described
	if r.Status != d.status {
		r.Note(a.Now(), "upstream now says "+d.status+"; the delivered file stays")
		a.log(t).Warn("a delivered "+string(r.Kind)+" changed upstream; its file stays", string(r.Kind), r.ID, "status", d.status)
	}
	r.Status, r.CompletedAt = d.status, d.completedAt
	delivered(r)
}

func (a *Agent) expectEnd(t *transfer, r *store.Receipt) {
	now := a.Now()
	t.describedOn(r)
	if t.described.unknown {
		r.Reason = fmt.Sprintf("status %q is unknown to this version, taken as not ended", r.Status)
	}
	switch r.State {
	case store.Delivered, store.Encrypted, store.Partial, store.Failed:
		// Being generated again: the record stands until there is a new end.
		a.askWhileItMayChange(r)
		return
	}
	if r.State != store.Expected {
		r.State = store.Expected
		r.Note(now, "in progress upstream: "+r.Status)
	}
	r.Attempts = 0
	r.Due = now.Add(jitter(askAgain(r, now)))
	r.Asked++
	begun := r.Created
	if created, ok := reporter.ParseTime(r.CreatedAt); ok {
		begun = created
	}
	if !r.Stale && now.Sub(begun) > a.Config.StaleAfter {
		r.Stale = true
		r.Note(now, "stale: in progress for longer than "+setting.FormatDuration(a.Config.StaleAfter))
		a.log(t).Warn(string(r.Kind)+" is stale", string(r.Kind), r.ID, "status", r.Status, "since", begun.UTC().Format(time.RFC3339))
	}
}

// askWhileItMayChange makes a receipt due again with back-off, for a bounded time.
func (a *Agent) askWhileItMayChange(r *store.Receipt) {
	now := a.Now()
	if asked := time.Duration(r.Asked) * askCap; asked < changeFor {
		r.Due = now.Add(jitter(askAgain(r, now)))
		r.Asked++
	}
}
