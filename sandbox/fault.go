package sandbox

import (
	"net/http"
	"slices"
	"time"
)

// The classes of request.
const (
	ClassGet      = "get"      // GET /v1/reports/{id}
	ClassList     = "list"     // GET /v1/reports
	ClassDownload = "download" // GET /v1/reports/{id}/download
	ClassToken    = "token"    // POST /v1/login/oauth/access_token
)

// FaultKind is what goes wrong with an answer.
type FaultKind int

// The kinds, with the fields of Fault that they read.
const (
	NoFault          FaultKind = iota // the answer is in order: holds a place in a sequence
	CutBody                           // Bytes of the body, then the connection ends
	NoLength                          // chunked, without Content-Length
	CloseDelimited                    // no length at all: the body ends with the connection; with Bytes, cut short unnoticeably
	WrongLength                       // Content-Length is Bytes (default 1) above the truth; below 0 the body is cut to fit it
	SlowBytes                         // Bytes (default 1) of the body every Interval
	LateFirstByte                     // the header comes after Interval
	Hang                              // the header never comes
	TooMany                           // 429 with RetryAfter, as written
	Status                            // Code with Body, JSON when it begins with a brace
	HTMLInstead                       // 200 with a login page
	JSONErrorInstead                  // 200 with an error in JSON
	NotReady                          // refused with TPL-0029 or 0260 although Finished
	MissingFile                       // TPL-0034 or 0265
	TemplateDeleted                   // 404 TPL-0011 although Finished
	Gzip                              // compressed whatever the client asked for, with the compressed length up to 1 MiB
	ETag                              // a strong ETag, and Range honoured with 206; RangeIgnored is the Reporter's own way
	WeakETag                          // an ETag that proves nothing about bytes, and Range honoured
	WrongRange                        // 206 whose bytes and Content-Range begin one byte earlier than asked
)

// Fault is one disturbed answer.
type Fault struct {
	Kind  FaultKind
	Class string // of the requests that meet it, in Report.Faults; default ClassDownload

	Bytes      int64 // a number of bytes as the kind says; below 0 in a cut: so many before the end
	Interval   time.Duration
	Code       int
	Body       string
	RetryAfter string // the header's value, a number of seconds or a date; empty: no header

	With *Fault // a further fault of the same answer, such as CutBody with ETag
}

// classFault is a fault that the next requests of a class meet.
type classFault struct {
	left  int
	fault Fault
}

// Fault lets the next n requests of a class meet f, whatever their report and after the faults ordered before; n below
// 0 is for ever. With n 0 the class's faults are taken back.
func (r *Reporter) Fault(class string, n int, f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n == 0 {
		delete(r.faults, class)
		return
	}
	r.faults[class] = append(r.faults[class], classFault{n, f})
}

// take returns the fault that this request meets: the class's own, otherwise, if the request would succeed, the
// report's.
func (r *Reporter) take(class, id string, succeeds bool) *Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	if queue := r.faults[class]; len(queue) > 0 {
		first := queue[0]
		if queue[0].left--; queue[0].left == 0 {
			r.faults[class] = queue[1:]
		}
		return &first.fault
	}
	record := r.reports[id]
	if record == nil || !succeeds {
		return nil
	}
	of := func(f Fault) bool { return f.Class == class || f.Class == "" && class == ClassDownload }
	i := slices.IndexFunc(record.Faults, of)
	if i < 0 {
		return nil
	}
	fault := record.Faults[i]
	if last := !slices.ContainsFunc(record.Faults[i+1:], of); !last || !record.Sticky {
		record.Faults = slices.Concat(record.Faults[:i], record.Faults[i+1:]) // a new slice: copies were given out
	}
	return &fault
}

// disturb lets an answer meet a fault.
func (r *Reporter) disturb(a *answer, f *Fault) *answer {
	for ; f != nil; f = f.With {
		a = f.apply(a, r.options.Era)
	}
	return a
}

func (f *Fault) apply(a *answer, era Era) *answer {
	switch f.Kind {
	case TooMany, Status, HTMLInstead, JSONErrorInstead, NotReady, MissingFile, TemplateDeleted:
		return f.instead(era)
	case CutBody:
		a.cut, a.bytes = cutAbort, f.Bytes
	case CloseDelimited:
		a.length = lengthByClose
		if f.Bytes != 0 {
			a.cut, a.bytes = cutQuiet, f.Bytes
		}
	case NoLength:
		a.length = lengthChunked
	case WrongLength:
		a.wrong = f.Bytes
		if a.wrong == 0 {
			a.wrong = 1
		}
	case SlowBytes:
		a.step, a.every = max(f.Bytes, 1), f.Interval
	case LateFirstByte:
		a.late = f.Interval
	case Hang:
		a.hang = true
	case Gzip:
		a.gzip = true
	case ETag, WeakETag:
		a.ranges, a.weak = true, f.Kind == WeakETag
	case WrongRange:
		a.ranges, a.shifted = true, true
	}
	return a
}

// instead is the answer of a fault that replaces the right one.
func (f *Fault) instead(era Era) *answer {
	switch f.Kind {
	case NotReady:
		return era.refusal(notReady)
	case MissingFile:
		return era.refusal(missingFile)
	case TemplateDeleted:
		return era.refusal(notFound)
	case TooMany:
		a := era.refusal(tooMany)
		if f.RetryAfter != "" {
			a.header.Set("Retry-After", f.RetryAfter)
		}
		return a
	case HTMLInstead:
		return textAnswer(http.StatusOK, "text/html; charset=utf-8", loginPage)
	case JSONErrorInstead:
		a := era.refusal(missingFile)
		a.status = http.StatusOK
		return a
	}
	media := "text/plain; charset=utf-8"
	if len(f.Body) > 0 && f.Body[0] == '{' {
		media = "application/json"
	}
	a := textAnswer(f.Code, media, f.Body)
	if f.RetryAfter != "" {
		a.header.Set("Retry-After", f.RetryAfter)
	}
	return a
}

const loginPage = "<!doctype html>\n<html><head><title>Sign in</title></head><body><form method=\"post\">" +
	"<input name=\"user\"><input name=\"password\" type=\"password\"></form></body></html>\n"
