package fetcher

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"recibo/setting"
)

// The contexts of Fetcher's derived keys (HKDF-SHA256, RFC 5869, without salt).
const (
	externalContext = "fetcher-external-hmac-v1"
	storageContext  = "fetcher-storage-encryption-v1"
)

const (
	keySize       = 32
	minMasterSize = 32
)

// DeriveKeys derives the two keys that a consumer needs from Fetcher's APP_ENC_KEY: that of signatures and that of
// result objects. The master key opens database credentials too: it is needed here and never at run time. Errors say
// what is wrong with it and quote nothing of it.
func DeriveKeys(masterBase64 string) (external, storage [32]byte, err error) {
	master, err := decodeMaster(masterBase64)
	if err != nil {
		return external, storage, fmt.Errorf("master key: %w", err)
	}
	defer clear(master)
	for _, derived := range []struct {
		into    *[32]byte
		context string
	}{{&external, externalContext}, {&storage, storageContext}} {
		key, err := hkdf.Key(sha256.New, master, nil, derived.context, keySize)
		if err != nil {
			return [32]byte{}, [32]byte{}, fmt.Errorf("derive %s: %w", derived.context, err)
		}
		copy(derived.into[:], key)
		clear(key)
	}
	return external, storage, nil
}

// decodeMaster reads padded standard base64. All bytes count, however many there are.
func decodeMaster(text string) ([]byte, error) {
	switch {
	case text == "":
		return nil, errors.New("missing")
	case strings.ContainsAny(text, " \t\r\n"): // the decoder would overlook line breaks
		return nil, errors.New("holds white space or line breaks")
	case strings.ContainsAny(text, "-_"):
		return nil, errors.New("is not standard base64: - and _ are of the URL alphabet")
	case len(text)%4 != 0:
		return nil, errors.New("is not padded base64: its length is no multiple of four")
	}
	master, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, errors.New("is not standard base64") // the decoder's error tells where, which is nearly quoting
	}
	if len(master) < minMasterSize {
		return nil, fmt.Errorf("holds %d bytes; %d or more are needed", len(master), minMasterSize)
	}
	return master, nil
}

// Key is a derived key. It never shows itself; the zero Key is no key. The bytes are in a closure, since fmt looks into
// structs, and for some verbs behind pointers, without asking fields how they want to be shown.
type Key struct{ reveal func() []byte }

// ParseKey reads the 64 hex digits of a derived key. Errors quote nothing of them.
func ParseKey(text string) (Key, error) {
	if len(text) != hex.EncodedLen(keySize) {
		return Key{}, fmt.Errorf("must be %d hex digits, is %d characters long", hex.EncodedLen(keySize), len(text))
	}
	bytes, err := hex.DecodeString(text)
	if err != nil {
		return Key{}, errors.New("holds characters that are no hex digits")
	}
	return Key{func() []byte { return bytes }}, nil
}

// String hides the key.
func (k Key) String() string {
	if k.reveal == nil {
		return ""
	}
	return setting.Hidden
}

// GoString hides the key from %#v.
func (k Key) GoString() string { return "fetcher.Key(" + k.String() + ")" }

// Format hides the key from every verb, %x included.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(k.String())) }

// LogValue hides the key from log/slog.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalText hides the key from encoders.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// keyring is the keys of one setting. They are read again when their file changes; while what it holds can't be used,
// the last good ones stay in force.
type keyring struct {
	key     string // in the configuration
	secrets []setting.Secret

	mu   sync.Mutex
	keys []Key
}

func newKeyring(key string, secrets []setting.Secret) (*keyring, error) {
	r := &keyring{key: key, secrets: secrets}
	_, err := r.read()
	return r, err
}

// now returns the keys in force.
func (r *keyring) now() []Key {
	keys, _ := r.read()
	return keys
}

func (r *keyring) empty() bool { return len(r.now()) == 0 }

// origin names the file that all keys are from.
func (r *keyring) origin() string {
	first := r.secrets[0].Origin()
	if first == "" || slices.ContainsFunc(r.secrets, func(s setting.Secret) bool { return s.Origin() != first }) {
		return ""
	}
	return " of " + first
}

// trouble says why the file of the keys can't be used now, so that older ones are in force.
func (r *keyring) trouble() error {
	for _, s := range r.secrets {
		if err := s.Check(); err != nil {
			return fmt.Errorf("%s: %w", r.key, err)
		}
	}
	_, err := r.read()
	return err
}

// note is for what no key fits: that may be because older ones are in force.
func (r *keyring) note() string {
	if err := r.trouble(); err != nil {
		return fmt.Sprintf("; older keys are in force: %v", err)
	}
	return ""
}

func (r *keyring) read() ([]Key, error) {
	texts := setting.RevealAll(r.secrets)
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := make([]Key, len(texts))
	for i, text := range texts {
		key, err := ParseKey(text)
		if err != nil {
			return r.keys, fmt.Errorf("%s: entry %d%s %w", r.key, i+1, r.origin(), err)
		}
		keys[i] = key
	}
	r.keys = keys
	return keys, nil
}
