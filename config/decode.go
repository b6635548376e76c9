package config

import (
	"fmt"
	"path/filepath"
	"reflect"

	"recibo/setting"
)

// Origin is where an effective value came from. The zero Origin is a default.
type Origin struct {
	Position
	Variables  []string // that the value in the file is made of
	SecretFile string   // that holds the secret
}

// decoder fills a struct from nodes. It goes on after a problem, so that all of them are found in one run.
type decoder struct {
	model    *model
	env      environment
	dir      string // relative paths are relative to it
	problems []Problem
	meant    []string // keys that unknown ones are probably meant to be
	origins  map[string]Origin
}

func (d *decoder) problem(at Position, key, format string, args ...any) {
	d.problems = append(d.problems, Problem{Position: at, Key: key, Text: fmt.Sprintf(format, args...)})
}

// section reads the keys of n into the struct v. A section without keys keeps what v holds.
func (d *decoder) section(n *node, f *field, v reflect.Value, key string) {
	if n.kind == nothing {
		return
	}
	if n.kind != mapping {
		d.problem(n.at, key, "must be a section: keys with values, one per line")
		return
	}
	first := make(map[string]*entry, len(n.entries))
	var files []func() // after the secrets that they may replace
	for _, e := range n.entries {
		if earlier := first[e.name]; earlier != nil {
			d.problem(e.at, join(key, e.name), "is given twice: first on line %d", earlier.at.Line)
			continue
		}
		first[e.name] = e
		child, twin := f.child(e.name)
		switch {
		case child == nil:
			d.problem(e.at, join(key, e.name), "%s", d.unknown(f, key, e.name))
		case twin:
			files = append(files, func() {
				d.secretFile(e, n.entry(child.name), child, v.FieldByIndex(child.index), join(key, child.name))
			})
		default:
			d.value(e, child, v.FieldByIndex(child.index), join(key, e.name))
		}
	}
	for _, read := range files {
		read()
	}
}

// unknown says that a key does not exist, and which one may be meant: a sibling that is spelt alike, or the same name
// in another section.
func (d *decoder) unknown(f *field, key, name string) string {
	if meant := nearest(name, f.names()); meant != "" {
		d.meant = append(d.meant, join(key, meant))
		return "unknown key; did you mean " + meant + "?"
	}
	elsewhere := ""
	for key, other := range d.model.keys {
		if other.name == name {
			if elsewhere != "" {
				return "unknown key"
			}
			elsewhere = key
		}
	}
	if elsewhere != "" {
		return "unknown key; did you mean " + elsewhere + "?"
	}
	return "unknown key"
}

// value reads one key.
func (d *decoder) value(e *entry, f *field, v reflect.Value, key string) {
	d.origins[key] = Origin{Position: e.at}
	if f.pointer {
		if v.IsNil() {
			v.Set(reflect.New(f.typ))
			v.Elem().Set(d.model.new(f))
		}
		v = v.Elem()
	}
	switch {
	case f.kind == section:
		d.section(e.value, f, v, key)
	case f.kind == sequence:
		d.sequence(e.value, f, v, key)
	default:
		d.scalar(e.value, f, v, key)
	}
}

// sequence reads a list, which replaces the default one.
func (d *decoder) sequence(n *node, f *field, v reflect.Value, key string) {
	switch n.kind {
	case list:
	case nothing:
		d.problem(n.at, key, "has no value: write [] for an empty list, or remove the key to keep the default")
		return
	default:
		d.problem(n.at, key, "must be a list: [one, two], or a line with a dash for each")
		return
	}
	if f.elem.kind == section && n.at.Variable != "" {
		d.problem(n.at, key, "is a list of sections, which a variable can't hold: write it in the file")
		return
	}
	if len(n.items) == 0 {
		v.SetZero()
		return
	}
	values := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		itemKey := fmt.Sprintf("%s[%d]", key, i)
		d.origins[itemKey] = Origin{Position: item.at}
		values.Index(i).Set(d.model.new(f.elem))
		switch {
		case f.elem.kind == section && item.kind == nothing:
			d.problem(item.at, itemKey, "has no value")
		case f.elem.kind == section:
			d.section(item, f.elem, values.Index(i), itemKey)
		default:
			d.scalar(item, f.elem, values.Index(i), itemKey)
			if f.elem.kind == secret && item.kind == scalar && values.Index(i).IsZero() && !d.failed(itemKey) {
				d.problem(item.at, itemKey, "is an empty secret")
			}
		}
	}
	v.Set(values)
}

// failed reports whether the last problem is about key.
func (d *decoder) failed(key string) bool {
	return len(d.problems) > 0 && d.problems[len(d.problems)-1].Key == key
}

// scalar reads one value that is neither a section nor a list.
func (d *decoder) scalar(n *node, f *field, v reflect.Value, key string) {
	switch n.kind {
	case nothing:
		d.problem(n.at, key, `has no value: write "" for an empty text, or remove the key to keep the default`)
		return
	case mapping:
		d.problem(n.at, key, "must be a single value, not a section")
		return
	case list:
		d.problem(n.at, key, "must be a single value, not a list")
		return
	}
	raw := rawValue{text: n.text, plain: n.plain, boolean: n.boolean}
	if !n.literal {
		expanded, used, err := d.env.expand(n.text)
		if err != nil {
			d.problem(n.at, key, "%v", err)
			return
		}
		raw.text = expanded
		if len(used) > 0 {
			raw.plain, raw.boolean = true, false // quotes are often needed around a variable and say nothing about its value
			origin := d.origins[key]
			origin.Variables = used
			d.origins[key] = origin
		}
	}
	if err := f.parse(raw, v); err != nil {
		d.problem(n.at, key, "%v", err)
	}
}

// secretFile reads x_file, the twin of the secret x. An empty name is no file, so that ${X_FILE:-} can stand there.
func (d *decoder) secretFile(e, other *entry, f *field, v reflect.Value, key string) {
	fileKey := key + fileSuffix
	var file string
	before := len(d.problems)
	d.origins[fileKey] = Origin{Position: e.at}
	d.scalar(e.value, &field{kind: text, path: true}, reflect.ValueOf(&file).Elem(), fileKey)
	if file == "" || len(d.problems) > before {
		return
	}
	if other != nil && !(other.value.kind == scalar && d.isEmpty(other.value)) {
		d.problem(e.at, fileKey, "%s and %s are both given: keep one", f.name, e.name)
		return
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(d.dir, file)
	}
	var err error
	if f.kind == secret {
		var one setting.Secret
		one, err = setting.SecretFromFile(file)
		setTo(v, reflect.ValueOf(one))
	} else {
		var several []setting.Secret
		several, err = setting.SecretsFromFile(file)
		setTo(v, reflect.ValueOf(several))
	}
	if err != nil {
		d.problem(e.value.at, fileKey, "can't be read: %v", err)
		return
	}
	origin := d.origins[fileKey]
	origin.SecretFile = file
	d.origins[key] = origin
}

// isEmpty reports whether a value of the file is an empty text once its variables are in place.
func (d *decoder) isEmpty(n *node) bool {
	if n.literal {
		return n.text == ""
	}
	text, _, err := d.env.expand(n.text)
	return err == nil && text == ""
}

func setTo(v, to reflect.Value) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	v.Set(to.Convert(v.Type()))
}
