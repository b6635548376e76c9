package downloads

import (
	"errors"
	"fmt"
	"syscall"
)

var (
	// ErrGone: what is at the path now is not the folder that was opened, or its owner marker is missing. Most often a
	// share is not mounted. Nothing may be written or concluded until Check, or Reopen, succeeds.
	ErrGone = errors.New("the download folder is not there")
	// ErrNoRoom: the disk or a quota is full, or would be. *NoRoomError matches it too.
	ErrNoRoom = errors.New("no room on the disk")
)

// Error says what is wrong with the folder; Remedy is what a person can do about it.
type Error struct {
	Dir     string
	Problem string
	Remedy  string
	Err     error // the cause, or ErrGone; may be nil
}

func (e *Error) Error() string {
	text := "downloads.dir " + e.Dir + ": " + e.Problem
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// ForeignOwnerError: the folder belongs to the agent of another ledger.
type ForeignOwnerError struct {
	Dir   string
	Owner string // the instance id in the marker
}

func (e *ForeignOwnerError) Error() string {
	return fmt.Sprintf("downloads.dir %s belongs to the ledger %s: one agent per folder", e.Dir, e.Owner)
}

// NameError: a value can't be part of a file name here.
type NameError struct {
	What  string // id, extension, name
	Value string
	Why   string
}

func (e *NameError) Error() string {
	value := e.Value
	if len(value) > 160 {
		value = value[:160]
	}
	return fmt.Sprintf("%s %q can't be used in a file name: %s", e.What, value, e.Why)
}

// TooLargeError: a body exceeds downloads.max_size.
type TooLargeError struct{ Limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("larger than downloads.max_size (%d bytes)", e.Limit)
}

// NoRoomError: a reservation does not fit. All numbers are bytes.
type NoRoomError struct {
	Need    int64
	Free    int64 // free on the disk less what is reserved already; may be negative
	MinFree int64 // downloads.min_free, which stays free
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("%v: need %d bytes, %d are free and not reserved, of which downloads.min_free keeps %d",
		ErrNoRoom, e.Need, e.Free, e.MinFree)
}

// Is makes it match ErrNoRoom.
func (e *NoRoomError) Is(target error) bool { return target == ErrNoRoom }

// OccupiedError: a file that is not ours holds the final name. It was not touched.
type OccupiedError struct{ Name string }

func (e *OccupiedError) Error() string {
	return fmt.Sprintf("%s is held by a file that is not ours; it was not overwritten", e.Name)
}

// NotTheFormatError: a body can't be what was expected.
type NotTheFormatError struct {
	Want  string // the expected extension
	Looks string // what it seems to be, for people
}

func (e *NotTheFormatError) Error() string {
	return fmt.Sprintf("expected %s, but the body looks like %s", e.Want, e.Looks)
}

// full turns a full disk or quota into ErrNoRoom. Some file systems say so only when the file is synced or closed.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	return err
}
