package downloads

import (
	"bytes"
)

// Mark says whether a body shows the end of its format.
type Mark int

// The marks.
const (
	None    Mark = iota // the format has no end mark, or none that can be told from these bytes
	Present             // the end is there
	Absent              // the end is missing: the body was cut
)

// String names the mark.
func (m Mark) String() string {
	switch m {
	case Present:
		return "present"
	case Absent:
		return "absent"
	}
	return "none"
}

// EndMark looks for the end of a body's format, which matters where the end of the connection is all that ended the
// body. head and tail are what Staged gives. It looks at bytes and never parses: filings in ISO-8859-1 or UTF-16 are
// good reports. An XML document cut right behind an inner element that has the name of the root passes.
func EndMark(ext string, head, tail []byte) Mark {
	switch ext {
	case "pdf":
		tail = bytes.TrimRight(tail, "\x00 \t\r\n\f")
		return found(bytes.Contains(tail[max(0, len(tail)-1024):], []byte("%%EOF")))
	case "html":
		return found(containsClosing(bytes.ToLower(narrow(tail)), "html"))
	case "xml":
		return xmlEnd(head, tail)
	}
	return None
}

func found(is bool) Mark {
	if is {
		return Present
	}
	return Absent
}

func containsClosing(text []byte, name string) bool {
	for {
		_, rest, found := bytes.Cut(text, []byte("</"+name))
		if !found {
			return false
		}
		if bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n\f"), []byte(">")) {
			return true
		}
		text = rest
	}
}

func xmlEnd(head, tail []byte) Mark {
	whole := len(head) < edge
	text := skipProlog(readable(head))
	name, selfClosing := rootTag(text)
	if len(name) == 0 {
		if whole && (len(text) == 0 || text[0] == '<') {
			return Absent // cut before its root element is even named
		}
		return None
	}
	if selfClosing {
		return Present
	}
	end, known := trimMisc(narrow(tail))
	if !known {
		return None
	}
	end, closed := bytes.CutSuffix(end, []byte(">"))
	end = bytes.TrimRight(end, " \t\r\n")
	return found(closed && bytes.HasSuffix(end, append([]byte("</"), name...)))
}

// skipProlog goes past all that may stand before the root element (XML 1.0 §2.8).
func skipProlog(text []byte) []byte {
	text = skipMisc(text)
	if !bytes.HasPrefix(text, []byte("<!DOCTYPE")) {
		return text
	}
	return skipMisc(skipDoctype(text))
}

// skipMisc goes past white space, comments, processing instructions and the XML declaration. One that is cut off
// leaves nothing.
func skipMisc(text []byte) []byte {
	for {
		text = bytes.TrimLeft(text, " \t\r\n\f")
		switch {
		case bytes.HasPrefix(text, []byte("<!--")):
			_, text, _ = bytes.Cut(text[4:], []byte("-->"))
		case bytes.HasPrefix(text, []byte("<?")):
			_, text, _ = bytes.Cut(text, []byte("?>"))
		default:
			return text
		}
	}
}

// skipDoctype goes past a document type declaration with its internal subset; quoted text and comments in there may
// hold any bracket.
func skipDoctype(text []byte) []byte {
	depth := 0
	for i := len("<!DOCTYPE"); i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' || c == '\'':
			end := bytes.IndexByte(text[i+1:], c)
			if end < 0 {
				return nil
			}
			i += end + 1
		case bytes.HasPrefix(text[i:], []byte("<!--")):
			end := bytes.Index(text[i:], []byte("-->"))
			if end < 0 {
				return nil
			}
			i += end + 2
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == '>' && depth == 0:
			return text[i+1:]
		}
	}
	return nil
}

// rootTag returns the name of the element that text begins with, prefix included, and whether it closes itself. The
// name is empty when text begins otherwise or is cut within the name.
func rootTag(text []byte) (name []byte, selfClosing bool) {
	if len(text) < 2 || text[0] != '<' || text[1] == '!' || text[1] == '/' {
		return nil, false
	}
	end := bytes.IndexAny(text, " \t\r\n/>")
	if end < 0 {
		return nil, false
	}
	name = text[1:end]
	for i := end; i < len(text); i++ {
		switch c := text[i]; c {
		case '"', '\'':
			quoted := bytes.IndexByte(text[i+1:], c)
			if quoted < 0 {
				return name, false
			}
			i += quoted + 1
		case '>':
			return name, text[i-1] == '/'
		}
	}
	return name, false
}

// trimMisc cuts off what may follow the root element. known is false when that begins before the tail does.
func trimMisc(tail []byte) (rest []byte, known bool) {
	for {
		tail = bytes.TrimRight(tail, " \t\r\n\f")
		opening := ""
		switch {
		case bytes.HasSuffix(tail, []byte("-->")):
			opening = "<!--"
		case bytes.HasSuffix(tail, []byte("?>")):
			opening = "<?"
		default:
			return tail, true
		}
		at := bytes.LastIndex(tail, []byte(opening))
		if at < 0 {
			return nil, false
		}
		tail = tail[:at]
	}
}
