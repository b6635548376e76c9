package fetcher

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"recibo/setting"
)

func TestKeysAreDerivedAsFetcherDoes(t *testing.T) {
	t.Parallel()
	v := load(t)
	for name, d := range map[string]derived{"32 bytes": v.Keys, "48 bytes": v.Long} {
		external, storage, err := DeriveKeys(d.MasterKeyBase64)
		if err != nil || hex.EncodeToString(external[:]) != d.ExternalHMACKeyHex ||
			hex.EncodeToString(storage[:]) != d.StorageEncryptionKeyHex {
			t.Errorf("%s: got other keys: %v", name, err)
		}
	}
}

func TestMasterKeysThatAreRefusedAreNotQuoted(t *testing.T) {
	t.Parallel()
	raw := bytes.Repeat([]byte{0xfb, 0xff, 0x41}, 11)
	good := base64.StdEncoding.EncodeToString(raw)
	for name, test := range map[string]struct{ key, want string }{
		"nothing":       {"", "missing"},
		"URL alphabet":  {base64.URLEncoding.EncodeToString(raw), "URL alphabet"},
		"no padding":    {base64.RawStdEncoding.EncodeToString(raw[:32]), "not padded"},
		"short":         {base64.StdEncoding.EncodeToString(raw[:31]), "holds 31 bytes; 32 or more"},
		"line break":    {good + "\n", "white space"},
		"break inside":  {good[:20] + "\n" + good[20:], "white space"},
		"other letters": {good[:20] + "!" + good[21:], "not standard base64"},
		"loose bits":    {base64.StdEncoding.EncodeToString(raw[:32])[:42] + "B=", "not standard base64"},
	} {
		external, storage, err := DeriveKeys(test.key)
		if err == nil || !strings.Contains(err.Error(), test.want) || external != [32]byte{} || storage != [32]byte{} {
			t.Errorf("%s: got %v", name, err)
		} else if len(test.key) > 8 && strings.Contains(err.Error(), test.key[:8]) {
			t.Errorf("%s: quoted: %v", name, err)
		}
	}
}

func TestAKeyNeverShowsItself(t *testing.T) {
	t.Parallel()
	key := mustKey(t, keyA)
	type inside struct {
		k    Key
		P    *Key
		List []Key
	}
	holder := inside{key, &key, []Key{key}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%z"} {
		fmt.Fprintf(&out, verb+"\n", key)
		fmt.Fprintf(&out, verb+"\n", holder)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "key", key, "holder", holder)
	if err := json.NewEncoder(&out).Encode(holder); err != nil {
		t.Fatal(err)
	}
	for _, shape := range []string{"aaaaaaaa", "AAAAAAAA", "170 170", "\xaa\xaa"} {
		if strings.Contains(out.String(), shape) {
			t.Errorf("shown as %q in %s", shape, &out)
		}
	}
	if !strings.Contains(out.String(), setting.Hidden) || (Key{}).String() != "" {
		t.Error(out.String())
	}
}

func TestKeysThatAreRefusedAreNotQuoted(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "abcdef12", keyA + "a", keyA[:63] + "g", strings.Repeat("é", 32)} {
		_, err := ParseKey(bad)
		if err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
	if _, err := ParseKey(strings.ToUpper(keyA)); err != nil {
		t.Errorf("upper case: %v", err)
	}
}

func TestKeysFollowTheirFileAndTheLastGoodOnesStay(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	put := func(content string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	put(keyA + "\n")
	list, err := setting.SecretsFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ring, err := newKeyring("storage_key", list)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		content string
		want    []string
	}{
		{keyA, []string{keyA}},
		{keyB + "\n" + keyA, []string{keyB, keyA}},
		{keyC + "\nnonsense", []string{keyB, keyA}},
		{"", []string{keyB, keyA}},
		{keyC, []string{keyC}},
	} {
		put(step.content)
		var got []string
		for _, key := range ring.now() {
			got = append(got, hex.EncodeToString(key.reveal()))
		}
		if strings.Join(got, " ") != strings.Join(step.want, " ") {
			t.Errorf("%q: got %q", step.content, got)
		}
	}
}
