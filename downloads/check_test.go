package downloads

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf16"
)

// utf16Text encodes a text with its byte order mark.
func utf16Text(s string, bigEndian bool) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune("\ufeff" + s)) {
		if bigEndian {
			b.WriteString(string([]byte{byte(unit >> 8), byte(unit)}))
		} else {
			b.WriteString(string([]byte{byte(unit), byte(unit >> 8)}))
		}
	}
	return b.String()
}

func TestSniffRejectsOnlyWhatCannotBe(t *testing.T) {
	t.Parallel()
	const (
		login    = "<!DOCTYPE html>\n<html><title>Sign in</title>"
		apiError = `{"code":"TPL-0034","title":"Not found","message":"no file"}`
		named    = `attachment; filename="018f.html"`
	)
	long := `{"entity":"report","code":"0265","details":"` + strings.Repeat("x", edge)
	for name, c := range map[string]struct {
		ext, body, contentType, disposition string
		looks                               string // part of what it looks like; empty: accepted
	}{
		"pdf":                           {"pdf", "%PDF-1.7\n%\xe2\xe3", "application/pdf", "", ""},
		"pdf behind white space":        {"pdf", "\r\n%PDF-1.4", "", "", ""},
		"pdf behind a BOM":              {"pdf", "\xef\xbb\xbf%PDF-1.4", "", "", ""},
		"pdf behind a mail header":      {"pdf", strings.Repeat("x", 900) + "%PDF-1.4", "", "", ""},
		"pdf declared as something":     {"pdf", "%PDF-1.4", "text/html", "", ""},
		"pdf too far away":              {"pdf", strings.Repeat("x", 1100) + "%PDF-1.4", "", "", "no PDF"},
		"empty pdf":                     {"pdf", "", "", "", "no PDF"},
		"login as pdf":                  {"pdf", login, "application/pdf", "", "HTML"},
		"login that talks of pdf":       {"pdf", login + "%PDF-1.7", "", "", "HTML"},
		"error as pdf":                  {"pdf", apiError, "application/json", "", "JSON"},
		"text as pdf":                   {"pdf", "Missing Token", "", "", "no PDF"},
		"xml":                           {"xml", `<?xml version="1.0"?><doc/>`, "", "", ""},
		"xml without a declaration":     {"xml", "<doc>", "", "", ""},
		"xml in ISO-8859-1":             {"xml", "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><relat\xf3rio>", "", "", ""},
		"xml in UTF-16LE":               {"xml", utf16Text("<?xml version=\"1.0\"?><doc>", false), "", "", ""},
		"xml in UTF-16BE":               {"xml", utf16Text("<?xml version=\"1.0\"?><doc>", true), "", "", ""},
		"xml behind BOM and space":      {"xml", "\xef\xbb\xbf \n<doc>", "", "", ""},
		"xml about html":                {"xml", "<html5-report>", "", "", ""},
		"xml with a doctype":            {"xml", "<!DOCTYPE htmlish><htmlish>", "", "", ""},
		"xml that speaks of html":       {"xml", "<!-- <html> --><doc>", "", "", ""},
		"xml of white space so far":     {"xml", strings.Repeat(" ", edge), "", "", ""},
		"login as xml":                  {"xml", login, "application/xml", "", "HTML"},
		"xhtml as xml":                  {"xml", `<?xml version="1.0"?><!-- x --><html xmlns="x">`, "", "", "HTML"},
		"login in capitals":             {"xml", "<!doctype HTML PUBLIC>", "", "", "HTML"},
		"login in UTF-16":               {"xml", utf16Text(login, false), "", "", "HTML"},
		"error as xml":                  {"xml", apiError, "", "", "JSON"},
		"any JSON as xml":               {"xml", `[1,2]`, "", "", "JSON"},
		"empty xml":                     {"xml", " \n", "", "", "empty"},
		"html that is named":            {"html", login, "text/html", named, ""},
		"html named with an encoding":   {"html", login, "", `attachment; filename*=UTF-8''018%66.html`, ""},
		"html in capitals":              {"html", login, "", `ATTACHMENT; FILENAME="018F.HTML"`, ""},
		"login page":                    {"html", login, "text/html", "", "does not name"},
		"login page that is a download": {"html", login, "", `inline; filename="login.html"`, "does not name"},
		"error as html":                 {"html", apiError, "", named, "JSON"},
		"csv":                           {"csv", "a;b\n1;2", "text/csv", "", ""},
		"csv in ISO-8859-1":             {"csv", "descri\xe7\xe3o;valor", "", "", ""},
		"empty csv":                     {"csv", "", "", "", ""},
		"csv that begins with a tag":    {"csv", "<a>;<b>", "", "", ""},
		"login as csv":                  {"csv", " \n" + login, "", "", "HTML"},
		"bare html as csv":              {"csv", "<HTML>", "", "", "HTML"},
		"error as csv":                  {"csv", "\n" + apiError, "", "", "JSON"},
		"error with a message only":     {"csv", `{"message":"x","code":17}`, "", "", "JSON"},
		"error cut by head":             {"csv", `{"code":"0265","message":"` + strings.Repeat("x", edge), "", "", "JSON"},
		"perhaps an error, cut before":  {"csv", long, "", "", ""},
		"problem details":               {"txt", `{"type":"about:blank","status":503}`, "application/problem+json; charset=utf-8", "", "JSON"},
		"txt that is JSON":              {"txt", `{"code":1,"value":2}`, "application/json", "", ""},
		"txt with code inside":          {"txt", `{"rows":[{"code":1,"title":"x"}]}`, "", "", ""},
		"txt with braces":               {"txt", "{{ totals }}", "", "", ""},
		"json with code and title":      {"json", `{"code":"A","title":"an item"}`, "application/json", "", ""},
		"login as json":                 {"json", login, "", "", "HTML"},
		"bin":                           {"bin", "\x00\x01\x02", "", "", ""},
		"login as bin":                  {"bin", login, "", "", "HTML"},
		"error as json.enc":             {"json.enc", apiError, "", "", "JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head := c.body[:min(len(c.body), edge)]
			err := Sniff(c.ext, []byte(head), c.contentType, c.disposition, "018f")
			var not *NotTheFormatError
			switch {
			case c.looks == "" && err != nil:
				t.Errorf("a good body was rejected: %v", err)
			case c.looks != "" && (!errors.As(err, &not) || not.Want != c.ext || !strings.Contains(not.Looks, c.looks)):
				t.Errorf("got %v; want one that looks like %s", err, c.looks)
			}
		})
	}
}

func TestSniffLeavesItsArgumentAlone(t *testing.T) {
	t.Parallel()
	body := utf16Text("<!DOCTYPE html>", false)
	head := []byte(body)
	_ = Sniff("xml", head, "", "", "")
	_ = EndMark("xml", head, head)
	if string(head) != body {
		t.Error("the head was changed")
	}
}
