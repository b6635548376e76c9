package downloads

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Place is what decides where a file goes.
type Place struct {
	ID        string // 1 to 128 of letters, digits, '-', '_' and '.'
	Ext       string // one that Ext returns
	Revision  int    // 1-based; from 2 on the name is <id>-r2.<ext>, unless revisions replace each other
	Template  string // empty: unknown
	Tenant    string // empty: unknown
	Completed time.Time
}

// Path returns the relative final name, with forward slashes. It fails with *NameError for an id or extension that
// can't be part of a file name.
func (f *Folder) Path(p Place) (string, error) {
	if f.config.OnRevision == Replace {
		p.Revision = 1
	}
	return f.layout.name(p)
}

// layout is a parsed template: parts per segment of the name.
type layout struct {
	segments [][]part
	idAt     int // the segment whose {id} carries the revision
}

// part is a literal, or the placeholder key.
type part struct{ literal, key string }

// maxSegment leaves room for .receipt.json within the 255 bytes that file systems allow.
const maxSegment = 255 - len(manifestSuffix)

// width is the most bytes a placeholder becomes, -1 for none of ours; {id} includes the mark of a revision.
func width(key string) int {
	switch key {
	case "id":
		return maxID + len("-r999999")
	case "ext":
		return len("json.enc")
	case "template", "tenant":
		return maxValue
	case "yyyy":
		return 4
	case "mm", "dd":
		return 2
	}
	return -1
}

func parseLayout(s string) (layout, error) {
	l := layout{idAt: -1}
	ext := false
	for i, segment := range strings.Split(s, "/") {
		parts, err := parseSegment(segment)
		if err != nil {
			return layout{}, err
		}
		for _, p := range parts {
			ext = ext || p.key == "ext"
			if p.key == "id" {
				l.idAt = i
			}
		}
		l.segments = append(l.segments, parts)
	}
	if l.idAt < 0 || !ext {
		return layout{}, errors.New("must contain {id} and {ext}")
	}
	return l, nil
}

func parseSegment(s string) ([]part, error) {
	switch {
	case s == "":
		return nil, errors.New("must be relative and have no empty segment")
	case s[0] == '.':
		return nil, fmt.Errorf("no segment may start with a dot: %q (%s is the agent's own)", s, ownFolder)
	case strings.TrimSpace(s) != s || s[len(s)-1] == '.':
		return nil, fmt.Errorf("no segment may start or end with white space or end with a dot: %q", s)
	case undevice(s) != s:
		return nil, fmt.Errorf("%q is the name of a device on Windows", s)
	}
	var parts []part
	length := 0
	for s != "" {
		literal, rest, found := strings.Cut(s, "{")
		if err := checkLiteral(literal); err != nil {
			return nil, err
		}
		if literal != "" {
			parts = append(parts, part{literal: literal})
			length += len(literal)
		}
		if !found {
			break
		}
		key, after, closed := strings.Cut(rest, "}")
		if !closed || width(key) < 0 {
			return nil, fmt.Errorf("{%s is no placeholder: there are {id}, {ext}, {template}, {tenant}, {yyyy}, {mm}, {dd}", rest)
		}
		parts = append(parts, part{key: key})
		length += width(key)
		s = after
	}
	if length > maxSegment {
		return nil, fmt.Errorf("a segment may become %d bytes long, and %d is the most", length, maxSegment)
	}
	return parts, nil
}

func checkLiteral(s string) error {
	for _, r := range s {
		if strings.ContainsRune(`\:*?"<>|}`, r) || r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return fmt.Errorf("the character %q is not portable in file names", r)
		}
	}
	return nil
}

func (l layout) name(p Place) (string, error) {
	if err := checkID(p.ID); err != nil {
		return "", err
	}
	if err := checkExt(p.Ext); err != nil {
		return "", err
	}
	segments := make([]string, len(l.segments))
	for i, parts := range l.segments {
		revision := ""
		if i == l.idAt && p.Revision > 1 {
			revision = "-r" + strconv.Itoa(p.Revision)
		}
		var b strings.Builder
		for _, part := range parts {
			b.WriteString(part.literal + value(part.key, p, revision))
		}
		segments[i] = undevice(b.String())
	}
	name := strings.Join(segments, "/")
	return name, checkName(name)
}

// value is what stands for a placeholder; none of them starts or ends with a dot.
func value(key string, p Place, revision string) string {
	switch key {
	case "id":
		return p.ID + revision
	case "ext":
		return p.Ext
	case "template":
		return safe(p.Template)
	case "tenant":
		return safe(p.Tenant)
	case "yyyy":
		return date(p.Completed, "2006")
	case "mm":
		return date(p.Completed, "01")
	case "dd":
		return date(p.Completed, "02")
	}
	return ""
}

func date(at time.Time, format string) string {
	if at.IsZero() {
		return "_"
	}
	return at.UTC().Format(format)
}
