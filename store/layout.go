package store

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// format is the version of everything in this file and in codec.go.
const format = 1

// bucketID names a bucket of the ledger.
type bucketID int

const (
	metaBucket       bucketID = iota // format, instance, counters
	factBucket                       // name -> value
	receiptBucket                    // kind, id -> receipt
	eventBucket                      // feed, id -> event record
	shelfBucket                      // time, event key: when to see whether the event record may go
	dueBucket                        // urgency, time, receipt key
	stateBucket                      // state, time of the last change, receipt key
	intentBucket                     // receipt key
	quarantineBucket                 // id -> entry
	digestBucket                     // digest -> id of the quarantine entry
	closedBucket                     // time, id of a quarantine entry released or dropped then
	bucketCount
)

var bucketNames = [bucketCount]string{
	"meta", "facts", "receipts", "events", "shelf", "due", "states", "intents", "quarantine", "digests", "closed",
}

// Names in the meta bucket.
const (
	formatName   = "format"
	instanceName = "instance"
	createdName  = "created"
	countersName = "counters"
)

// fill is how full a page is left when it splits. Buckets that grow at their end fill their pages; in the others, and
// where values grow after they are written, room for the next change saves splits.
func (b bucketID) fill() float64 {
	switch b {
	case shelfBucket, closedBucket, quarantineBucket, dueBucket:
		return 0.95
	case eventBucket, stateBucket:
		return 0.85
	default:
		return 0.6
	}
}

// Bounds of ids in bytes. bbolt's keys end at 32 KiB; a longer id is the caller's to quarantine.
const (
	minID = 1
	maxID = 1024
)

func (k Key) valid() error {
	if kindByte(k.Kind) == 0 {
		return fmt.Errorf("%w kind %q", ErrInvalid, k.Kind)
	}
	if len(k.ID) < minID || len(k.ID) > maxID {
		return fmt.Errorf("%w id of %d bytes", ErrInvalid, len(k.ID))
	}
	return nil
}

// String shows the key as people write it.
func (k Key) String() string { return string(k.Kind) + " " + k.ID }

func kindByte(k Kind) byte {
	switch k {
	case Report:
		return 'r'
	case Job:
		return 'j'
	}
	return 0
}

func kindOf(b byte) Kind {
	switch b {
	case 'r':
		return Report
	case 'j':
		return Job
	}
	return ""
}

// stateByte is written out, rather than the place in States, so that the order in which states are shown can change.
func stateByte(s State) byte {
	switch s {
	case Expected:
		return 'e'
	case Pending:
		return 'p'
	case Delivered:
		return 'd'
	case Partial:
		return 'a'
	case Failed:
		return 'f'
	case Encrypted:
		return 'n'
	case Parked:
		return 'k'
	}
	return 0
}

func receiptKey(k Key) []byte {
	return append([]byte{kindByte(k.Kind)}, k.ID...)
}

func parseReceiptKey(b []byte) (Key, error) {
	if len(b) < 1+minID || kindOf(b[0]) == "" {
		return Key{}, fmt.Errorf("%x is no receipt key", b)
	}
	return Key{kindOf(b[0]), string(b[1:])}, nil
}

// The feeds: an event's id is unique within one of them.
const (
	Reports = "reports"
	Jobs    = "jobs"
)

func feedByte(feed string) byte {
	switch feed {
	case Reports:
		return 'r'
	case Jobs:
		return 'j'
	}
	return 0
}

// Feed is the feed that makes receipts of this kind.
func (k Kind) Feed() string {
	if k == Job {
		return Jobs
	}
	return Reports
}

func eventKey(feed, id string) []byte {
	return append([]byte{feedByte(feed)}, id...)
}

// releasedKey is the key of ours under which a released conflict is admitted: its own is taken by the earlier event.
func releasedKey(id uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{'q'}, id)
}

// nanos orders times; those that can't be told, up to 1970 and after 2262, count as the nearest that can. It is never 0,
// which stands for the zero time.
func nanos(t time.Time) uint64 {
	switch s := t.Unix(); {
	case s < 0:
		return 1
	case s >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	}
	return uint64(max(t.UnixNano(), 1))
}

func timeOf(n uint64) time.Time { return time.Unix(0, int64(min(n, math.MaxInt64))).UTC() }

// timedKey is a time with what it is about, and in front of it what keeps unlike things apart.
func timedKey(prefix []byte, at uint64, rest []byte) []byte {
	key := make([]byte, 0, len(prefix)+8+len(rest))
	key = binary.BigEndian.AppendUint64(append(key, prefix...), at)
	return append(key, rest...)
}

const (
	urgentFirst byte = 0
	inTurn      byte = 1
)

func dueKey(urgent bool, at time.Time, receipt []byte) []byte {
	lane := inTurn
	if urgent {
		lane = urgentFirst
	}
	return timedKey([]byte{lane}, nanos(at), receipt)
}

func stateKey(s State, updated time.Time, receipt []byte) []byte {
	return timedKey([]byte{stateByte(s)}, nanos(updated), receipt)
}

// splitTimed takes a key of timedKey apart after its prefix.
func splitTimed(key []byte, prefix int) (at uint64, rest []byte, err error) {
	if len(key) < prefix+8 {
		return 0, nil, fmt.Errorf("index key %x is too short", key)
	}
	return binary.BigEndian.Uint64(key[prefix:]), key[prefix+8:], nil
}

func idKey(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }
