package agent

import (
	"context"
	"errors"
	"io"

	"recibo/downloads"
	"recibo/fetcher"
)

// Extensions of a job's files: its verified result, and the object as it is stored.
const (
	extResult    = "json"
	extEncrypted = "json.enc"
)

// receiveResult brings the result of a job into the staging folder, where it is written while it is verified: what turns out
// to be another one is thrown away. Its memory is given back once it is on disk. The permit for the object store is used up
// in any case.
func (a *Agent) receiveResult(ctx context.Context, t *transfer) (*received, error) {
	rec := &received{ext: extResult, rows: t.described.result.RowCount, hmac: t.described.result.HMAC}
	a.counts.downloads.Add(1)
	w := fetcher.Wanted{JobID: t.key.ID, Result: *t.described.result}
	var err error
	if a.Fetcher.CanOpen(t.source) || t.verified || a.Fetcher.Encrypted() != fetcher.Deliver {
		err = a.Fetcher.Fetch(ctx, t.source, w, func(plaintext []byte, proof fetcher.Proof) error {
			rec.proof = string(proof)
			return a.stageResult(ctx, t, rec, func(to io.Writer) error {
				_, err := to.Write(plaintext)
				return err
			}, int64(len(plaintext)))
		})
	} else {
		rec.ext, rec.proof = extEncrypted, string(fetcher.Sealed)
		err = a.Fetcher.FetchEncrypted(ctx, t.source, w, func(object io.Reader, size int64) error {
			return a.stageResult(ctx, t, rec, func(to io.Writer) error {
				_, err := io.Copy(to, object)
				return err
			}, size)
		})
	}
	if err == nil {
		return rec, nil
	}
	if rec.staged != nil {
		err = errors.Join(err, rec.staged.Discard())
	}
	return nil, err
}

// stageResult writes, syncs and sums a result of a known size.
func (a *Agent) stageResult(ctx context.Context, t *transfer, rec *received, write func(io.Writer) error, size int64) error {
	staged, err := t.outlet.folder.StageAs(t.key.ID, a.Fetcher.Mode())
	if err != nil {
		return err
	}
	rec.staged = staged
	a.Step(StepStaged)
	release, err := staged.Reserve(size)
	if err != nil {
		return err
	}
	defer release()
	t.total.Store(size)
	if err := write(&counting{to: staged, t: t}); err != nil {
		return err
	}
	a.Step(StepWritten)
	rec.size = staged.Size()
	if rec.sum, err = staged.Finish(ctx); err != nil {
		return err
	}
	a.Step(StepSynced)
	return nil
}

// counting shows the progress of a transfer.
type counting struct {
	to *downloads.Staged
	t  *transfer
}

// Write implements io.Writer, in pieces that progress can be seen by.
func (c *counting) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		var written int
		written, err = c.to.Write(p[:min(len(p), progressStep)])
		n, p = n+written, p[written:]
		c.t.done.Store(c.to.Size())
	}
	return n, err
}

const progressStep = 4 << 20
