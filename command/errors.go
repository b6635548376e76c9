package command

import (
	"context"
	"errors"
	"fmt"

	"recibo/agent"
	"recibo/console"
	"recibo/downloads"
	"recibo/hub"
	"recibo/rest"
	"recibo/store"
)

// Exit codes, documented in --help.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitOwned       = 3
	exitUnreachable = 4
	exitDamaged     = 5
)

// failure is an error with its exit code and what to do about it.
type failure struct {
	code  int
	err   error
	hints []string
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func (f *failure) with(hint string) *failure {
	f.hints = append(f.hints, hint)
	return f
}

func usage(format string, args ...any) *failure {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// silent ends with a code after the command has said everything itself.
func silent(code int) error {
	if code == exitDone {
		return nil
	}
	return &failure{code: code, err: errSilent}
}

// report prints an error with its hints and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitDone
	}
	f := classify(err)
	if !errors.Is(f.err, errSilent) {
		a.tell("recibo: %s", f.err)
		for _, h := range f.hints {
			a.tell("hint: %s", h)
		}
	}
	return f.code
}

const takeOverHint = "if the other agent is gone for good, insist with: recibo run --take-over"

// classify is the one place that gives errors their exit codes and hints.
func classify(err error) *failure {
	var (
		f       *failure
		owned   *store.OwnedError
		damaged *store.DamagedError
		newer   *store.NewerError
		foreign *downloads.ForeignOwnerError
		durable *hub.ForeignOwnerError
		folder  *downloads.Error
		call    *console.Error
		request *rest.Error
	)
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &call):
		return classifyCall(call)
	case errors.As(err, &owned):
		return &failure{exitOwned, err, []string{"one agent per ledger: stop that process, or wait until it answers"}}
	case errors.Is(err, downloads.ErrInUse):
		return &failure{exitOwned, err, []string{"one agent per folder: stop the other, which has a copy of this ledger, or use another folder"}}
	case errors.As(err, &foreign), errors.As(err, &durable):
		return &failure{exitOwned, err, []string{takeOverHint}}
	case errors.As(err, &damaged):
		return &failure{exitDamaged, err, []string{
			"the file was left alone; put a backup in place with: recibo restore FILE",
			"without a backup, move the ledger away and start again: recibo run --take-over, then recibo verify --adopt",
		}}
	case errors.As(err, &newer):
		return &failure{exitDamaged, err, []string{"run the newer recibo that wrote it"}}
	case errors.Is(err, store.ErrNetworkFS):
		return &failure{exitUsage, err, []string{"put store.path on a local disk"}}
	case errors.As(err, &folder):
		return &failure{exitUnreachable, err, []string{folder.Remedy}}
	case errors.Is(err, agent.ErrUnreachable), errors.As(err, &request) && request.Service():
		return &failure{exitUnreachable, err, []string{"recibo check says what is wrong"}}
	case errors.Is(err, context.Canceled):
		return &failure{exitFailed, errors.New("stopped before it was done; what was asked for stays due"), nil}
	}
	return &failure{exitFailed, err, nil}
}

func classifyCall(e *console.Error) *failure {
	f := &failure{exitFailed, e, nil}
	if e.Hint != "" {
		f.hints = []string{e.Hint}
	}
	switch e.Code {
	case console.Usage:
		f.code = exitUsage
	case console.Unreachable:
		f.code = exitUnreachable
	case console.Damaged:
		f.code = exitDamaged
	case console.Busy, console.Foreign:
		f.code = exitOwned
	}
	return f
}
