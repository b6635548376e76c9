package config

import (
	"cmp"
	"path/filepath"
	"reflect"
	"slices"

	"recibo/setting"
)

// source is what a configuration is read from.
type source struct {
	file string // as messages call it; empty without a file
	dir  string // absolute; relative paths are relative to it
	data []byte
	env  environment
}

// load reads src into target, a pointer to the struct that the model describes, which holds the defaults. Sections that
// were read without a problem are checked by their own Validate. The error is an *Error with everything that is wrong.
func (m *model) load(src source, target any) (origins map[string]Origin, warnings []string, err error) {
	v := reflect.ValueOf(target).Elem()
	root, problems := document(src.file, src.data)
	if len(problems) > 0 {
		return nil, nil, failure(problems, nil)
	}
	warnings = overlay(m, src.env, root)
	d := &decoder{model: m, env: src.env, dir: src.dir, origins: make(map[string]Origin)}
	d.section(root, m.root, v, "")
	absolute(m.root, v, src.dir)
	for _, f := range m.root.fields {
		d.validate(f, v.FieldByIndex(f.index))
	}
	return d.origins, warnings, failure(d.problems, secretsOf(m.root, v))
}

// absolute makes every path of v, those of defaults included, independent of the working folder.
func absolute(f *field, v reflect.Value, dir string) {
	if f.pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch f.kind {
	case section:
		for _, child := range f.fields {
			absolute(child, v.FieldByIndex(child.index), dir)
		}
	case sequence:
		for i := range v.Len() {
			absolute(f.elem, v.Index(i), dir)
		}
	case text:
		if f.path && v.String() != "" && !filepath.IsAbs(v.String()) {
			v.SetString(filepath.Join(dir, v.String()))
		}
	}
}

// secretsOf reveals every secret, the longest first, so that one that contains another is replaced as a whole.
func secretsOf(f *field, v reflect.Value) []string {
	var values []string
	walkSecrets(f, v, func(s setting.Secret) { values = append(values, s.Reveal()) })
	slices.SortFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return values
}

func walkSecrets(f *field, v reflect.Value, visit func(setting.Secret)) {
	if f.pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch f.kind {
	case section:
		for _, child := range f.fields {
			walkSecrets(child, v.FieldByIndex(child.index), visit)
		}
	case sequence:
		for i := range v.Len() {
			walkSecrets(f.elem, v.Index(i), visit)
		}
	case secret:
		visit(v.Interface().(setting.Secret))
	}
}
