package downloads

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"mime"
	"path"
	"slices"
	"strings"
)

// Lengths in bytes of what may be put into a name.
const (
	maxID    = 128
	maxValue = 64
)

// extensions are the only ones a file can get. Those in two parts come before their last part.
func extensions() []string {
	return []string{"json.enc", "pdf", "xml", "html", "csv", "txt", "json", "bin"}
}

// Ext chooses a file's extension from the list that is used here: by the file name that the server gave, which may be
// anything, then by the media type, with bin for what neither names.
func Ext(contentType, fileName string) string {
	name := strings.ToLower(fileName)
	for _, ext := range extensions() {
		if strings.HasSuffix(name, "."+ext) {
			return ext
		}
	}
	if strings.HasSuffix(name, ".htm") {
		return "html"
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil && media == "" {
		media, _, _ = strings.Cut(contentType, ";")
		media = strings.ToLower(strings.TrimSpace(media))
	}
	switch media {
	case "text/plain":
		return "txt"
	case "application/xml", "text/xml":
		return "xml"
	case "text/html":
		return "html"
	case "text/csv":
		return "csv"
	case "application/pdf":
		return "pdf"
	case "application/json":
		return "json"
	}
	return "bin"
}

// FileName returns the file name in a Content-Disposition header (RFC 6266), empty when there is none. It is only good
// for Ext and for showing.
func FileName(disposition string) string {
	_, params, err := mime.ParseMediaType(disposition)
	if err != nil && params == nil {
		return ""
	}
	return params["filename"]
}

// checkID accepts ids that are plain file names everywhere, and no others: two ids must never share a file.
func checkID(id string) error {
	fault := func(why string) error { return &NameError{"id", id, why} }
	switch {
	case id == "":
		return fault("it is empty")
	case len(id) > maxID:
		return fault("it is longer than 128 bytes")
	case !plain(id):
		return fault("only letters, digits, '-', '_' and '.' are taken")
	case id[0] == '.' || id[0] == '-' || id[len(id)-1] == '.':
		return fault("it must not start with '.' or '-' or end with '.'")
	}
	return nil
}

func checkExt(ext string) error {
	if !slices.Contains(extensions(), ext) {
		return &NameError{"extension", ext, "it is none of " + strings.Join(extensions(), ", ")}
	}
	return nil
}

// checkName accepts relative names of files outside our own corner.
func checkName(name string) error {
	first, _, _ := strings.Cut(name, "/")
	if !fs.ValidPath(name) || name == "." || strings.ContainsRune(name, 0) || strings.EqualFold(first, ownFolder) {
		return &NameError{"name", name, "it must be relative, without '..', and outside " + ownFolder}
	}
	return nil
}

// checkStaged accepts names that Stage gives.
func checkStaged(name string) error {
	if !fs.ValidPath(name) || path.Base(name) != name || !strings.HasSuffix(name, partSuffix) {
		return &NameError{"staged name", name, "Stage gives no such names"}
	}
	return nil
}

// safe makes a value from outside fit for a name. A value that had to be changed gets a hash of the original, so that
// two values don't become one; the unknown value is "_".
func safe(value string) string {
	if value == "" {
		return "_"
	}
	if len(value) <= maxValue && plain(value) && value != "_" &&
		value[0] != '.' && value[0] != '-' && value[len(value)-1] != '.' {
		return value
	}
	kept := []byte(value[:min(len(value), maxValue-9)])
	for i, b := range kept {
		if !plainByte(b) || b == '.' || i == 0 && b == '-' {
			kept[i] = '_'
		}
	}
	return string(kept) + "-" + short(value)
}

func plain(s string) bool {
	for i := range len(s) {
		if !plainByte(s[i]) {
			return false
		}
	}
	return true
}

func plainByte(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '-' || b == '_' || b == '.'
}

// short is 8 hexadecimal digits that stand for a value.
func short(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:4])
}

// undevice changes a segment that Windows would take for a device, whatever its extension: shares are read from there.
func undevice(segment string) string {
	stem, rest, dotted := strings.Cut(segment, ".")
	if !device(stem) {
		return segment
	}
	stem += "-" + short(segment)
	if dotted {
		stem += "."
	}
	return stem + rest
}

func device(stem string) bool {
	stem = strings.ToUpper(strings.TrimRight(stem, " "))
	switch stem {
	case "CON", "PRN", "AUX", "NUL":
		return true
	}
	return len(stem) == 4 && (stem[:3] == "COM" || stem[:3] == "LPT") && '0' <= stem[3] && stem[3] <= '9'
}
