package agent

import (
	"context"
	"slices"
	"strconv"

	"recibo/hub"
	"recibo/store"
)

// Admit makes a batch of deliveries durable and says what became of each: it is the hub.AdmitFunc of every transport.
// When it returns without an error the ledger holds the batch on disk, and it may be acknowledged.
func (a *Agent) Admit(ctx context.Context, batch []hub.Delivery) ([]hub.Outcome, error) {
	outcomes := make([]hub.Outcome, len(batch))
	admissions := make([]store.Admission, 0, len(batch))
	index := make([]int, 0, len(batch))
	full, err := a.quarantineFull(ctx, batch)
	if err != nil {
		return nil, err
	}
	for i, d := range batch {
		if d.Unproven && full {
			d.Verdict = hub.Reject
		}
		switch d.Verdict {
		case hub.Skip:
			outcomes[i] = hub.Skipped
			a.counts.skipped.Add(1)
			a.Log.Debug("event skipped", "origin", d.Origin, "reason", d.Reason)
		case hub.Reject:
			outcomes[i] = hub.Skipped
			a.counts.rejected.Add(1)
			a.Log.Warn("event refused: not authentic", "origin", d.Origin, "reason", d.Reason)
		default:
			admissions = append(admissions, a.admission(d))
			index = append(index, i)
		}
	}
	if len(admissions) == 0 {
		return outcomes, nil
	}
	results, err := a.Ledger.Admit(ctx, admissions)
	if err != nil {
		return nil, err
	}
	var fresh []store.Key
	for j, result := range results {
		d := batch[index[j]]
		if result == store.Admitted || result == store.Conflict {
			fresh = append(fresh, admissions[j].Receipt)
		}
		switch result {
		case store.Admitted:
			outcomes[index[j]] = hub.Admitted
			a.counts.admitted.Add(1)
		case store.Repeated:
			outcomes[index[j]] = hub.Repeated
			a.counts.repeated.Add(1)
		default:
			outcomes[index[j]] = hub.Quarantined
			a.counts.quarantined.Add(1)
			reason := d.Reason
			if result == store.Conflict {
				reason = "the event id was used before for another event, body, report or job"
			}
			a.Log.Warn("event quarantined", "origin", d.Origin, "event", d.Event.ID, "reason", reason)
		}
	}
	a.Step(StepAdmitted)
	a.weighAgain(fresh)
	a.Wake()
	return outcomes, nil
}

// maxUnproven is how many quarantined events may wait for a decision before more that nothing shows to be authentic are
// only counted: whoever may publish must not be able to fill the disk.
const maxUnproven = 10_000

func (a *Agent) quarantineFull(ctx context.Context, batch []hub.Delivery) (bool, error) {
	if !slices.ContainsFunc(batch, func(d hub.Delivery) bool { return d.Unproven }) {
		return false, nil
	}
	stats, err := a.Ledger.Stats(ctx)
	return stats.Quarantined >= maxUnproven, err
}

func (a *Agent) admission(d hub.Delivery) store.Admission {
	e := d.Event
	adm := store.Admission{
		Feed:      store.Reports,
		EventID:   e.ID,
		EventName: e.Name,
		Receipt:   store.Key{Kind: store.Report, ID: hub.CanonicalID(e.ReportID)},
		Transport: d.Transport,
		Origin:    d.Origin,
		Source:    e.Source,
		Tenant:    e.Tenant,
	}
	if d.Feed == hub.Jobs {
		adm.Feed, adm.Receipt.Kind = store.Jobs, store.Job
		if d.Verdict == hub.Accept {
			adm.Body = e.Data // signed: it is what the job is settled from
			if a.Fetcher != nil && a.Fetcher.Sources() > 1 {
				// The source is not signed, and two may share a key: a copy under another one must not hide the genuine event.
				adm.Mark = "\n" + strconv.Itoa(a.Fetcher.Find(e.Source, e.Tenant))
			}
		}
	}
	// The bytes go along in any case: the ledger keeps them only of what it quarantines.
	adm.Headers, adm.Data = e.Headers, d.Raw
	if d.Verdict == hub.Quarantine {
		adm.Quarantine = &store.Quarantined{
			Reason: d.Reason, Headers: e.Headers, Data: d.Raw, Unproven: d.Unproven,
		}
	}
	return adm
}
