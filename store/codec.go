package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"
)

// encodeJSON writes a row. HTML is not escaped: upstream's metadata stays as it was written.
func encodeJSON(v any) ([]byte, error) {
	const usual = 1024 // bytes, of a receipt
	buf := bytes.NewBuffer(make([]byte, 0, usual))
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// receiptRow is how a receipt is written: its fields, with the times that every receipt has as plain numbers. Those are
// most of what there is to encode, and the order of the indexes is made of the same numbers.
type receiptRow struct {
	*Receipt
	Due      stamp      `json:"due,omitempty"`
	Admitted stamp      `json:"admitted,omitempty"`
	Created  stamp      `json:"created"`
	Updated  stamp      `json:"updated"`
	Timeline []stampRow `json:"timeline,omitempty"`
}

type stampRow struct {
	At   stamp  `json:"at"`
	What string `json:"what"`
}

// stamp is a time in nanoseconds since 1970, 0 for the zero time.
type stamp uint64

func stampOf(t time.Time) stamp {
	if t.IsZero() {
		return 0
	}
	return stamp(nanos(t))
}

func (s stamp) time() time.Time {
	if s == 0 {
		return time.Time{}
	}
	return timeOf(uint64(s))
}

func encodeReceipt(r *Receipt) ([]byte, error) {
	row := receiptRow{
		Receipt: r, Due: stampOf(r.Due), Admitted: stampOf(r.Admitted), Created: stampOf(r.Created), Updated: stampOf(r.Updated),
		Timeline: make([]stampRow, len(r.Timeline)),
	}
	for i, e := range r.Timeline {
		row.Timeline[i] = stampRow{stampOf(e.At), e.What}
	}
	return encodeJSON(row)
}

func decodeReceipt(data []byte) (*Receipt, error) {
	row := receiptRow{Receipt: new(Receipt)}
	if err := json.Unmarshal(data, &row); err != nil {
		return nil, err
	}
	r := row.Receipt
	if kindByte(r.Kind) == 0 || stateByte(r.State) == 0 || r.ID == "" {
		return nil, errors.New("not a receipt")
	}
	r.Due, r.Admitted, r.Created, r.Updated = row.Due.time(), row.Admitted.time(), row.Created.time(), row.Updated.time()
	for _, e := range row.Timeline {
		r.Timeline = append(r.Timeline, Entry{e.At.time(), e.What})
	}
	return r, nil
}

// entryRow is how a quarantine entry is written.
type entryRow struct {
	*Quarantined
	Digest []byte `json:"digest"`
}

func decodeQuarantined(data []byte) (*Quarantined, error) {
	row := entryRow{Quarantined: new(Quarantined)}
	if err := json.Unmarshal(data, &row); err != nil {
		return nil, err
	}
	row.sum = row.Digest
	return row.Quarantined, nil
}

// EventRecord is what is kept of an admitted event, to know it again.
type EventRecord struct {
	Name      string    `json:"name"`
	Receipt   Key       `json:"receipt"`
	Transport string    `json:"transport"`
	Origin    string    `json:"origin"`
	Source    string    `json:"source"`
	At        time.Time `json:"at"` // of its admission

	id     string // as upstream wrote it
	digest string // of its body, where that is what its receipt is settled from; empty otherwise
	shelf  uint64 // where the shelf index has it
}

// eventLayout is the first byte of an event record. There is one record per event, so they are kept small.
const eventLayout = 1

func encodeEvent(e *EventRecord) []byte {
	texts := [...]string{e.id, e.Name, e.Receipt.ID, e.Transport, e.Origin, e.Source, e.digest}
	size := 2 + 8 + 8
	for _, s := range texts {
		size += binary.MaxVarintLen32 + len(s)
	}
	b := append(make([]byte, 0, size), eventLayout, kindByte(e.Receipt.Kind))
	b = binary.BigEndian.AppendUint64(b, nanos(e.At))
	b = binary.BigEndian.AppendUint64(b, e.shelf)
	for _, s := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

func decodeEvent(b []byte) (*EventRecord, error) {
	if len(b) < 18 || b[0] != eventLayout || kindOf(b[1]) == "" {
		return nil, errors.New("not an event record")
	}
	e := &EventRecord{At: timeOf(binary.BigEndian.Uint64(b[2:])), shelf: binary.BigEndian.Uint64(b[10:])}
	e.Receipt.Kind = kindOf(b[1])
	b = b[18:]
	for _, s := range []*string{&e.id, &e.Name, &e.Receipt.ID, &e.Transport, &e.Origin, &e.Source, &e.digest} {
		if len(b) == 0 && s == &e.digest {
			break // written before there were digests
		}
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return nil, errors.New("the event record ends early")
		}
		*s, b = string(b[used:used+int(n)]), b[used+int(n):]
	}
	return e, nil
}
