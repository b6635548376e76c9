package downloads

import (
	"bytes"
	"encoding/json"
	"mime"
	"slices"
	"strings"
)

// Sniff rejects, with *NotTheFormatError, a body that can't be a file of the expected kind: a login or error page, or an
// API's error, with status 200. It never decides that a body is good. head is what Staged.Head gives; contentType and
// disposition are the headers as sent; id is the report's.
func Sniff(ext string, head []byte, contentType, disposition, id string) error {
	text := readable(head)
	looks := ""
	switch {
	case ext == "html" && len(text) == 0 && len(head) < edge:
		looks = "nothing: it is empty"
	case ext == "html":
		looks = sniffHTML(text, contentType, disposition, id)
	case startsAsHTML(text):
		looks = "an HTML page"
	case ext == "json":
	case isErrorObject(text, contentType):
		looks = "an error in JSON"
	case ext == "pdf" && !bytes.Contains(head[:min(len(head), 1024)], []byte("%PDF-")):
		looks = "no PDF: it does not begin with %PDF-"
	case ext == "xml" && len(text) == 0 && len(head) < edge:
		looks = "nothing: it is empty"
	case ext == "xml" && len(text) > 0 && (text[0] == '{' || text[0] == '['):
		looks = "JSON"
	}
	if looks != "" {
		return &NotTheFormatError{ext, looks}
	}
	return nil
}

// sniffHTML tells a report from a login page: only the report's answer names the report.
func sniffHTML(text []byte, contentType, disposition, id string) string {
	if isErrorObject(text, contentType) {
		return "an error in JSON"
	}
	for _, named := range []string{disposition, FileName(disposition)} {
		if strings.Contains(strings.ToLower(named), strings.ToLower(id)) {
			return ""
		}
	}
	return "an HTML page whose Content-Disposition does not name the report"
}

// readable brings the start or end of a text to bytes in which ASCII can be looked for: UTF-16 loses the zero bytes,
// which is no decoding but enough for names and marks; a byte order mark and white space before the text go.
func readable(b []byte) []byte {
	if b = narrow(b); bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		b = b[3:]
	} else if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) {
		b = b[2:]
	}
	return bytes.TrimLeft(b, " \t\r\n\f")
}

func narrow(b []byte) []byte {
	if bytes.IndexByte(b, 0) < 0 {
		return b
	}
	return slices.DeleteFunc(slices.Clone(b), func(c byte) bool { return c == 0 })
}

// startsAsHTML looks for an HTML doctype or root behind an XML declaration, processing instructions and comments.
func startsAsHTML(text []byte) bool {
	text = skipMisc(text)
	start := bytes.ToLower(text[:min(len(text), 64)])
	for _, word := range []string{"<!doctype", "<html"} {
		rest, found := bytes.CutPrefix(start, []byte(word))
		if !found || len(rest) == 0 {
			continue
		}
		if word == "<html" {
			return bytes.IndexByte([]byte(" \t\r\n\f/>"), rest[0]) >= 0
		}
		name := bytes.TrimLeft(rest, " \t\r\n\f")
		after, html := bytes.CutPrefix(name, []byte("html"))
		return html && (len(after) == 0 || bytes.IndexByte([]byte(" \t\r\n\f>["), after[0]) >= 0)
	}
	return false
}

// isErrorObject recognises the errors of Lerian's APIs ({code, title, message}), also when head cuts them off, and
// those of RFC 9457 by their media type.
func isErrorObject(text []byte, contentType string) bool {
	if len(text) == 0 || text[0] != '{' {
		return false
	}
	if media, _, _ := mime.ParseMediaType(contentType); media == "application/problem+json" {
		return true
	}
	keys := topKeys(text)
	return slices.Contains(keys, "code") && (slices.Contains(keys, "title") || slices.Contains(keys, "message"))
}

// topKeys returns the keys of a JSON object as far as it can be read.
func topKeys(text []byte) []string {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil {
		return nil
	}
	var keys []string
	for decoder.More() {
		key, err := decoder.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			break
		}
		keys = append(keys, name)
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			break
		}
	}
	return keys
}
