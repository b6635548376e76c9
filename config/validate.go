package config

import (
	"reflect"
	"slices"
	"strings"
)

// validate asks a section whether its values can work together. Each line of its error is put at the key it begins
// with, if it begins with one (`workers: 0 is ...` or `agent.workers: ...`), otherwise at the section. What it says about
// a value that was never read is left out, and what it says twice.
func (d *decoder) validate(f *field, v reflect.Value) {
	if f.kind != section || f.pointer && v.IsNil() {
		return
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
	unread := d.unread()
	for line := range strings.SplitSeq(err.Error(), "\n") {
		key, rest := d.subject(f, line)
		p := Problem{Position: d.nearestPosition(key), Key: key, Text: rest}
		if slices.ContainsFunc(unread, func(other string) bool { return within(key, other) || within(other, key) }) ||
			slices.Contains(d.problems, p) {
			continue
		}
		d.problems = append(d.problems, p)
	}
}

// unread lists the keys whose values were not read: those with a problem, and those that an unknown key was meant to be.
func (d *decoder) unread() []string {
	keys := slices.Clone(d.meant)
	for _, p := range d.problems {
		keys = append(keys, p.Key)
		if secret, isFile := strings.CutSuffix(p.Key, fileSuffix); isFile {
			keys = append(keys, secret)
		}
	}
	return keys
}

// within reports whether key is section or something in it.
func within(key, section string) bool {
	rest, ok := strings.CutPrefix(key, section)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
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
