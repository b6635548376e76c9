// Package setting holds the kinds of value that sections of the configuration share: secrets, durations, sizes and TLS
// material.
// A secret never shows itself through fmt, log/slog or encoding/json, and one kept in a file is read again when that
// file changes, with the last good value staying in force while it can't be read.
package setting

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// Hidden is what stands wherever a secret would have been shown.
const Hidden = "[hidden]"

var errNoValue = errors.New("the file holds no value")

// Secret is a value that must not be shown. The zero Secret is unset. Copies share what was read from a file.
type Secret struct{ s *secret }

type secret struct {
	file string      // empty: value is fixed
	list *secretList // not nil: value is this line of a file that holds several
	line int

	mu    sync.Mutex
	value hidden
	stamp fileStamp
}

// hidden keeps a value behind a function: fmt calls no methods of what stands in unexported fields of others, and would
// print it from anything else.
type hidden func() string

func hide(value string) hidden { return func() string { return value } }

func (h hidden) reveal() string {
	if h == nil {
		return ""
	}
	return h()
}

// fileStamp tells whether a file may have changed. Size and inode are part of it because a rotation by rename can keep
// the modification time.
type fileStamp struct {
	modified time.Time
	size     int64
	inode    uint64
}

// NewSecret returns a fixed secret; an empty value gives the unset Secret.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{&secret{value: hide(value)}}
}

// SecretFromFile returns a secret that is read from file now and again whenever the file changes. White space around
// the value is not part of it.
func SecretFromFile(file string) (Secret, error) {
	s := &secret{file: file}
	if _, err := s.read(); err != nil {
		return Secret{}, err
	}
	return Secret{s}, nil
}

// IsSet reports whether there is a value.
func (s Secret) IsSet() bool { return s.s != nil }

// Reveal returns the value in force. It never fails: a file that has become unreadable leaves the last good value.
func (s Secret) Reveal() string {
	if s.s == nil {
		return ""
	}
	value, _ := s.s.read()
	return value
}

// Check reads the secret's file, if it has one, and says why it can't be read.
func (s Secret) Check() error {
	if s.s == nil {
		return nil
	}
	_, err := s.s.read()
	return err
}

// Origin is the file the secret is read from, empty for a fixed one.
func (s Secret) Origin() string {
	if s.s == nil {
		return ""
	}
	if s.s.list != nil {
		return s.s.list.file
	}
	return s.s.file
}

func (s *secret) read() (string, error) {
	if s.list != nil {
		return s.readLine()
	}
	if s.file == "" {
		return s.value.reveal(), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.file)
	if err != nil {
		return s.value.reveal(), err
	}
	stamp := stampOf(info)
	if stamp == s.stamp {
		return s.value.reveal(), nil
	}
	data, err := os.ReadFile(s.file)
	if err != nil {
		return s.value.reveal(), err
	}
	value := strings.TrimSpace(string(data))
	if value == "" {
		return s.value.reveal(), fmt.Errorf("%s: %w", s.file, errNoValue)
	}
	s.value, s.stamp = hide(value), stamp
	return value, nil
}

func (s Secret) shown() string {
	if s.s == nil {
		return ""
	}
	return Hidden
}

// String hides the value.
func (s Secret) String() string { return s.shown() }

// GoString hides the value from %#v.
func (s Secret) GoString() string { return "setting.Secret(" + s.shown() + ")" }

// Format hides the value from every verb, %x included.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.shown())) }

// LogValue hides the value from log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.shown()) }

// MarshalText hides the value from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.shown()), nil }
