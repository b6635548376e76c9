package downloads

import (
	"strings"
	"testing"
)

func TestEndMarkTellsAWholeBodyFromACutOne(t *testing.T) {
	t.Parallel()
	filler := strings.Repeat("<row><cell>x</cell></row>\n", 1000)
	pdf := "%PDF-1.7\n" + strings.Repeat("stream\n", 2000) + "startxref\n1234\n%%EOF"
	for name, c := range map[string]struct {
		ext, body string
		want      Mark
	}{
		"pdf":                       {"pdf", pdf, Present},
		"pdf and a new line":        {"pdf", pdf + "\r\n", Present},
		"pdf and NULs":              {"pdf", pdf + strings.Repeat("\x00", 2000), Present},
		"pdf and a comment":         {"pdf", pdf + "\n% signed by the printer\n", Present},
		"pdf cut":                   {"pdf", pdf[:len(pdf)-1], Absent},
		"pdf cut in half":           {"pdf", pdf[:len(pdf)/2], Absent},
		"pdf updated and cut":       {"pdf", pdf + strings.Repeat("new objects\n", 200), Absent},
		"empty pdf":                 {"pdf", "", Absent},
		"html":                      {"html", "<html><body>" + filler + "</body></html>", Present},
		"html in capitals":          {"html", filler + "</BODY></HTML>\n", Present},
		"html spread out":           {"html", filler + "</html\n>", Present},
		"html and a comment":        {"html", filler + "</html><!-- 0.3 s -->", Present},
		"html in UTF-16":            {"html", utf16Text("<html></html>", true), Present},
		"html cut":                  {"html", filler + "</body></html", Absent},
		"html that names it":        {"html", filler + "</htmlish>", Absent},
		"xml":                       {"xml", "<?xml version=\"1.0\"?>\n<doc>" + filler + "</doc>", Present},
		"xml and white space":       {"xml", "<doc>" + filler + "</doc>\r\n \t", Present},
		"xml closed with a space":   {"xml", "<doc>" + filler + "</doc \n>", Present},
		"xml with a prefix":         {"xml", `<ns:doc xmlns:ns="urn:x">` + filler + "</ns:doc>", Present},
		"xml, other prefix":         {"xml", `<ns:doc xmlns:ns="urn:x">` + filler + "</doc>", Absent},
		"xml with a trailer":        {"xml", "<doc>" + filler + "</doc>\n<!-- a --> <?pi b?>\n<!-- c -->", Present},
		"xml with a long trailer":   {"xml", "<doc>" + filler + "</doc><!-- " + strings.Repeat("c", edge) + " -->", None},
		"xml cut behind a comment":  {"xml", "<doc>" + filler + "<!-- a -->", Absent},
		"xml cut":                   {"xml", "<doc>" + filler + "</doc", Absent},
		"xml cut in a row":          {"xml", "<doc>" + filler, Absent},
		"xml with an inner twin":    {"xml", "<doc>" + filler + "</document>", Absent},
		"xml ends like a twin":      {"xml", "<doc>" + filler + "</my-doc>", Absent},
		"xml in ISO-8859-1":         {"xml", "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><relat\xf3rio>" + filler + "</relat\xf3rio>", Present},
		"ISO-8859-1, cut":           {"xml", "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><relat\xf3rio>" + filler + "</relat\xf3", Absent},
		"xml in UTF-16LE":           {"xml", utf16Text("<?xml version=\"1.0\"?><relatório>"+filler+"</relatório>\n", false), Present},
		"xml in UTF-16BE":           {"xml", utf16Text("<doc>"+filler+"</doc>", true), Present},
		"UTF-16, cut":               {"xml", utf16Text("<doc>"+filler, true), Absent},
		"xml behind a BOM":          {"xml", "\xef\xbb\xbf<doc>" + filler + "</doc>", Present},
		"self-closing":              {"xml", `<?xml version="1.0"?><doc a="/>" b='>'/>`, Present},
		"self-closing, trailer":     {"xml", "<doc/>\n<!-- none -->", Present},
		"open, with a closing mark": {"xml", `<doc a="/>"><x/>`, Absent},
		"self-closing, cut":         {"xml", `<doc a="b"/`, Absent},
		"doctype":                   {"xml", `<!DOCTYPE doc [<!ENTITY gt ">"> <!-- don't ]> --> <!ELEMENT doc ANY>]><doc>` + filler + "</doc>", Present},
		"doctype, other root":       {"xml", `<!DOCTYPE doc SYSTEM "a>b"><doc>` + filler + "</row>", Absent},
		"comment before the root":   {"xml", "<!-- <fake> --><doc>" + filler + "</fake>", Absent},
		"declaration only":          {"xml", `<?xml version="1.0"?>`, Absent},
		"cut in the declaration":    {"xml", `<?xml vers`, Absent},
		"cut in the doctype":        {"xml", `<!DOCTYPE doc [<!ENTITY`, Absent},
		"cut in the root's name":    {"xml", `<do`, Absent},
		"long preface":              {"xml", "<!-- " + strings.Repeat("x", edge) + " --><doc></doc>", None},
		"long start tag":            {"xml", `<doc a="` + strings.Repeat("x", edge) + `">` + filler + "</doc>", Present},
		"empty xml":                 {"xml", "", Absent},
		"no xml at all":             {"xml", "hello", None},
		"csv":                       {"csv", "a;b\n", None},
		"txt":                       {"txt", "x", None},
		"json":                      {"json", "{}", None},
		"bin":                       {"bin", "%%EOF", None},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head, tail := c.body[:min(len(c.body), edge)], c.body[max(0, len(c.body)-edge):]
			if got := EndMark(c.ext, []byte(head), []byte(tail)); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func FuzzChecksTakeAnyBytes(f *testing.F) {
	for _, seed := range []string{"", "<", "<!", "<?", "<a", "<a/", "<a/>", "<!DOCTYPE", "<!DOCTYPE a [", `{"code":`, "-->", "?>", "<!--", "%PDF-", "\x00<\x00a"} {
		f.Add([]byte(seed), []byte(seed))
	}
	f.Fuzz(func(_ *testing.T, head, tail []byte) {
		for _, ext := range extensions() {
			_ = Sniff(ext, head, "text/html", "attachment", "id")
			_ = EndMark(ext, head, tail)
		}
	})
}
