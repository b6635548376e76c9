package console

import (
	"encoding/json"
	"errors"
	"fmt"
)

// A call is one POST to /v1/<name> with the request as JSON. The answer is a stream of lines, each one JSON object with a
// single field: "item" for each piece of a result, "progress" for what is worth showing while waiting, and at the end
// "result" or "error". A stream that ends without either was cut off.
type line struct {
	Item     json.RawMessage `json:"item,omitempty"`
	Progress json.RawMessage `json:"progress,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    *Error          `json:"error,omitempty"`
}

// Code classes an error for whoever decides on it; the command line turns it into its exit code.
type Code string

// The codes.
const (
	Failed      Code = "failed"      // some work failed
	Usage       Code = "usage"       // the request can't be right
	NotFound    Code = "not_found"   // no such receipt or entry
	Unreachable Code = "unreachable" // something that is needed can't be reached
	Damaged     Code = "damaged"     // the ledger is damaged
	Busy        Code = "busy"        // starting or stopping: ask again
	Foreign     Code = "foreign"     // it belongs to the agent of another ledger
)

// Error is a call's failure.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// asError turns any failure of a call into what goes over the wire.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Failed, Message: err.Error()}
}

// ErrCut says that the owner went away before it had answered.
var ErrCut = errors.New("the agent went away before it had answered")
