package fetcher

import (
	"fmt"
	"strconv"

	"recibo/rest"
)

// Kind says what became of an attempt at a result.
type Kind int

// The kinds. The first three are the object store's trouble, see ResultError.Service.
const (
	Unreachable Kind = iota // no connection, no answer, or peers that do not accept each other's certificates
	Auth                    // the store refuses our access key, or there is none
	Server                  // the store's own trouble, a missing bucket included
	Missing                 // there is no such object, or none that can be read
	Broken                  // the object broke off, came too slowly, or was replaced while it was read
	TooLarge                // above fetcher.max_result
	NoKey                   // no storage key, or no source that the result belongs to
	BadPath                 // a path that leads elsewhere
	BadEncoding             // not base64 of a sealed result
	BadSeal                 // no storage key opens it: another key is needed, or a bit is wrong
	BadLength               // another length than announced
	BadHMAC                 // another content than announced
	Denied                  // refused: it may be missing, or all may be refused; only other objects tell
)

var kindNames = [...]string{"unreachable", "not authorised", "server trouble", "missing", "broken off", "too large", "no key",
	"bad path", "bad encoding", "can't be opened", "wrong length", "wrong HMAC", "denied"}

// String names the kind in lower case.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return "kind " + strconv.Itoa(int(k))
	}
	return kindNames[k]
}

// ResultError is every failure to bring a result home but the end of the context and what the caller's own function
// returned. It shows no key.
type ResultError struct {
	Kind  Kind
	JobID string
	Err   error

	badTLS bool // of Unreachable: certificates are in the way, which a person must mend
	denied bool // of Auth: the access key is known, and may not read this object
}

// BadTLS reports whether certificates are in the way, which a person must mend.
func (e *ResultError) BadTLS() bool { return e.badTLS }

// Service reports whether this is the object store's trouble, which spends nobody's budget.
func (e *ResultError) Service() bool { return e.Kind <= Server }

// Hopeless reports whether only a person can help. Whatever else is wrong with an object is tried again, a bounded
// number of times: it may be written anew.
func (e *ResultError) Hopeless() bool {
	return e.Kind == TooLarge || e.Kind == NoKey || e.Kind == BadPath
}

// Blameless reports whether it is not known whose trouble it is: neither the object's budget nor the store's gate is to
// suffer for it.
func (e *ResultError) Blameless() bool { return e.Kind == Denied }

// Unwrap returns the cause.
func (e *ResultError) Unwrap() error { return e.Err }

// Error returns one line.
func (e *ResultError) Error() string {
	text := fmt.Sprintf("result of job %s: %s", rest.Harmless(e.JobID, 64), e.Kind)
	if e.Err != nil {
		text += ": " + rest.Harmless(e.Err.Error(), maxCause)
	}
	return text
}

// maxCause bounds what somebody else's text adds to an error, in bytes.
const maxCause = 512
