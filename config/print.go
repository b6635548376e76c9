package config

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// String says where a value came from: default, file:line, environment NAME or secret file.
func (o Origin) String() string {
	place := "default"
	switch {
	case o.Variable != "":
		place = o.Position.String()
	case o.File != "":
		place = o.File + ":" + strconv.Itoa(o.Line)
	}
	if len(o.Variables) > 0 {
		place += " with " + strings.Join(o.Variables, ", ")
	}
	if o.SecretFile != "" {
		return "secret file " + o.SecretFile + " (" + place + ")"
	}
	return place
}

// printer writes effective values. What it writes can be read again, but for the secrets.
type printer struct {
	origins map[string]Origin
	secrets []string
	out     bytes.Buffer
}

// print writes v as YAML in the order of the struct, with a comment behind each value that tells its origin.
func (m *model) print(w io.Writer, v reflect.Value, origins map[string]Origin) error {
	p := &printer{origins: origins, secrets: secretsOf(m.root, v)}
	p.section(m.root, v, "", "")
	_, err := w.Write(p.out.Bytes())
	return err
}

func (p *printer) section(f *field, v reflect.Value, key, indent string) {
	for _, child := range f.fields {
		p.value(child, v.FieldByIndex(child.index), join(key, child.name), indent)
	}
}

func (p *printer) value(f *field, v reflect.Value, key, indent string) {
	origin := p.origins[key]
	if f.pointer {
		if v.IsNil() {
			off := "not set"
			if f.kind == section {
				off = "off"
			}
			fmt.Fprintf(&p.out, "%s# %s: %s\n", indent, f.name, off)
			return
		}
		v = v.Elem()
	}
	switch {
	case f.kind == section && f.pointer:
		p.line(indent, f.name+":", origin)
		p.section(f, v, key, indent+"  ")
	case f.kind == section:
		fmt.Fprintf(&p.out, "%s%s:\n", indent, f.name)
		p.section(f, v, key, indent+"  ")
	case f.kind == sequence && f.elem.kind == section && v.Len() > 0:
		p.line(indent, f.name+":", origin)
		p.items(f, v, key, indent+"  ")
	case f.kind == sequence:
		p.line(indent, f.name+": "+p.list(f, v, key, &origin), origin)
	default:
		p.line(indent, f.name+": "+p.scalar(f, v), origin)
	}
}

func (p *printer) line(indent, content string, origin Origin) {
	fmt.Fprintf(&p.out, "%s%s  # %s\n", indent, content, origin)
}

// items writes a list of sections. A dash takes the place of the indentation of each one's first key.
func (p *printer) items(f *field, v reflect.Value, key, indent string) {
	for i := range v.Len() {
		start := p.out.Len()
		p.section(f.elem, v.Index(i), fmt.Sprintf("%s[%d]", key, i), indent+"  ")
		if p.out.Len() > start {
			p.out.Bytes()[start+len(indent)] = '-'
		}
	}
}

func (p *printer) list(f *field, v reflect.Value, key string, origin *Origin) string {
	parts := make([]string, v.Len())
	for i := range parts {
		parts[i] = p.scalar(f.elem, v.Index(i))
		for _, name := range p.origins[fmt.Sprintf("%s[%d]", key, i)].Variables {
			if !slices.Contains(origin.Variables, name) {
				origin.Variables = append(slices.Clone(origin.Variables), name)
			}
		}
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func (p *printer) scalar(f *field, v reflect.Value) string {
	value := f.format(v)
	switch f.kind {
	case text, custom:
		return quote(escape(scrub(value, p.secrets)))
	case secret, moment:
		return quote(value)
	default:
		return value
	}
}

// escape writes a dollar that would be taken for the beginning of a variable as $$.
func escape(value string) string {
	var out strings.Builder
	for i := range len(value) {
		out.WriteByte(value[i])
		if value[i] == '$' && i+1 < len(value) && (value[i+1] == '{' || value[i+1] == '$') {
			out.WriteByte('$')
		}
	}
	return out.String()
}

// quote writes a text as YAML: as it is where no reader can take it for anything else, else in JSON's quotes, which are
// YAML's too.
func quote(value string) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	words := []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
	plain := value != "" && strings.ContainsAny(value[:1], letters+"/") &&
		strings.Trim(value, letters+"0123456789/._+-:@") == "" && !strings.HasSuffix(value, ":") &&
		!slices.Contains(words, strings.ToLower(value))
	if plain {
		return value
	}
	data, _ := marshal(value) // a text can always be written
	return string(data)
}
