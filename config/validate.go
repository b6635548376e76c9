package config

import (
	"reflect"
	"strings"
)

// validate asks a section whether its values can work together. Each line of its error is put at the key it begins
// with, if it begins with one (`workers: 0 is ...` or `agent.workers: ...`), otherwise at the section.
func (d *decoder) validate(f *field, v reflect.Value) {
	if f.kind != section || f.pointer && v.IsNil() {
		return
	}
	for _, p := range d.problems {
		if p.Key == f.key || strings.HasPrefix(p.Key, f.key+".") {
			return // it would complain about a value that was never read
		}
	}
	checked, ok := v.Interface().(interface{ Validate() error })
	if !ok {
		checked, ok = v.Addr().Interface().(interface{ Validate() error })
	}
	if !ok {
		return
	}
	err := checked.Validate()
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		key, rest := d.subject(f, line)
		d.problem(d.nearestPosition(key), key, "%s", rest)
	}
}

// subject splits the key off a line of an error.
func (d *decoder) subject(f *field, line string) (key, rest string) {
	name, rest, ok := strings.Cut(line, ": ")
	if !ok {
		return f.key, line
	}
	if name == f.key {
		return f.key, rest
	}
	for _, key := range []string{name, join(f.key, name)} {
		if strings.HasPrefix(key, f.key+".") && d.model.find(key) != nil {
			return key, rest
		}
	}
	return f.key, line
}

// nearestPosition is where a key stands, or the closest section around it that the file or a variable names.
func (d *decoder) nearestPosition(key string) Position {
	for {
		if origin, ok := d.origins[key]; ok {
			return origin.Position
		}
		cut := strings.LastIndexAny(key, ".[")
		if cut < 0 {
			return Position{}
		}
		key = key[:cut]
	}
}
