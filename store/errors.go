package store

import (
	"errors"
	"fmt"
)

// Errors that callers decide on.
var (
	// ErrMissing: there is no ledger and Options.Create is not set.
	ErrMissing = errors.New("there is no ledger")
	// ErrNetworkFS: locks and syncs can't be relied upon there.
	ErrNetworkFS = errors.New("the ledger must not lie on a network file system")
	// ErrClosed: the store was closed; the operation was not carried out.
	ErrClosed = errors.New("the ledger is closed")
	// ErrNoRoom: the file system has less than Options.MinFree; nothing was admitted.
	ErrNoRoom = errors.New("too little room on the ledger's file system")
	// ErrNotFound: no such receipt, event or quarantine entry.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable: a commit failed and the ledger is being opened again. Whoever waited for that very commit gets this
	// error too, and for them the outcome is unknown: it may be on disk.
	ErrUnavailable = errors.New("the ledger is being opened again after a failed commit")
	// ErrNotOpen: the quarantine entry was released or dropped before.
	ErrNotOpen = errors.New("the quarantine entry is no longer open")
	// ErrExists: the target of a backup is there already.
	ErrExists = errors.New("already exists")
	// ErrBusy: another backup is running.
	ErrBusy = errors.New("another backup is running")
	// ErrInvalid: the caller's arguments can't be stored, such as an empty id, an unknown state or a foreign cursor.
	ErrInvalid = errors.New("invalid")
)

// DamagedError tells that the ledger, or one row of it, can't be read. The file was left as it is.
//
// Where a page of rows is asked for, one bad row never hides the others: the readable rows and the cursor are returned
// together with a *DamagedError whose Row is set.
type DamagedError struct {
	Path string
	Row  string // what can't be read, such as "receipts report 0197…"; empty: the file as a whole
	Err  error
}

func (e *DamagedError) Error() string {
	if e.Row != "" {
		return fmt.Sprintf("%s: row %q is damaged: %v", e.Path, e.Row, e.Err)
	}
	return fmt.Sprintf("%s: the ledger is damaged: %v", e.Path, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// NewerError tells that a newer recibo wrote the ledger. Nothing was changed.
type NewerError struct {
	Path       string
	Have, Know int // the ledger's format, and the newest one known here
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s: the ledger has format %d, this program knows up to %d: use a newer recibo", e.Path, e.Have, e.Know)
}

// OwnedError tells that another process holds the ledger.
type OwnedError struct {
	Lock string
	PID  int // 0 when the owner has not written it yet
}

func (e *OwnedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is held by another process", e.Lock)
	}
	return fmt.Sprintf("%s is held by process %d", e.Lock, e.PID)
}
