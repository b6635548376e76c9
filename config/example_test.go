package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const examplePath = "../config.yaml.example"

// The example shows every default, so that with it the agent does what it does without a file.
func TestExampleShowsTheDefaults(t *testing.T) {
	t.Parallel()
	example, err := Load(examplePath, nil)
	if err != nil {
		t.Fatal(err)
	}
	none := Default()
	got := example.Config
	// Paths are relative to the file.
	got.Store.Path, got.Downloads.Dir = none.Store.Path, none.Downloads.Dir
	if !reflect.DeepEqual(got, none) {
		t.Errorf("the example gives\n%+v\nand the defaults are\n%+v", got, none)
	}
}

// What the example shows in comments is right as well, and no key is missing from it.
func TestExampleNamesEveryKey(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	// Comments that are indented and begin in lower case are keys; prose begins with a capital.
	full := regexp.MustCompile(`(?m)^( +)# ( *(- )?[{a-z])`).ReplaceAll(data, []byte("$1$2"))
	root, problems := document("example", full)
	m, c := shape(), Default()
	d := &decoder{model: m, dir: t.TempDir(), origins: make(map[string]Origin), problems: problems}
	d.section(root, m.root, reflect.ValueOf(&c).Elem(), "")
	for _, p := range d.problems {
		if !strings.Contains(p.Text, "no such file") { // of a secret
			t.Error(p)
		}
	}
	var look func(fields []*field, key string, deep bool)
	look = func(fields []*field, key string, deep bool) {
		for _, f := range fields {
			key := join(key, f.name)
			_, named := d.origins[key]
			if _, twin := d.origins[key+fileSuffix]; !named && !(twin && f.isSecret()) {
				t.Errorf("%s is missing", key)
			}
			switch {
			case f.kind == section && deep:
				look(f.fields, key, true)
			case f.kind == sequence && f.elem.kind == section:
				look(f.elem.fields, key+"[0]", false) // what is in it has been shown in its section
			}
		}
	}
	look(m.root.fields, "", true)
}
