package config

import (
	"encoding/json"
	"reflect"
)

// Patterns of what a text of the file may be. A value that a variable gives can't be checked before it is read.
const (
	variablePattern = `\$\{`
	durationPattern = `^(0|[0-9]+d|([0-9]+d)?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`
	sizePattern     = `^[0-9]+ *([KkMmGgTt][Ii]?[Bb]|[Bb])?$`
	rangePattern    = `^[0-9a-zµ.]+ *\.\. *[0-9a-zµ.]+$`
	momentPattern   = `^$|^\d{4}-\d\d-\d\d([Tt ].*)?$`
)

// schema writes a JSON Schema (draft 2020-12) of the file, so that an editor can complete and check it. defaults holds
// the values in force without a file.
func (m *model) schema(defaults reflect.Value) ([]byte, error) {
	root := object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", "recibo's config.yaml"},
	}
	return indented(append(root, m.sectionSchema(m.root, defaults)...))
}

func (m *model) sectionSchema(f *field, v reflect.Value) object {
	properties, exclusive := object{}, []any{}
	for _, child := range f.fields {
		properties = append(properties, member{child.name, m.fieldSchema(child, v.FieldByIndex(child.index))})
		if child.isSecret() {
			twin := child.name + fileSuffix
			properties = append(properties, member{twin, object{
				{"type", "string"},
				{"description", "file that holds " + child.name + twinNote(child)},
			}})
			// The type matters: required holds for whatever is no object, and a section may be null.
			exclusive = append(exclusive, object{{"not", object{{"type", "object"}, {"required", []string{child.name, twin}}}}})
		}
	}
	// A section without keys is null to YAML.
	o := object{{"type", []string{"object", "null"}}, {"additionalProperties", false}, {"properties", properties}}
	if len(exclusive) > 0 {
		o = append(o, member{"allOf", exclusive})
	}
	return o
}

func twinNote(f *field) string {
	if f.kind == sequence {
		return ", one per line; read again when it changes"
	}
	return "; read again when it changes"
}

func (m *model) fieldSchema(f *field, v reflect.Value) object {
	var o object
	if f.doc != "" {
		o = append(o, member{"description", f.doc})
	}
	off := f.pointer && v.IsNil()
	switch {
	case off:
		v = m.new(f)
	case f.pointer:
		v = v.Elem()
	}
	switch f.kind {
	case section:
		return append(o, m.sectionSchema(f, v)...)
	case sequence:
		o = append(o, member{"type", "array"})
		if f.elem.kind == section {
			return append(o, member{"items", m.sectionSchema(f.elem, m.new(f.elem))})
		}
		o = append(o, member{"items", f.elem.scalarSchema()})
	default:
		o = append(o, f.scalarSchema()...)
	}
	if !off && !f.isSecret() && !(f.kind == moment && v.IsZero()) {
		o = append(o, member{"default", m.json(f, v, nil)})
	}
	return o
}

// scalarSchema describes one value. Whatever it is, it may also be a text with a variable in it.
func (f *field) scalarSchema() object {
	switch f.kind {
	case boolean:
		return object{{"type", []string{"boolean", "string"}}, {"pattern", variablePattern}}
	case integer:
		o := object{{"type", []string{"integer", "string"}}, {"pattern", variablePattern}}
		return f.bounds(o)
	case decimal:
		o := object{{"type", []string{"number", "string"}}, {"pattern", variablePattern}}
		return f.bounds(o)
	case duration:
		return alternatives(object{{"const", 0}}, durationPattern)
	case size:
		return alternatives(object{{"type", "integer"}, {"minimum", 0}}, sizePattern)
	case span:
		return object{{"type", "string"}, {"pattern", rangePattern + "|" + variablePattern}}
	case moment:
		return object{{"type", "string"}, {"pattern", momentPattern + "|" + variablePattern}}
	case secret:
		return object{{"type", []string{"string", "number"}}, {"writeOnly", true}}
	}
	if len(f.enum) > 0 {
		return object{{"anyOf", []any{
			object{{"enum", f.enum}},
			object{{"type", "string"}, {"pattern", variablePattern}},
		}}}
	}
	// A number is taken as it is written: a mode such as 0640 needs no quotes.
	return object{{"type", []string{"string", "number"}}}
}

func (f *field) bounds(o object) object {
	for _, bound := range []struct{ word, limit string }{{"minimum", f.min}, {"maximum", f.max}} {
		if bound.limit != "" {
			o = append(o, member{bound.word, json.Number(bound.limit)})
		}
	}
	return o
}

func alternatives(number object, pattern string) object {
	return object{{"anyOf", []any{number, object{{"type", "string"}, {"pattern", pattern + "|" + variablePattern}}}}}
}
