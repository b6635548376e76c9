package config

import (
	"bytes"
	"encoding/json"
	"reflect"

	"recibo/setting"
)

// object is a JSON object that keeps its order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON writes the members in the order they were added.
func (o object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		name, err := marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := marshal(m.value)
		if err != nil {
			return nil, err
		}
		out.Write(name)
		out.WriteByte(':')
		out.Write(value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// marshal is json.Marshal without the escapes that only matter inside of HTML.
func marshal(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// indented is marshal for readers.
func indented(value any) ([]byte, error) {
	data, err := marshal(value)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// json returns v in the shape of the file, ready for encoding/json: numbers and truth values as such, everything else as
// text, secrets hidden, sections that are off as null.
func (m *model) json(f *field, v reflect.Value, secrets []string) any {
	if f.pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch f.kind {
	case section:
		o := object{}
		for _, child := range f.fields {
			o = append(o, member{child.name, m.json(child, v.FieldByIndex(child.index), secrets)})
		}
		return o
	case sequence:
		items := make([]any, v.Len())
		for i := range items {
			items[i] = m.json(f.elem, v.Index(i), secrets)
		}
		return items
	case boolean, integer, decimal:
		return v.Interface()
	case secret:
		if v.Interface().(setting.Secret).IsSet() {
			return setting.Hidden
		}
		return ""
	default:
		return scrub(f.format(v), secrets)
	}
}
