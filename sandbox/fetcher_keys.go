package sandbox

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"strconv"
)

// The info strings of HKDF-SHA256, by purpose.
const (
	infoExternal = "fetcher-external-hmac-v1"
	infoInternal = "fetcher-internal-hmac-v1"
	infoStorage  = "fetcher-storage-encryption-v1"
)

// The parts of a stored object around its ciphertext, in bytes.
const (
	nonceSize = 12
	tagSize   = 16
)

// fetcherKeys are derived from the master key.
type fetcherKeys struct {
	external []byte // signs events and results
	internal []byte // signs what Fetcher tells itself; a consumer must not take it
	storage  []byte // encrypts results
}

func deriveKeys(master []byte) (keys fetcherKeys, err error) {
	if len(master) < 32 {
		return keys, errors.New("the master key is shorter than 32 bytes")
	}
	for _, key := range []struct {
		into *[]byte
		info string
	}{{&keys.external, infoExternal}, {&keys.internal, infoInternal}, {&keys.storage, infoStorage}} {
		if *key.into, err = hkdf.Key(sha256.New, master, nil, key.info, 32); err != nil {
			return keys, err
		}
	}
	return keys, nil
}

// signedEnvelope is what the signature of an event covers, beside the body.
type signedEnvelope struct {
	t                           int64  // Unix seconds
	version, tenant             string // as the headers tell; no header is an empty tenant
	jobID, exchange, routingKey string
}

// sign signs six lines and the body.
func (e signedEnvelope) sign(key, body []byte) string {
	var payload bytes.Buffer
	for _, line := range []string{strconv.FormatInt(e.t, 10), e.version, e.tenant, e.jobID, e.exchange, e.routingKey} {
		payload.WriteString(line)
		payload.WriteByte('\n')
	}
	payload.Write(body)
	return hexMAC(key, payload.Bytes())
}

// signLegacy signs as Fetcher 1.x did.
func signLegacy(key []byte, t int64, body []byte) string {
	return hexMAC(key, append(strconv.AppendInt(nil, t, 10), append([]byte("."), body...)...))
}

func hexMAC(key, payload []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(payload)
	return hex.EncodeToString(mac.Sum(nil))
}

// seal encrypts a result under a new nonce: nonce, ciphertext and tag in one piece. The plaintext is encrypted where it
// lies, so that a large one is held once.
func seal(key []byte, content *jobContent) []byte {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails
	sealed := bytes.NewBuffer(make([]byte, 0, nonceSize+int(content.size)+tagSize))
	sealed.Write(nonce)
	_ = content.writeTo(sealed) // a buffer takes everything
	return sealInPlace(key, sealed.Bytes())
}

// sealInPlace encrypts what follows the nonce and appends the tag.
func sealInPlace(key, data []byte) []byte {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // a derived key has 32 bytes
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has the block size of GCM
	}
	return gcm.Seal(data[:nonceSize], data[:nonceSize], data[nonceSize:], nil)
}

// base64Reader reads bytes in standard base64 on one line.
type base64Reader struct {
	left    []byte
	pending []byte // encoded and not yet read
	chunk   []byte
}

func newBase64Reader(data []byte) *base64Reader {
	return &base64Reader{left: data, chunk: make([]byte, 4*8192)}
}

// Read implements io.Reader.
func (r *base64Reader) Read(p []byte) (int, error) {
	if len(r.pending) == 0 {
		if len(r.left) == 0 {
			return 0, io.EOF
		}
		part := r.left[:min(len(r.left), 3*8192)]
		r.left = r.left[len(part):]
		r.pending = r.chunk[:base64.StdEncoding.EncodedLen(len(part))]
		base64.StdEncoding.Encode(r.pending, part)
	}
	n := copy(p, r.pending)
	r.pending = r.pending[n:]
	return n, nil
}

// drawn is 32 bytes that follow from a seed and a purpose.
func drawn(seed uint64, purpose string) []byte {
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, seed), purpose...))
	return sum[:]
}
