package reporter

import (
	"bytes"
	"encoding/json"
	"strings"

	"recibo/rest"
)

// Failure is why a report failed in whole or in part, as far as its metadata says.
type Failure struct {
	Reason  string   // for people, harmless to show, at most 2 KiB
	Sources []Source // the data sources that failed, in the order of the document
	Known   bool     // at least one source could be named
}

// Source is a data source that failed.
type Source struct{ Name, Code string }

// Bounds of what is taken from metadata that somebody else wrote.
const (
	maxReason  = 2048
	maxName    = 256
	maxSources = 1000
)

// failed is what any version has written into metadata or into an error inside it. Each may be of any JSON type.
type failed struct {
	Error     json.RawMessage `json:"error"`
	ErrorCode json.RawMessage `json:"error_code"`
	Sections  json.RawMessage `json:"sections"`

	Code    json.RawMessage `json:"code"`
	Title   json.RawMessage `json:"title"`
	Message json.RawMessage `json:"message"`
	Details json.RawMessage `json:"details"`

	Name       json.RawMessage `json:"name"`
	Database   json.RawMessage `json:"database"`
	Datasource json.RawMessage `json:"datasource"`
}

// Failure reads the metadata of every version: error as a text or an object, the failed data sources as the keys of
// sections, as a list of names, or as a list of objects. It never fails: what can't be read is left out. Metadata is
// not cleared, so whether a Finished report's old error matters is the caller's to know.
func (r *Report) Failure() Failure {
	var meta failed
	if json.Unmarshal(r.Metadata, &meta) != nil {
		return Failure{Reason: rest.Harmless(scalar(r.Metadata), maxReason)}
	}
	f := Failure{Reason: rest.Harmless(meta.reason(), maxReason), Sources: sources(meta.Sections)}
	f.Known = len(f.Sources) > 0
	return f
}

// reason joins what is said about the whole report: title, message, details and the code in brackets.
func (m failed) reason() string {
	var texts []string
	code := first(m.ErrorCode, m.Code)
	if text := scalar(m.Error); text != "" {
		texts = append(texts, text)
	} else {
		inner := m
		if json.Unmarshal(m.Error, &inner) == nil {
			code = first(inner.ErrorCode, inner.Code, m.ErrorCode)
		}
		for _, part := range []json.RawMessage{inner.Title, inner.Message, inner.Details} {
			if text := scalar(part); text != "" {
				texts = append(texts, text)
			}
		}
	}
	text := strings.Join(texts, ": ")
	switch {
	case code == "":
		return text
	case text == "":
		return code
	}
	return text + " (" + code + ")"
}

// sources reads sections in the order of the document. A name that comes twice counts once.
func sources(sections json.RawMessage) []Source {
	var list []Source
	seen := map[string]bool{}
	add := func(name string, about json.RawMessage) {
		name = rest.Harmless(name, maxName)
		if name != "" && !seen[name] && len(list) < maxSources {
			seen[name] = true
			list = append(list, Source{name, rest.Harmless(sourceCode(about), maxName)})
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(sections))
	open, err := decoder.Token()
	if err != nil {
		return nil
	}
	switch open {
	case json.Delim('{'):
		eachMember(decoder, add)
	case json.Delim('['):
		eachElement(decoder, add)
	}
	return list
}

func eachMember(decoder *json.Decoder, add func(string, json.RawMessage)) {
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return
		}
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			return
		}
		if name, ok := key.(string); ok {
			add(name, value)
		}
	}
}

func eachElement(decoder *json.Decoder, add func(string, json.RawMessage)) {
	for decoder.More() {
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			return
		}
		if name := scalar(value); name != "" {
			add(name, nil)
			continue
		}
		var object failed
		if json.Unmarshal(value, &object) == nil {
			add(first(object.Name, object.Database, object.Datasource), value)
		}
	}
}

// sourceCode is the error_code of a source, or its code, or that of an error inside it.
func sourceCode(about json.RawMessage) string {
	var object failed
	if json.Unmarshal(about, &object) != nil {
		return scalar(about)
	}
	if code := first(object.ErrorCode, object.Code); code != "" {
		return code
	}
	var inner failed
	if json.Unmarshal(object.Error, &inner) == nil {
		return first(inner.ErrorCode, inner.Code)
	}
	return ""
}

func first(candidates ...json.RawMessage) string {
	for _, candidate := range candidates {
		if text := scalar(candidate); text != "" {
			return text
		}
	}
	return ""
}

// scalar is the text of a JSON string or the literal of a number; empty for anything else.
func scalar(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return strings.TrimSpace(text)
	}
	var number json.Number
	if json.Unmarshal(raw, &number) == nil {
		return number.String()
	}
	return ""
}
