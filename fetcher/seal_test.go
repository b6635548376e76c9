package fetcher

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
)

// lengths around everything that a chunk, a group of base64 and a block of AES may end at.
var lengths = []int{0, 1, 2, 3, 15, 16, 17, 28, 29, 30, chunkSize/4*3 - 2, chunkSize/4*3 - 1, chunkSize / 4 * 3, chunkSize/4*3 + 1,
	chunkSize/4*3 + 2, chunkSize, 2 * chunkSize / 4 * 3, 300_000, chunkSize/8*3 - 1, chunkSize / 8 * 3, chunkSize/8*3 + 1}

func TestObjectsOfAnyLengthAreDecoded(t *testing.T) {
	t.Parallel()
	for _, n := range lengths {
		raw := bytes.Repeat([]byte{0xa5, 7, 0xff, 1, 0}, n/5+1)[:n]
		for _, end := range []string{"", "\n", "\r\n"} {
			object := append(base64.StdEncoding.AppendEncode(nil, raw), end...)
			for name, from := range map[string]io.Reader{
				"at once":       bytes.NewReader(object),
				"in halves":     iotest.HalfReader(bytes.NewReader(object)),
				"with its end":  iotest.DataErrReader(bytes.NewReader(object)),
				"byte by byte ": iotest.OneByteReader(bytes.NewReader(object[:min(len(object), 5000)/4*4])),
			} {
				buf := make([]byte, decodedSize(int64(len(object))))
				got, err := decode(from, buf)
				if err != nil || !bytes.HasPrefix(raw, got) || name != "byte by byte " && len(got) != n {
					t.Errorf("%d bytes, end %q, %s: got %d bytes, %v", n, end, name, len(got), err)
				}
			}
		}
	}
}

func TestABodyThatBreaksOffIsNoShortObject(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{io.ErrUnexpectedEOF, errors.New("reset")} {
		for _, n := range []int{0, 4, chunkSize, chunkSize + 4} {
			from := io.MultiReader(bytes.NewReader(bytes.Repeat([]byte("A"), n)), iotest.ErrReader(failure))
			if _, err := decode(from, make([]byte, 2*chunkSize)); err != failure {
				t.Errorf("after %d bytes: %v", n, err)
			}
		}
	}
}

// An object is read ahead, and its body is closed as soon as decode returns.
func TestNothingIsReadOnceDecodingHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := strings.NewReader(strings.Repeat("!", chunkSize/2)), make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			_, err := decode(io.MultiReader(first, &held{until: second}), make([]byte, chunkSize))
			ended <- err
		}()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("the rest is still being read")
		}
		close(second)
		if err := <-ended; err != errEncoding {
			t.Error(err)
		}
	})
}

// held has nothing to read, and lets that be known only then.
type held struct{ until chan struct{} }

func (h *held) Read([]byte) (int, error) {
	<-h.until
	return 0, io.EOF
}

func TestMoreBytesThanTheObjectHadAreRefused(t *testing.T) {
	t.Parallel()
	for _, n := range []int{8, chunkSize, 3 * chunkSize} {
		if _, err := decode(bytes.NewReader(bytes.Repeat([]byte("A"), n)), make([]byte, decodedSize(int64(n))-3)); err != errEncoding {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestNothingFollowsThePadding(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, chunkSize/4*3 - 1, chunkSize/4*3 - 2, chunkSize} {
		object := append(base64.StdEncoding.AppendEncode(nil, make([]byte, n)), "AAAA"...)
		if _, err := decode(bytes.NewReader(object), make([]byte, decodedSize(int64(len(object))))); err != errEncoding {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestTheLargestResultFits(t *testing.T) {
	t.Parallel()
	for _, n := range lengths {
		object := int64(len(seal(t, keyB, make([]byte, n))))
		if object+int64(lineEnd) != encodedSize(int64(n)) {
			t.Errorf("%d bytes: object of %d, taken up to %d", n, object, encodedSize(int64(n)))
		}
	}
}

func TestTheLikeliestKeyIsTriedFirst(t *testing.T) {
	t.Parallel()
	a, b, c := mustKey(t, keyA), mustKey(t, keyB), mustKey(t, keyC)
	sealed := func(text string) []byte {
		raw, err := base64.StdEncoding.DecodeString(string(seal(t, keyB, []byte(text))))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for text, first := range map[string]string{"{\n  \"a\": {}\n}": keyB, "{}": keyB, "[]": keyC, "": keyC, "{": keyC} {
		keys := likeliestFirst([]Key{c, a, b}, sealed(text))
		if len(keys) != 3 || !bytes.Equal(keys[0].reveal(), mustKey(t, first).reveal()) {
			t.Errorf("%q: another key is first", text)
		}
	}
	if keys := likeliestFirst([]Key{c, b}, []byte("short")); !bytes.Equal(keys[0].reveal(), c.reveal()) {
		t.Error("ordered by nothing")
	}
}
