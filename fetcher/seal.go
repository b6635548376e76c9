package fetcher

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
)

// The form of a stored result: base64 (standard, padded, one line) of nonce, AES-256-GCM ciphertext and tag, without
// additional data.
const (
	nonceSize = 12
	tagSize   = 16
	sealSize  = nonceSize + tagSize
)

// chunkSize is how much of an object is held undecoded, in bytes. One half is decoded while the other is read; each is a
// multiple of four, so that it decodes by itself.
const chunkSize = 1 << 20

// lineEnd is what may follow the last digit of base64.
const lineEnd = len("\r\n")

// decodedSize is an upper bound of what an object of size bytes decodes to.
func decodedSize(size int64) int64 { return size / 4 * 3 }

// encodedSize is the size of the largest object that can hold a plaintext of size bytes.
func encodedSize(size int64) int64 { return (size+sealSize+2)/3*4 + int64(lineEnd) }

var errEncoding = errors.New("not padded standard base64 on one line")

// decode reads an object into buf, which holds decodedSize bytes of it, and returns what is sealed. Memory is that of
// the decoded bytes and one chunk. Nothing is read from the object any more once it has returned.
func decode(from io.Reader, buf []byte) ([]byte, error) {
	return decodeBy(from, buf, min(chunkSize/2, len(buf)/3*4+8)) // a small object needs no whole half
}

// decodeBy is decode with halves of another size.
func decodeBy(from io.Reader, buf []byte, half int) ([]byte, error) {
	next := readAhead(from, make([]byte, half))
	defer func() { <-next }()
	d := decoding{into: buf}
	var spare []byte
	for {
		p := <-next
		if p.err != nil {
			return nil, p.err
		}
		if !p.last {
			if spare == nil {
				spare = make([]byte, half)
			}
			next, spare = readAhead(from, spare), p.text
		}
		if err := d.take(p.text, p.last); err != nil {
			return nil, err
		}
		if p.last {
			return buf[:d.n], nil
		}
	}
}

// piece is a part of an object as it was read.
type piece struct {
	text []byte
	last bool
	err  error
}

// readAhead reads one piece while its caller does something else. The caller must receive it before the reader goes, and may
// receive again.
func readAhead(from io.Reader, chunk []byte) <-chan piece {
	next := make(chan piece, 1)
	go func() {
		defer close(next)
		text, last, err := fill(from, chunk)
		next <- piece{text, last, err}
	}()
	return next
}

// decoding is how far an object is decoded.
type decoding struct {
	into  []byte
	n     int
	ended bool // there was padding, or a line break that the decoder overlooked
}

// take decodes the next piece. Nothing but an end of line may follow the end.
func (d *decoding) take(text []byte, last bool) error {
	if last || d.ended {
		text = bytes.TrimRight(text, "\r\n")
	}
	if len(text) == 0 {
		return nil
	}
	if d.ended || d.n+len(text)/4*3 > len(d.into) {
		return errEncoding
	}
	wrote, err := base64.StdEncoding.Decode(d.into[d.n:], text)
	// The decoder overlooks line breaks: they show in fewer bytes than the text stands for. Padding takes two at most.
	short := len(text)/4*3 - wrote
	if err != nil || len(text)%4 != 0 || short > 2 {
		return errEncoding
	}
	d.n, d.ended = d.n+wrote, short > 0
	return nil
}

// fill reads until the chunk is full or the reader has come to its end. It is not io.ReadFull, which gives a body that broke
// off and one that ended the same name.
func fill(from io.Reader, chunk []byte) (text []byte, last bool, err error) {
	n := 0
	for n < len(chunk) && err == nil {
		var got int
		got, err = from.Read(chunk[n:])
		n += got
	}
	if err == io.EOF {
		return chunk[:n], true, nil
	}
	return chunk[:n], false, err
}

// open decrypts in place: plaintext and ciphertext share their memory. On failure the sealed bytes are gone, since
// crypto/cipher wipes what it has decrypted before it saw the tag.
func open(key Key, sealed []byte) ([]byte, error) {
	if len(sealed) < sealSize {
		return nil, fmt.Errorf("%d bytes are fewer than a nonce and a tag", len(sealed))
	}
	block, err := aes.NewCipher(key.reveal())
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	nonce, ciphertext := sealed[:nonceSize], sealed[nonceSize:]
	return gcm.Open(ciphertext[:0], nonce, ciphertext, nil)
}

// likeliestFirst orders keys by whether the first bytes they decrypt look like the JSON that every result is. That
// proves nothing, and it saves reading an object once for each key while keys are rotated: a failed open destroys it.
func likeliestFirst(keys []Key, sealed []byte) []Key {
	if len(keys) < 2 || len(sealed) < sealSize {
		return keys
	}
	looks := func(k Key) int {
		if start := firstBytes(k, sealed); bytes.HasPrefix(start, []byte("{\n")) || bytes.HasPrefix(start, []byte("{}")) {
			return 0
		}
		return 1
	}
	ordered := slices.Clone(keys)
	slices.SortStableFunc(ordered, func(a, b Key) int { return looks(a) - looks(b) })
	return ordered
}

// firstBytes decrypts up to one block. GCM encrypts in counter mode; with a nonce of 12 bytes the first block has the
// counter 2 (NIST SP 800-38D §7.1).
func firstBytes(key Key, sealed []byte) []byte {
	block, err := aes.NewCipher(key.reveal())
	if err != nil {
		return nil
	}
	counter := [aes.BlockSize]byte{aes.BlockSize - 1: 2}
	copy(counter[:], sealed[:nonceSize])
	start := make([]byte, min(len(sealed)-sealSize, aes.BlockSize))
	cipher.NewCTR(block, counter[:]).XORKeyStream(start, sealed[nonceSize:nonceSize+len(start)])
	return start
}

// sameHMAC compares the plaintext's HMAC with the announced one, in constant time, under each key.
func sameHMAC(keys []Key, plaintext []byte, announced string) bool {
	want, err := hex.DecodeString(announced)
	if err != nil {
		return false
	}
	for _, key := range keys {
		mac := hmac.New(sha256.New, key.reveal())
		mac.Write(plaintext)
		if hmac.Equal(mac.Sum(nil), want) {
			return true
		}
	}
	return false
}
