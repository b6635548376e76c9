package agent

import (
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
	Undescribed   bool                 `json:"undescribed,omitempty"`
	FailedSources []store.FailedSource `json:"failed_sources,omitempty"`
	SourcesKnown  bool                 `json:"sources_known,omitempty"`
	Reason        string               `json:"reason,omitempty"`
	Metadata      json.RawMessage      `json:"metadata,omitempty"`
	Written       time.Time            `json:"written"`
}

// writeManifests writes the manifest beside a delivered file, or one named by the id for a report without a file. It
// comes after the settlement and can be written again, so a failure is only told.
func (a *Agent) writeManifests(ctx context.Context, k store.Key, told bool) {
	if !a.Manifest || a.Folder == nil {
		return
	}
	r, err := a.Ledger.Get(ctx, k)
	if err == nil {
		m := manifest{
			Kind: r.Kind, ID: r.ID, State: r.State, Completed: r.CompletedAt, Template: r.TemplateID, Tenant: r.Tenant,
			Undescribed: r.Undescribed, FailedSources: r.FailedSources, SourcesKnown: r.SourcesKnown, Reason: r.Reason,
			Metadata: r.Metadata, Written: a.Now().UTC(),
		}
		names := []string{r.ID}
		if f := r.Newest(); f != nil {
			m.File, m.Size, m.SHA256, m.Revision, m.Proof = f.Name, f.Size, f.SHA256, f.Revision, f.Proof
			names = []string{f.Name}
			if told {
				names = append(names, r.ID)
			}
		}
		var data []byte
		if data, err = json.MarshalIndent(m, "", "  "); err == nil {
			for _, name := range names {
				if err == nil {
					err = a.Folder.WriteManifest(name, append(data, '\n'))
				}
			}
		}
	}
	if err != nil {
		a.Log.Warn("the manifest could not be written", "report", k.ID, "error", err)
	}
}
