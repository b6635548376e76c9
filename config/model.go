package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"

	"recibo/setting"
)

type kind int

const (
	section kind = iota
	sequence
	text
	boolean
	integer
	decimal
	duration
	span
	size
	moment
	secret
	custom // reads and writes itself, through encoding.TextUnmarshaler and TextMarshaler
)

// fileSuffix makes the twin of a secret's key: the file that holds the secret.
const fileSuffix = "_file"

// field is one key of the configuration, or a section of them. The package comment lists the tags it is read from.
type field struct {
	name    string
	key     string // from the root: hub.nats.url; keys inside a list leave the index out
	kind    kind
	typ     reflect.Type // without the pointer
	pointer bool         // nil is "not set", for a section "off"
	index   []int        // in the struct that holds it
	doc     string
	enum    []string
	path    bool
	min     string
	max     string
	fields  []*field // of a section
	elem    *field   // of a list
}

// model is the shape of a configuration, read from its struct.
type model struct {
	root  *field
	keys  map[string]*field
	named map[string]reflect.Value // functions that return what a section holds when it is named, by its key
}

// newModel reads the struct that root is. A section that is off by default, or an element of a list, holds nothing when
// it is named, or what the function in named returns that stands under its key, without indexes: sections of one type
// may differ. A struct that can't be a configuration is a fault of the program.
func newModel(root any, named map[string]any) *model {
	m := &model{
		root:  &field{kind: section, typ: reflect.TypeOf(root)},
		keys:  make(map[string]*field),
		named: make(map[string]reflect.Value),
	}
	m.root.fields = m.fields(m.root, nil, nil)
	for key, start := range named {
		f := m.keys[key]
		if f != nil && f.kind == sequence {
			f = f.elem
		}
		m.named[key] = reflect.ValueOf(start)
		if f == nil || m.named[key].Type() != reflect.FuncOf(nil, []reflect.Type{f.typ}, false) {
			panic(fmt.Sprintf("config: %s: no section that %T gives the defaults of", key, start))
		}
	}
	return m
}

// fields lists the keys of a struct. A struct that is embedded, or tagged inline, gives its keys to the one around it.
func (m *model) fields(parent *field, typ reflect.Type, index []int) []*field {
	if typ == nil {
		typ = parent.typ
	}
	var fields []*field
	for i := range typ.NumField() {
		sf := typ.Field(i)
		at := append(append([]int(nil), index...), i)
		name, options, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		switch {
		case sf.Type.Kind() == reflect.Struct && (options == "inline" || sf.Anonymous && name == ""):
			fields = append(fields, m.fields(parent, sf.Type, at)...)
		case !sf.IsExported(), name == "", name == "-":
		default:
			f := &field{name: name, key: join(parent.key, name), typ: sf.Type, index: at, doc: sf.Tag.Get("doc")}
			if values := sf.Tag.Get("enum"); values != "" {
				f.enum = strings.Split(values, ",")
			}
			f.min, f.max = sf.Tag.Get("min"), sf.Tag.Get("max")
			m.describe(f, sf.Tag.Get("path"))
			fields = append(fields, f)
		}
	}
	return fields
}

func (m *model) describe(f *field, path string) {
	if f.typ.Kind() == reflect.Pointer {
		f.pointer, f.typ = true, f.typ.Elem()
	}
	m.keys[f.key] = f
	f.kind = kindOf(f.typ)
	switch f.kind {
	case section:
		f.fields = m.fields(f, nil, nil)
	case sequence:
		elem := *f
		elem.typ, elem.pointer = f.typ.Elem(), false
		m.describe(&elem, path)
		if elem.kind == sequence || elem.pointer {
			panic(fmt.Sprintf("config: %s: a list can't hold %s", f.key, f.typ.Elem()))
		}
		f.elem = &elem
		m.keys[f.key] = f
	case text:
		named := strings.HasSuffix(f.name, fileSuffix) || f.name == "path" || f.name == "dir" || f.name == "socket"
		f.path = path == "true" || named && path != "false"
	}
}

func kindOf(typ reflect.Type) kind {
	switch typ {
	case reflect.TypeFor[time.Duration]():
		return duration
	case reflect.TypeFor[time.Time]():
		return moment
	case reflect.TypeFor[setting.Size]():
		return size
	case reflect.TypeFor[setting.Range]():
		return span
	case reflect.TypeFor[setting.Secret]():
		return secret
	}
	if reflect.PointerTo(typ).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return custom
	}
	switch typ.Kind() {
	case reflect.Struct:
		return section
	case reflect.Slice:
		return sequence
	case reflect.String:
		return text
	case reflect.Bool:
		return boolean
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return integer
	case reflect.Float32, reflect.Float64:
		return decimal
	default:
		panic(fmt.Sprintf("config: no key can be a %s", typ))
	}
}

// child finds the key called name in a section; twin says that it is the file of the secret that is returned.
func (f *field) child(name string) (child *field, twin bool) {
	for _, c := range f.fields {
		if c.name == name {
			return c, false
		}
	}
	secretName, isFile := strings.CutSuffix(name, fileSuffix)
	if !isFile {
		return nil, false
	}
	for _, c := range f.fields {
		if c.name == secretName && c.isSecret() {
			return c, true
		}
	}
	return nil, false
}

// names lists what a section may hold, the twins of its secrets included.
func (f *field) names() []string {
	var names []string
	for _, c := range f.fields {
		names = append(names, c.name)
		if c.isSecret() {
			names = append(names, c.name+fileSuffix)
		}
	}
	return names
}

// isSecret reports whether the key holds a secret or a list of them.
func (f *field) isSecret() bool {
	return f.kind == secret || f.kind == sequence && f.elem.kind == secret
}

// new returns what a section, or an element of a list, holds before any of its keys is read.
func (m *model) new(f *field) reflect.Value {
	v := reflect.New(f.typ).Elem()
	if start, ok := m.named[f.key]; ok {
		v.Set(start.Call(nil)[0])
	}
	return v
}

// find returns the field of a key, which may hold list indexes: hub.signing_keys[1].id. The twin of a secret gives the
// secret.
func (m *model) find(key string) *field {
	for {
		open := strings.IndexByte(key, '[')
		if open < 0 {
			break
		}
		end := strings.IndexByte(key[open:], ']')
		if end < 0 {
			return nil
		}
		key = key[:open] + key[open+end+1:]
	}
	if f := m.keys[key]; f != nil {
		return f
	}
	if f := m.keys[strings.TrimSuffix(key, fileSuffix)]; f != nil && f.isSecret() {
		return f
	}
	return nil
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}
