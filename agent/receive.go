package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"recibo/downloads"
	"recibo/reporter"
	"recibo/rest"
)

// received is a whole, checked and synced file that has no final name yet.
type received struct {
	staged     *downloads.Staged
	ext, proof string
	rows       int64  // of a job's result
	hmac       string // of a job's result
	size       int64
	sum        string
}

const (
	// chunk is one read and write of a body: memory use does not depend on the size of a report.
	chunk = 256 << 10
	// sniffAfter is how many bytes are needed to see that a body can't be the file.
	sniffAfter = 512
	// maxResumes bounds how often one attempt goes on with a body that broke off.
	maxResumes = 5
	// resumeWait bounds a worker's wait for the pace of its own second request.
	resumeWait = 2 * time.Minute
)

var chunks = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

// receive downloads one report into the staging folder and proves that it is whole. The permit for the download is
// used up in any case.
func (a *Agent) receive(ctx context.Context, t *transfer) (*received, error) {
	staged, err := t.outlet.folder.Stage(t.key.ID)
	if err != nil {
		a.Reporter.Cancel(rest.Download)
		return nil, err
	}
	a.Step(StepStaged)
	rec, err := a.receiveInto(ctx, t, staged)
	if err == nil {
		a.Step(StepWritten)
		rec.size = staged.Size()
		if rec.sum, err = staged.Finish(ctx); err == nil {
			a.Step(StepSynced)
			return rec, nil
		}
	}
	return nil, errors.Join(err, staged.Discard())
}

func (a *Agent) receiveInto(ctx context.Context, t *transfer, staged *downloads.Staged) (*received, error) {
	a.counts.downloads.Add(1)
	d, err := a.Reporter.Download(ctx, t.key.ID, reporter.Resume{})
	if err != nil {
		return nil, err
	}
	ext, err := extension(d, t.described)
	if err != nil {
		return nil, errors.Join(err, d.Body.Close())
	}
	for resumes := 0; ; resumes++ {
		before := staged.Size()
		err := a.copyBody(ctx, t, d, staged, ext)
		if err == nil {
			break
		}
		// Only a strong validator shows that the second half belongs to the first.
		if d.ETag == "" || !brokeOff(err) || staged.Size() == before || resumes == maxResumes {
			return nil, err
		}
		d, err = a.resume(ctx, t, reporter.Resume{Offset: staged.Size(), ETag: d.ETag})
		if reporter.StartOver(err) {
			d, err = a.resume(ctx, t, reporter.Resume{})
		}
		if err != nil {
			return nil, err
		}
		if d.Offset == 0 {
			if err := staged.Reset(); err != nil {
				return nil, errors.Join(err, d.Body.Close())
			}
		}
	}
	proof, err := a.prove(ctx, t, d, staged, ext)
	return &received{staged: staged, ext: ext, proof: proof}, err
}

// extension is that of the file name in the answer, then the format in the description, then the media type. Reporter has
// no reports in JSON: that is an error with a status of success.
func extension(d *reporter.Download, described *description) (string, error) {
	name := d.FileName
	if name == "" && described != nil && described.format != "" {
		name = "report." + described.format
	}
	ext := downloads.Ext(d.ContentType, name)
	if ext == "json" || ext == "json.enc" {
		return "", &downloads.NotTheFormatError{Want: "a report", Looks: "JSON"}
	}
	return ext, nil
}

func (a *Agent) resume(ctx context.Context, t *transfer, from reporter.Resume) (*reporter.Download, error) {
	bounded, cancel := context.WithTimeout(ctx, resumeWait)
	defer cancel()
	if err := a.Reporter.Acquire(bounded, rest.Download); err != nil {
		return nil, err
	}
	a.counts.downloads.Add(1)
	return a.Reporter.Download(ctx, t.key.ID, from)
}

func brokeOff(err error) bool {
	var e *rest.Error
	return errors.As(err, &e) && (e.Kind == rest.Broken || e.Kind == rest.TooSlow)
}

// copyBody streams a body into the staged file. It closes the body.
func (a *Agent) copyBody(ctx context.Context, t *transfer, d *reporter.Download, staged *downloads.Staged, ext string) error {
	defer func() { _ = d.Body.Close() }()
	if d.Length > int64(a.MaxSize) && a.MaxSize > 0 {
		return &downloads.TooLargeError{Limit: int64(a.MaxSize)}
	}
	room := room{staged: staged, upTo: staged.Size()}
	defer room.release()
	if d.Length >= 0 {
		if err := room.take(d.Length - staged.Size()); err != nil {
			return err
		}
	}
	t.total.Store(d.Length)
	buf := chunks.Get().(*[]byte)
	defer chunks.Put(buf)
	sniffed := d.Offset > 0
	for {
		n, readErr := d.Body.Read(*buf)
		if n > 0 {
			// A body of unknown length takes its room in steps.
			if staged.Size()+int64(n) > room.upTo {
				if err := room.take(reserveStep); err != nil {
					return err
				}
			}
			if _, err := staged.Write((*buf)[:n]); err != nil {
				return err
			}
			t.done.Store(staged.Size())
		}
		ended := errors.Is(readErr, io.EOF)
		if !sniffed && (ended || staged.Size() >= sniffAfter) {
			sniffed = true
			if err := downloads.Sniff(ext, staged.Head(), d.ContentType, d.Disposition, t.key.ID); err != nil {
				return err
			}
		}
		switch {
		case ended:
			return nil
		case readErr != nil:
			return readErr
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// reserveStep is what a body of unknown length reserves at a time, in bytes.
const reserveStep = 64 << 20

// room is what one download holds of the disk.
type room struct {
	staged   *downloads.Staged
	upTo     int64 // the file may grow to this size
	releases []func()
}

func (r *room) take(n int64) error {
	if n <= 0 {
		return nil
	}
	release, err := r.staged.Reserve(n)
	if err == nil {
		r.releases = append(r.releases, release)
		r.upTo += n
	}
	return err
}

func (r *room) release() {
	for _, release := range r.releases {
		release()
	}
}

// The proofs that a body was whole, as the receipt names them.
const (
	proofEndMark = "end-mark"
	proofTwice   = "two downloads"
)

var (
	errCut    = errors.New("the body ended with its connection and lacks the end mark of its format")
	errDiffer = errors.New("two downloads of a body without length or end mark differ")
)

// prove says what shows that the staged bytes are the whole file. Only a body that merely ended with its connection
// leaves that open: then its end mark shows it, and for a format without one the same bytes a second time.
func (a *Agent) prove(ctx context.Context, t *transfer, d *reporter.Download, staged *downloads.Staged, ext string) (string, error) {
	if d.Framing != "close" {
		return d.Framing, nil
	}
	switch downloads.EndMark(ext, staged.Head(), staged.Tail()) {
	case downloads.Present:
		return proofEndMark, nil
	case downloads.Absent:
		return "", errCut
	}
	again, err := a.resume(ctx, t, reporter.Resume{})
	if err != nil {
		return "", err
	}
	defer func() { _ = again.Body.Close() }()
	hash := sha256.New()
	size, err := io.Copy(hash, io.LimitReader(again.Body, staged.Size()+1))
	if err != nil {
		return "", err
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); size != staged.Size() || sum != staged.Sum() {
		return "", fmt.Errorf("%w: %d and %d bytes", errDiffer, staged.Size(), size)
	}
	return proofTwice, nil
}
