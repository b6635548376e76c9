package config

import (
	"maps"
	"slices"
	"strings"
)

const (
	variablePrefix = "RECIBO_"
	// PathVariable names the file to read, unless --config does.
	PathVariable = "RECIBO_CONFIG"
)

// variable is a key that can be set from the environment.
type variable struct {
	names []string // the key's parts
	field *field
	twin  bool
}

// variables lists every key outside of lists under the name of its variable: RECIBO_ and the key in capitals.
func (m *model) variables() map[string]variable {
	found := make(map[string]variable)
	m.collect(m.root, nil, found)
	return found
}

func (m *model) collect(f *field, names []string, found map[string]variable) {
	for _, child := range f.fields {
		path := append(slices.Clone(names), child.name)
		if child.kind == section {
			m.collect(child, path, found)
			continue
		}
		found[variableName(path)] = variable{path, child, false}
		if child.isSecret() {
			path := append(slices.Clone(names), child.name+fileSuffix)
			found[variableName(path)] = variable{path, child, true}
		}
	}
}

func variableName(names []string) string {
	return variablePrefix + strings.ToUpper(strings.Join(names, "_"))
}

// overlay puts the values of RECIBO_ variables into the tree, in the place of what the file says. It returns a warning
// for each one that matches no key: such a variable may be meant for another program, so it is no error.
func overlay(m *model, env environment, root *node) (warnings []string) {
	known := m.variables()
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !strings.HasPrefix(name, variablePrefix) || name == PathVariable {
			continue
		}
		v, ok := known[name]
		if !ok {
			warning := "environment " + name + ": matches no key and is left alone"
			if meant := nearest(name, slices.Sorted(maps.Keys(known))); meant != "" {
				warning += "; did you mean " + meant + "?"
			}
			warnings = append(warnings, warning)
			continue
		}
		root.set(v, Position{Variable: name}, env[name])
	}
	return warnings
}

// set replaces one key, creating the sections on the way to it. A place where the file has something else than a
// section is left for the decoder to complain about.
func (n *node) set(v variable, at Position, value string) {
	for _, name := range v.names[:len(v.names)-1] {
		if n.kind == nothing {
			n.kind = mapping
		}
		e := n.entry(name)
		if e == nil {
			e = &entry{name: name, at: at, value: &node{kind: mapping, at: at}}
			n.entries = append(n.entries, e)
		}
		n = e.value
	}
	if n.kind == nothing {
		n.kind = mapping
	}
	// A secret and its file are one setting: a variable for either overrides both, as long as they are the file's.
	name := v.names[len(v.names)-1]
	n.entries = slices.DeleteFunc(n.entries, func(e *entry) bool {
		pair := v.field.isSecret() && (e.name == v.field.name || e.name == v.field.name+fileSuffix)
		return (e.name == name || pair) && e.at.Variable == ""
	})
	n.entries = append(n.entries, &entry{name: name, at: at, value: fromVariable(v, at, value)})
}

func fromVariable(v variable, at Position, value string) *node {
	n := &node{kind: scalar, at: at, text: value, plain: true, literal: true}
	if v.field.kind != sequence || v.twin {
		return n
	}
	n.kind = list
	if strings.TrimSpace(value) == "" {
		return n
	}
	for part := range strings.SplitSeq(value, ",") {
		n.items = append(n.items, &node{kind: scalar, at: at, text: strings.TrimSpace(part), plain: true, literal: true})
	}
	return n
}
