package store

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Query selects receipts. The zero Query selects all.
type Query struct {
	States []State           // any of these; none: all
	Kind   Kind              // empty: both
	Since  time.Time         // changed at or after
	Meta   map[string]string // metadata that equals: top-level key or dotted path; strings, or numbers and bools as JSON writes them
	Limit  int               // rows of a page, at most 256; 0: 256
	After  string            // what List returned with the page before
}

// mostScanned bounds the rows that one call of List looks at, so that a filter that matches little does not keep a
// transaction open (law 9).
const mostScanned = 2048

// List returns a page of receipts, those changed last first, and a cursor for the next page, empty at the end. A page may
// be short, or empty, and still have a cursor. A receipt that changes while pages are read moves to the front and is then
// not seen again. A cursor that List did not return is ErrInvalid. With a *DamagedError that names a row, the other rows
// of the page are returned, with the cursor.
func (s *Store) List(ctx context.Context, q Query) (rows []*Receipt, after string, err error) {
	if q.Limit <= 0 {
		q.Limit = pageRows
	}
	before, err := parseCursor(q.After)
	if err != nil {
		return nil, "", err
	}
	err = s.view(ctx, func(r *reader) error {
		p := newPage(r, q.Limit)
		m := newMerge(r, q.States, before)
		last := p.scan(m, q)
		rows = p.rows
		if last != nil {
			after = base64.RawURLEncoding.EncodeToString(last)
		}
		return p.damage()
	})
	return rows, after, err
}

// scan fills the page and returns where it stopped, nil at the end.
func (p *receiptPage) scan(m *merge, q Query) (last []byte) {
	oldest := uint64(0)
	if !q.Since.IsZero() {
		oldest = nanos(q.Since)
	}
	for range mostScanned {
		position := m.next()
		if position == nil {
			return nil
		}
		at, key, err := splitTimed(position, 0)
		if err != nil || len(key) == 0 {
			p.damaged = append(p.damaged, p.r.rowError(stateBucket, fmt.Sprintf("%x", position), err))
			continue
		}
		if at < oldest {
			return nil
		}
		last = bytes.Clone(position)
		if q.Kind != "" && key[0] != kindByte(q.Kind) {
			continue
		}
		if receipt := p.read(key); receipt != nil && matches(receipt.Metadata, q.Meta) {
			p.rows = append(p.rows, receipt)
		}
		if !p.room() {
			break
		}
	}
	if m.peek() == nil {
		return nil
	}
	return last
}

// merge walks the index of several states as if it were one, newest first. A position is an index key without its state.
type merge struct{ heads []head }

type head struct {
	c        *bolt.Cursor
	state    byte
	position []byte // nil: the state is exhausted
}

// newMerge starts before a position; nil starts with the newest.
func newMerge(r *reader, states []State, before []byte) *merge {
	if len(states) == 0 {
		states = States[:]
	}
	m := new(merge)
	for i, s := range states {
		if stateByte(s) == 0 || slices.Contains(states[:i], s) {
			continue
		}
		h := head{c: r.cursor(stateBucket), state: stateByte(s)}
		if before == nil {
			h.set(lastOf(h.c, []byte{h.state}))
		} else if k, _ := h.c.Seek(append([]byte{h.state}, before...)); k == nil {
			k, _ = h.c.Last()
			h.set(k)
		} else {
			k, _ = h.c.Prev()
			h.set(k)
		}
		m.heads = append(m.heads, h)
	}
	return m
}

func (h *head) set(key []byte) {
	h.position = nil
	if len(key) > 1 && key[0] == h.state {
		h.position = key[1:]
	}
}

// peek returns the head with the newest position, nil when all are exhausted.
func (m *merge) peek() *head {
	var newest *head
	for i := range m.heads {
		h := &m.heads[i]
		if h.position != nil && (newest == nil || bytes.Compare(h.position, newest.position) > 0) {
			newest = h
		}
	}
	return newest
}

func (m *merge) next() []byte {
	h := m.peek()
	if h == nil {
		return nil
	}
	position := h.position
	k, _ := h.c.Prev()
	h.set(k)
	return position
}

func parseCursor(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	position, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(position) < 8+1+minID || kindOf(position[8]) == "" {
		return nil, fmt.Errorf("%w cursor", ErrInvalid)
	}
	return position, nil
}

// matches reports whether metadata has every wanted value.
func matches(metadata json.RawMessage, want map[string]string) bool {
	for path, value := range want {
		have, ok := lookup(metadata, path)
		if !ok || have != value {
			return false
		}
	}
	return true
}

// lookup finds a scalar: under the whole path as a key first, since a key may contain dots, then step by step.
func lookup(data json.RawMessage, path string) (string, bool) {
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil {
		return "", false
	}
	if value, ok := object[path]; ok {
		return scalar(value)
	}
	for i := range len(path) {
		if path[i] != '.' {
			continue
		}
		if inner, ok := object[path[:i]]; ok {
			if value, ok := lookup(inner, path[i+1:]); ok {
				return value, true
			}
		}
	}
	return "", false
}

func scalar(value json.RawMessage) (string, bool) {
	text := strings.TrimSpace(string(value))
	switch {
	case text == "" || text[0] == '{' || text[0] == '[':
		return "", false
	case text[0] != '"':
		return text, true
	}
	var s string
	if json.Unmarshal(value, &s) != nil {
		return "", false
	}
	return s, true
}
