package config

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// FuzzLoad looks for files that break the reader, and for files that are taken but can't be printed and read again.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"", "door: {url: x}", "kitchen:\n  cooks: 4\n  poll_every: 5m\n", "garden:\n", "a: [1, {b: c}]", "? a\n: b", "- - a", "a: &b c\nd: *b",
		"door:\n  keys:\n    - id: a\n      secret: ${T:-x}\n  token_file: ${F:-}\n", "kitchen: {mode: 0640, backoff: 1s..2s, start_at: 2026-01-01}",
		"a: |\n  b\n", "'a': \"\\u00e9\"", "%YAML 1.2\n---\n", "<<: x", "!!map {a: 1}", "\ufeffa: 1", "a:\n\tb", "door: {subjects: [a, \"b\"]}",
	} {
		f.Add(seed, "1")
	}
	f.Fuzz(func(t *testing.T, file, variable string) {
		env := environment{"T": variable, "RECIBO_KITCHEN_MODE": variable, "RECIBO_DOOR_SUBJECTS": variable}
		h := newHouse()
		m := houseModel()
		origins, _, err := m.load(source{file: "house.yaml", dir: "/nowhere", data: []byte(file), env: env}, &h)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a word")
			}
			return
		}
		var out bytes.Buffer
		if err := m.print(&out, reflect.ValueOf(h), origins); err != nil {
			t.Fatal(err)
		}
		if len(secretsOf(m.root, reflect.ValueOf(h))) > 0 || strings.Contains(out.String(), "hidden]") {
			return
		}
		again := newHouse()
		if _, _, err := m.load(source{file: "again.yaml", dir: "/nowhere", data: out.Bytes()}, &again); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		var second bytes.Buffer
		if err := m.print(&second, reflect.ValueOf(again), origins); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), second.Bytes()) {
			t.Errorf("printed\n%s\nbecame\n%s", &out, &second)
		}
	})
}
