package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"recibo/store"
)

// manifest is what <file>.receipt.json says to whoever reads the folder.
type manifest struct {
	Kind          store.Kind           `json:"kind"`
	ID            string               `json:"id"`
	State         store.State          `json:"state"`
	File          string               `json:"file,omitempty"`
	Size          int64                `json:"size,omitempty"`
	SHA256        string               `json:"sha256,omitempty"`
	Revision      int                  `json:"revision,omitempty"`
	Proof         string               `json:"proof,omitempty"`
	Completed     string               `json:"completed,omitempty"`
	Template      string               `json:"template,omitempty"`
	Tenant        string               `json:"tenant,omitempty"`
	Source        string               `json:"source,omitempty"`
	Authority     string               `json:"authority,omitempty"` // of a job: whose word it was settled by
	Rows          int64                `json:"rows,omitempty"`      // of a job's result
	HMAC          string               `json:"hmac,omitempty"`      // of a job's result
	Undescribed   bool                 `json:"undescribed,omitempty"`
	FailedSources []store.FailedSource `json:"failed_sources,omitempty"`
	SourcesKnown  bool                 `json:"sources_known,omitempty"`
	Reason        string               `json:"reason,omitempty"`
	Metadata      json.RawMessage      `json:"metadata,omitempty"`
	Written       time.Time            `json:"written"`
}

// rehearse writes the manifests of what an outcome will put on record. They come before the settlement: after a crash in
// between the attempt is made again, and with it they are written again.
func (a *Agent) rehearse(ctx context.Context, t *transfer, outcome func(*transfer, *store.Receipt)) {
	if !a.Manifest || a.Folder == nil {
		return
	}
	r, err := a.Ledger.Get(ctx, t.key)
	if err != nil {
		return // the settlement meets the same trouble, and tells
	}
	before, file := r.State, fileOf(r)
	a.conclude(&transfer{key: t.key, generation: t.generation, described: t.described, rehearsal: true}, r, outcome)
	names := []string{r.ID}
	switch {
	case r.Newest() != nil && r.State == homeState(r) && fileOf(r) != file:
		names = []string{r.Newest().Name}
		if before == store.Partial || before == store.Failed {
			names = append(names, r.ID) // it stands there with the earlier state
		}
	case r.State != store.Partial && r.State != store.Failed, r.Dismissed:
		return
	}
	if err := a.writeManifests(r, names); err != nil {
		a.Log.Warn("the manifest could not be written", string(r.Kind), r.ID, "error", err)
	}
}

func fileOf(r *store.Receipt) store.File {
	if f := r.Newest(); f != nil {
		return *f
	}
	return store.File{}
}

// writeManifests writes <name>.receipt.json for each name: that of a file, or the id of a report without one.
func (a *Agent) writeManifests(r *store.Receipt, names []string) error {
	m := manifest{
		Kind: r.Kind, ID: r.ID, State: r.State, Completed: r.CompletedAt, Template: r.TemplateID, Tenant: r.Tenant,
		Source: r.Source, Authority: r.Authority, Undescribed: r.Undescribed, FailedSources: r.FailedSources, SourcesKnown: r.SourcesKnown, Reason: r.Reason,
		Metadata: r.Metadata, Written: a.Now().UTC(),
	}
	if f := r.Newest(); f != nil {
		m.File, m.Size, m.SHA256, m.Revision, m.Proof, m.Rows, m.HMAC = f.Name, f.Size, f.SHA256, f.Revision, f.Proof, f.Rows, f.HMAC
	}
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false) // upstream's metadata stays as it was written
	encoder.SetIndent("", "  ")
	err := encoder.Encode(m)
	mode := ""
	if r.Kind == store.Job && a.Fetcher != nil {
		mode = a.Fetcher.Mode() // it holds the requester's metadata
	}
	for _, name := range names {
		if err == nil {
			err = a.outletOf(r).folder.WriteManifest(name, data.Bytes(), mode)
		}
	}
	return err
}
