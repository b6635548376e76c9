package rest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Kind says what an error means for whoever decides what to do next.
type Kind int

// The kinds. The first five are the service's trouble, see Error.Service.
const (
	Unreachable Kind = iota // no connection, no answer
	BadTLS                  // the peers do not accept each other's certificates, or one does not speak TLS
	Auth                    // 401 or 403, or no token is to be had
	Limited                 // 429
	Server                  // 5xx that is not about the object asked for
	Refused                 // an answer about the object asked for
	Malformed               // an answer that is not what the API promises
	Broken                  // the body broke off, or is shorter than promised
	TooSlow                 // the body came too slowly, or the headers of a download did
)

var kindNames = [...]string{"unreachable", "TLS", "not authorised", "rate limited", "server trouble", "refused", "unexpected answer",
	"broken off", "too slow"}

// String names the kind in lower case.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return "kind " + strconv.Itoa(int(k))
	}
	return kindNames[k]
}

// Error is every failure of a call but the end of its context. No field holds a credential, and texts of the service
// are harmless to show: control characters are written out, lengths bounded.
type Error struct {
	Op        string
	URL       string // without user, query and fragment
	Kind      Kind
	Status    int    // 0: there was no answer
	Code      string // code, title and message of a JSON error
	Title     string
	Message   string
	RequestID string
	Excerpt   string    // the first 512 bytes of the answer's body
	RetryAt   time.Time // from Retry-After, by the client's clock and not bounded; zero without
	Token     bool      // the failure was in getting a token: nothing was sent to the service itself
	Err       error

	foreign bool // the answer is another origin's, after a redirect
	pace    pacing
}

// excerptSize is how much of a body, a title or a message an error shows.
const excerptSize = 512

// Service reports whether this is the service's trouble: it closes the class's gate and spends nobody's budget.
func (e *Error) Service() bool { return e.Kind <= Server }

// Unwrap returns the cause, nil for an answer's status.
func (e *Error) Unwrap() error { return e.Err }

// Error returns one line: what was done, the kind, status, code, title, message, request id and the first bytes of an
// answer that has none of these, or the cause and the address.
func (e *Error) Error() string {
	var b strings.Builder
	for _, part := range []string{e.Op, e.Kind.String()} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	b.WriteString(e.answer())
	if e.Err != nil {
		if e.Status != 0 || e.Message != "" {
			b.WriteString(": ")
		}
		b.WriteString(Harmless(e.Err.Error(), excerptSize))
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " (request id %s)", e.RequestID)
	}
	if e.Code == "" && e.Title == "" && e.Message == "" && e.Excerpt != "" {
		b.WriteString(": " + e.Excerpt)
	}
	if e.URL != "" {
		b.WriteString(" at " + e.URL)
	}
	return b.String()
}

// answer is the part of the line that comes from the service.
func (e *Error) answer() string {
	var words []string
	if e.Status != 0 {
		words = append(words, strconv.Itoa(e.Status))
	}
	for _, word := range []string{e.Code, e.Title} {
		if word != "" && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	line := strings.Join(words, " ")
	if e.Message == "" {
		return line
	}
	if line == "" {
		return e.Message
	}
	return line + ": " + e.Message
}

// Harmless returns at most size bytes of s as one line that a terminal or a log can show: runs of white space become
// one space, other characters that do not print are written out.
func Harmless(s string, size int) string {
	var b strings.Builder
	for _, word := range strings.Fields(cut(s, size)) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		for len(word) > 0 {
			r, n := utf8.DecodeRuneInString(word)
			switch {
			case r == utf8.RuneError && n == 1:
				fmt.Fprintf(&b, `\x%02x`, word[0])
			case unicode.IsPrint(r):
				b.WriteRune(r)
			default:
				quoted := strconv.QuoteRuneToASCII(r)
				b.WriteString(quoted[1 : len(quoted)-1])
			}
			word = word[n:]
		}
	}
	return b.String()
}

// cut returns at most size bytes of s, and no half character.
func cut(s string, size int) string {
	if len(s) <= size {
		return s
	}
	for size > 0 && !utf8.RuneStart(s[size]) {
		size--
	}
	return s[:size]
}
