package fetcher

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"recibo/hub"
	"recibo/setting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// vectors are what a running Fetcher 2.0.2 wrote.
type vectors struct {
	Events []vector
	Keys   derived
	Long   derived `json:"keysLongMaster"`
	Legacy struct {
		Body, Exchange, RoutingKey, Signature string
		Timestamp                             int64
	}
	Result struct {
		HMAC, ObjectKey, Plaintext, StoredObject string
		SizeBytes, RowCount                      int64
	}
}

type vector struct {
	Name, Exchange, RoutingKey, TenantID, JobID, Body, CEID, Note string
	StringHeaders, ByteArrayHeaders                               map[string]string
	Valid                                                         bool
}

type derived struct {
	MasterKeyBase64, ExternalHMACKeyHex, StorageEncryptionKeyHex, InternalHMACKeyHex string
}

func load(t testing.TB) vectors {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Events) != 11 {
		t.Fatalf("%d events", len(v.Events))
	}
	return v
}

func (v vector) message() hub.Message {
	m := hub.Message{Headers: map[string][]string{}, Body: []byte(v.Body), Transport: "amqp", Origin: "recibo.jobs 7"}
	for _, headers := range []map[string]string{v.StringHeaders, v.ByteArrayHeaders} {
		for name, value := range headers {
			m.Headers[name] = []string{value}
		}
	}
	return m
}

func (v vector) route() Route { return Route{v.Exchange, v.RoutingKey} }

// The keys that tests sign and seal with, apart from those of the vectors.
const (
	keyA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	keyB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	keyC = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
)

func secrets(values ...string) []setting.Secret {
	var list []setting.Secret
	for _, value := range values {
		list = append(list, setting.NewSecret(value))
	}
	return list
}

const (
	jobID  = "0197a1b2-c3d4-7e5f-8a6b-9c0d1e2f3a4b"
	signed = 1782302400 // when the vectors were signed
)

func atSigning() time.Time { return time.Unix(signed, 0) }

func macOf(key, text string) string {
	bytes, err := hex.DecodeString(key)
	if err != nil {
		panic(err)
	}
	mac := hmac.New(sha256.New, bytes)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// seal writes a result the way Fetcher does.
func seal(t testing.TB, key string, plaintext []byte) []byte {
	t.Helper()
	bytes, err := hex.DecodeString(key)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(bytes)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := []byte("twelve bytes")
	sealed := gcm.Seal(append(make([]byte, 0, sealSize+len(plaintext)), nonce...), nonce, plaintext, nil)
	return base64.StdEncoding.AppendEncode(nil, sealed)
}

func mustKey(t testing.TB, text string) Key {
	t.Helper()
	key, err := ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// holds reports whether every part is in text.
func holds(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// writeFile replaces a file the way a rotation does: another inode under the same name.
func writeFile(t testing.TB, file, content string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
