package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"
)

// Admission is one authentic event on its way into the ledger.
type Admission struct {
	Feed      string // Reports or Jobs; an event's id is unique within it
	EventID   string // 1 to 1024 bytes
	EventName string
	Receipt   Key // the report or job that it is about
	Transport string
	Origin    string // where in the transport, such as STREAMING_HUB/42
	Source    string
	Tenant    string

	// Body is what the receipt is settled from, a JSON value: it is kept with the receipt, and an event with the same id and
	// another body is a conflict. Nil for an event that is only a hint.
	Body json.RawMessage
	Mark string // with Body: what else tells events of one id apart

	Headers map[string]string // with Data: what is kept if the event turns out to contradict an earlier one
	Data    []byte

	Quarantine *Quarantined // not nil: keep this instead of admitting; fields left empty are filled from the above
}

// Outcome is what became of an Admission. It is on disk when it is returned.
type Outcome int

// The outcomes.
const (
	Admitted Outcome = iota // new: the event is recorded and its receipt is due
	Repeated                // the same id, name, receipt and body were admitted before; nothing was written
	Kept                    // in quarantine
	Conflict                // the id was admitted for another name, receipt or body: in quarantine, and both receipts are due
)

func (o Outcome) String() string {
	switch o {
	case Admitted:
		return "admitted"
	case Repeated:
		return "repeated"
	case Kept:
		return "kept"
	case Conflict:
		return "conflict"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

// Admit takes a batch in one transaction and returns one outcome per admission, in order. An event's id and the due time
// of its receipt are written together (law 4: an id suppresses a repetition from the commit that makes its receipt due).
// It fails with ErrNoRoom when the file system has less than Options.MinFree. After an error nothing of the batch may be
// acknowledged.
//
// What can't be admitted is quarantined rather than refused, so that one bad event never holds up its batch: an id that is
// empty or too long, a receipt that can't be, or one whose row can't be read.
func (s *Store) Admit(ctx context.Context, batch []Admission) ([]Outcome, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	if err := s.room(); err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, len(batch))
	err := s.submit(ctx, len(batch), func(t *txn) error {
		in := newIntake(t, len(batch))
		for i := range batch {
			outcomes[i] = in.take(&batch[i])
		}
		in.finish()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

// intake is a batch on its way through a transaction. It reads and writes each receipt once.
type intake struct {
	*txn
	rows  map[Key]*row
	order []*row // as the batch has them: ids that grow with time are then written side by side
}

func newIntake(t *txn, n int) *intake {
	return &intake{txn: t, rows: make(map[Key]*row, n), order: make([]*row, 0, n)}
}

func (in *intake) take(a *Admission) Outcome {
	if a.Quarantine != nil {
		in.keep(a.entry(*a.Quarantine))
		return Kept
	}
	if err := a.valid(); err != nil {
		in.keep(a.entry(Quarantined{Reason: err.Error()}))
		return Kept
	}
	key := eventKey(a.Feed, a.EventID)
	if known := in.known(key); known != nil {
		if known.same(a) {
			return Repeated
		}
		in.conflict(a, known)
		return Conflict
	}
	w, err := in.row(a.Receipt)
	if err != nil {
		in.keep(a.entry(Quarantined{Reason: "its receipt can't be read: " + err.Error()}))
		return Kept
	}
	in.admit(a, key, w)
	return Admitted
}

// valid says why the event can't be admitted.
func (a *Admission) valid() error {
	if feedByte(a.Feed) == 0 {
		return fmt.Errorf("%w feed %q", ErrInvalid, a.Feed)
	}
	if len(a.EventID) < minID || len(a.EventID) > maxID {
		return fmt.Errorf("%w event id of %d bytes", ErrInvalid, len(a.EventID))
	}
	if a.Body != nil && !json.Valid(a.Body) {
		return fmt.Errorf("%w body: not JSON", ErrInvalid)
	}
	return a.Receipt.valid()
}

// same reports whether an admission repeats this event.
func (e *EventRecord) same(a *Admission) bool {
	return e.Name == a.EventName && e.Receipt == a.Receipt && e.digest == a.digest()
}

// digest tells the bodies of events apart that have the same id.
func (a *Admission) digest() string {
	if a.Body == nil {
		return ""
	}
	h := sha256.New()
	h.Write(a.Body)
	h.Write([]byte(a.Mark))
	return string(h.Sum(nil)[:16])
}

// known is the event that was admitted under this key before. A record that can't be read suppresses nothing: admitting
// the event once more costs one question to the authority.
func (in *intake) known(key []byte) *EventRecord {
	data := in.get(eventBucket, key)
	if data == nil {
		return nil
	}
	record, err := decodeEvent(data)
	if err != nil {
		in.del(eventBucket, key)
		in.counters.Events--
		return nil
	}
	return record
}

func (in *intake) row(k Key) (*row, error) {
	if w := in.rows[k]; w != nil {
		return w, nil
	}
	w, err := in.load(k)
	if err == nil {
		in.rows[k] = w
		in.order = append(in.order, w)
	}
	return w, err
}

func (in *intake) admit(a *Admission, key []byte, w *row) {
	in.putEvent(key, &EventRecord{
		Name: a.EventName, Receipt: a.Receipt, Transport: a.Transport, Origin: a.Origin, Source: a.Source,
		At: in.now, id: a.EventID, digest: a.digest(), shelf: nanos(in.now),
	})
	in.counters.Events++
	makeDue(w.Receipt, in.now)
	w.Admitted = in.now
	w.EventName = a.EventName
	w.Events = append(w.Events, a.EventID)
	if a.Tenant != "" {
		w.Tenant = a.Tenant
	}
	if a.Source != "" {
		w.Source = a.Source
	}
	if a.Body != nil {
		if w.Announced == nil {
			w.Announced = map[string]json.RawMessage{}
		}
		w.Announced[a.EventName] = a.Body
	}
	w.Note(in.now, fmt.Sprintf("event %s %s by %s (%s)", a.EventName, shorten(a.EventID), a.Transport, a.Origin))
}

// putEvent writes an event record with its place on the shelf, from which prune takes it.
func (t *txn) putEvent(key []byte, e *EventRecord) {
	t.put(eventBucket, key, encodeEvent(e))
	t.put(shelfBucket, timedKey(nil, e.shelf, key), nil)
}

// makeDue gives a receipt a new generation to be settled, which whatever runs for the old one does not cover.
func makeDue(r *Receipt, now time.Time) {
	r.TakeUp(Pending)
	switch r.State {
	case "":
		r.State, r.FoundBy = Pending, "event"
	case Expected, Parked:
		r.State = Pending
	}
	r.Generation++
	r.Due = now
	r.Attempts, r.Asked = 0, 0
}

// conflict keeps an event whose id stands for another one, and has the authority asked about both receipts. The same
// contradiction delivered again changes nothing more.
func (in *intake) conflict(a *Admission, known *EventRecord) {
	reason := fmt.Sprintf("id admitted before as %s of %s, now as %s of %s", known.Name, known.Receipt, a.EventName, a.Receipt)
	if known.Name == a.EventName && known.Receipt == a.Receipt {
		reason = fmt.Sprintf("id admitted before as %s of %s with another body or source", known.Name, known.Receipt)
	}
	if fresh := in.keep(a.entry(Quarantined{Reason: reason})); !fresh {
		return
	}
	both := []Key{a.Receipt, known.Receipt}
	if a.Receipt == known.Receipt {
		both = both[:1]
	}
	for _, k := range both {
		w, err := in.row(k)
		if err != nil {
			continue // reported to whoever reads that receipt; the entry is kept in any case
		}
		makeDue(w.Receipt, in.now)
		w.Contested = a.Feed == Jobs
		w.Note(in.now, "due: "+shorten(a.EventID)+": "+reason)
	}
}

// finish writes the receipts that were touched.
func (in *intake) finish() {
	for _, w := range in.order {
		if err := in.stage(w); err != nil {
			in.fail(err) // not to be had: what was read from a row can be written to it again
			return
		}
		in.save(w)
	}
}

// shorten keeps a line of the timeline readable.
func shorten(id string) string {
	const longest = 64
	if len(id) <= longest {
		return id
	}
	cut := longest
	for cut > 0 && !utf8.RuneStart(id[cut]) {
		cut--
	}
	return id[:cut] + "…"
}
