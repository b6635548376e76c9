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

func decodeReceipt(data []byte) (*Receipt, error) {
	r := new(Receipt)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	if kindByte(r.Kind) == 0 || stateByte(r.State) == 0 || r.ID == "" {
		return nil, errors.New("not a receipt")
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

	id    string // as upstream wrote it
	shelf uint64 // where the shelf index has it
}

// eventLayout is the first byte of an event record. There is one record per event, so they are kept small.
const eventLayout = 1

func encodeEvent(e *EventRecord) []byte {
	texts := [...]string{e.id, e.Name, e.Receipt.ID, e.Transport, e.Origin, e.Source}
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
	for _, s := range []*string{&e.id, &e.Name, &e.Receipt.ID, &e.Transport, &e.Origin, &e.Source} {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return nil, errors.New("the event record ends early")
		}
		*s, b = string(b[used:used+int(n)]), b[used+int(n):]
	}
	return e, nil
}
