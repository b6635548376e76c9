package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of a file, far above any real one. They bound the parser's time, which grows with the square of a mapping's
// keys and of a text's lines, and its stack, since it is recursive.
const (
	maxBytes = 64 << 10
	maxLines = 4000
	maxDepth = 32
)

type nodeKind int

const (
	nothing nodeKind = iota // no value: an empty section, or null
	scalar
	list
	mapping
)

// node is a value of the file, or one that a variable has put in its place.
type node struct {
	kind    nodeKind
	at      Position
	text    string // of a scalar, as it is written: 0640 stays 0640
	plain   bool   // written without quotes
	boolean bool   // plain, and true or false to YAML
	literal bool   // from a variable: ${ } is not expanded a second time
	items   []*node
	entries []*entry
}

// entry is one key of a mapping.
type entry struct {
	name  string
	at    Position
	value *node
}

func (n *node) entry(name string) *entry {
	for _, e := range n.entries {
		if e.name == name {
			return e
		}
	}
	return nil
}

// document reads YAML into nodes. It takes the plain part of the language only: one document of mappings, lists and
// scalars, without anchors, merges and tags, so that what a reader sees is what holds.
func document(file string, data []byte) (root *node, problems []Problem) {
	r := &reader{file: file}
	defer func() {
		// The library has faults of its own; one of them must not take the agent down with a stack trace.
		if recover() != nil {
			root, problems = nil, append(r.problems, Problem{Position: Position{File: file}, Text: "can't be read as YAML"})
		}
	}()
	return r.read(bytes.TrimPrefix(data, []byte("\ufeff"))), r.problems
}

type reader struct {
	file     string
	problems []Problem
}

func (r *reader) problem(at Position, text string) {
	r.problems = append(r.problems, Problem{Position: at, Text: text})
}

func (r *reader) read(data []byte) *node {
	empty := &node{kind: nothing, at: Position{File: r.file}}
	if reason := unreadable(data); reason != "" {
		r.problem(empty.at, reason)
		return empty
	}
	tokens := lexer.Tokenize(string(data))
	if deep := tooDeep(tokens); deep != nil {
		r.problem(r.place(deep), "is nested too deeply")
		return empty
	}
	// Keys that are given twice are looked for later, all of them, rather than ending here at the first.
	parsed, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err, data)
		return empty
	}
	root := empty
	for _, doc := range parsed.Docs {
		if doc.Body == nil {
			continue
		}
		n := r.convert(doc.Body)
		if _, is := doc.Body.(*ast.DirectiveNode); is {
			continue // and the document it is about follows
		}
		if root != empty {
			r.problem(n.at, "a second document begins here: the file holds one")
			break
		}
		root = n
	}
	return root
}

func unreadable(data []byte) string {
	switch {
	case len(data) > maxBytes:
		return fmt.Sprintf("is larger than %d KiB: this is no configuration", maxBytes>>10)
	case max(bytes.Count(data, []byte("\n")), bytes.Count(data, []byte("\r"))) > maxLines:
		return fmt.Sprintf("has more than %d lines: this is no configuration", maxLines)
	case !utf8.Valid(data):
		return "is not UTF-8 text"
	case bytes.ContainsFunc(data, func(c rune) bool { return c < ' ' && !strings.ContainsRune("\t\r\n", c) }):
		return "holds control characters: this is no text"
	default:
		return ""
	}
}

// tooDeep returns the token at which nesting passes the limit: brackets, or list marks and the like on one line. What
// is nested by indentation is bounded by the file's size.
func tooDeep(tokens token.Tokens) *token.Token {
	brackets, marks, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, marks = t.Position.Line, 0
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			brackets++
		case token.MappingEndType, token.SequenceEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			marks++
		}
		if brackets > maxDepth || marks > maxDepth {
			return t
		}
	}
	return nil
}

func (r *reader) syntax(err error, data []byte) {
	var syntax *yaml.SyntaxError
	if !errors.As(err, &syntax) || syntax.Token == nil {
		r.problem(Position{File: r.file}, "can't be read as YAML")
		return
	}
	at, text := r.place(syntax.Token), syntax.Message
	lines := bytes.Split(data, []byte("\n"))
	switch {
	case strings.Contains(text, "found character '\t'"):
		text = "a tab can't indent: use spaces"
	case at.Line <= len(lines) && bytes.Contains(lines[at.Line-1], []byte("${")):
		text += ` (inside [ ] and { } a value with ${ } needs quotes)`
	}
	r.problem(at, text)
}

func (r *reader) place(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{File: r.file}
	}
	return Position{File: r.file, Line: t.Position.Line, Column: t.Position.Column}
}

func (r *reader) convert(from ast.Node) *node {
	n := &node{at: r.place(from.GetToken())}
	switch from := from.(type) {
	case *ast.MappingNode:
		n.kind = mapping
		r.entries(n, from.Values)
	case *ast.MappingValueNode:
		n.kind = mapping
		r.entries(n, []*ast.MappingValueNode{from})
	case *ast.SequenceNode:
		n.kind = list
		for _, item := range from.Values {
			n.items = append(n.items, r.convert(item))
		}
	case *ast.NullNode:
		n.kind = nothing
	case *ast.StringNode:
		n.kind, n.text = scalar, from.Value
		n.plain = from.Token.Type == token.StringType
	case *ast.LiteralNode:
		n.kind, n.text = scalar, from.Value.Value
	case *ast.BoolNode:
		n.kind, n.text, n.plain, n.boolean = scalar, from.Token.Value, true, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.kind, n.text, n.plain = scalar, from.GetToken().Value, true
	case *ast.AnchorNode, *ast.AliasNode:
		r.problem(n.at, "anchors and aliases are not taken: write the value out")
	case *ast.TagNode:
		r.problem(n.at, "tags are not taken: quotes make a text")
	case *ast.DirectiveNode:
		r.problem(n.at, "directives are not taken")
	default:
		r.problem(n.at, "this is not taken here")
	}
	return n
}

func (r *reader) entries(n *node, values []*ast.MappingValueNode) {
	for _, value := range values {
		at := r.place(value.Key.GetToken())
		switch key := value.Key.(type) {
		case *ast.StringNode:
			child := r.convert(value.Value)
			if child.kind == nothing {
				child.at = at // the value has no place of its own
			}
			n.entries = append(n.entries, &entry{name: key.Value, at: at, value: child})
		case *ast.MergeKeyNode:
			r.problem(at, "merges are not taken: write the keys out")
		default:
			r.problem(at, "this is no key")
		}
	}
	if len(n.entries) > 0 {
		n.at = n.entries[0].at
	}
}
