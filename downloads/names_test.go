package downloads

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestIDsThatAreNoPlainFileNamesAreRefused(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	for name, id := range map[string]string{
		"empty":              "",
		"parent":             "..",
		"traversal":          "../../etc/passwd",
		"absolute":           "/etc/passwd",
		"backslashes":        `..\..\windows`,
		"encoded slash":      "..%2f..%2fetc",
		"NUL":                "abc\x00.pdf",
		"new line":           "abc\ndef",
		"hidden":             ".bashrc",
		"own folder":         ".recibo",
		"an option":          "-rf",
		"ends with a dot":    "abc.",
		"stream":             "abc:stream",
		"too long":           strings.Repeat("a", 129),
		"very long":          strings.Repeat("a", 100_000),
		"unicode":            "relatório",
		"full-width solidus": "a／b",
		"right-to-left":      "abc\u202efdp",
		"not UTF-8":          "abc\xff",
		"white space":        "a b",
		"shell":              "$(reboot)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var refused *NameError
			if path, err := f.Path(Place{ID: id, Ext: "pdf"}); !errors.As(err, &refused) || refused.What != "id" {
				t.Errorf("Path gives %q, %v; want a NameError about the id", path, err)
			}
			if _, err := f.Stage(id); !errors.As(err, &refused) {
				t.Errorf("Stage gives %v; want a NameError", err)
			}
			if refused != nil && len(refused.Error()) > 1000 {
				t.Errorf("the error repeats %d bytes", len(refused.Error()))
			}
		})
	}
}

func TestPathFollowsTheLayout(t *testing.T) {
	t.Parallel()
	completed := time.Date(2026, 3, 1, 1, 30, 0, 0, time.FixedZone("", 3*3600)) // still February in UTC
	everything := "{tenant}/{yyyy}/{mm}-{dd}/{template}/{id}.{ext}"
	for name, c := range map[string]struct {
		layout string
		place  Place
		want   string
	}{
		"default":          {"{id}.{ext}", Place{ID: "018f-a", Ext: "pdf"}, "018f-a.pdf"},
		"first revision":   {"{id}.{ext}", Place{ID: "018f-a", Ext: "pdf", Revision: 1}, "018f-a.pdf"},
		"second revision":  {"{id}.{ext}", Place{ID: "018f-a", Ext: "pdf", Revision: 2}, "018f-a-r2.pdf"},
		"two-part ext":     {"{id}.{ext}", Place{ID: "job", Ext: "json.enc", Revision: 3}, "job-r3.json.enc"},
		"all, in UTC":      {everything, Place{ID: "i", Ext: "xml", Template: "t", Tenant: "acme", Completed: completed}, "acme/2026/02-28/t/i.xml"},
		"nothing known":    {everything, Place{ID: "i", Ext: "xml"}, "_/_/_-_/_/i.xml"},
		"one _ for real":   {"{tenant}/{id}.{ext}", Place{ID: "i", Ext: "xml", Tenant: "_"}, "_-" + short("_") + "/i.xml"},
		"parent as tenant": {"{tenant}/{id}.{ext}", Place{ID: "i", Ext: "xml", Tenant: ".."}, "__-" + short("..") + "/i.xml"},
		"slashes":          {"{tenant}/{id}.{ext}", Place{ID: "i", Ext: "xml", Tenant: "../a"}, "___a-" + short("../a") + "/i.xml"},
		"unicode":          {"{tenant}/{id}.{ext}", Place{ID: "i", Ext: "xml", Tenant: "é"}, "__-" + short("é") + "/i.xml"},
		"own folder":       {"{tenant}/{id}.{ext}", Place{ID: "i", Ext: "xml", Tenant: ".recibo"}, "_recibo-" + short(".recibo") + "/i.xml"},
		"device tenant":    {"{tenant}/{id}.{ext}", Place{ID: "i", Ext: "xml", Tenant: "nul"}, "nul-" + short("nul") + "/i.xml"},
		"device id":        {"{id}.{ext}", Place{ID: "CON", Ext: "pdf"}, "CON-" + short("CON.pdf") + ".pdf"},
		"device with dots": {"{id}.{ext}", Place{ID: "com1.x", Ext: "pdf"}, "com1-" + short("com1.x.pdf") + ".x.pdf"},
		"composed device":  {"{tenant}{dd}/{id}.{ext}", Place{ID: "i", Ext: "xml", Tenant: "lp"}, "lp_/i.xml"},
		"composed CON":     {"c{tenant}/{id}.{ext}", Place{ID: "i", Ext: "xml", Tenant: "on"}, "con-" + short("con") + "/i.xml"},
		"id as a folder":   {"{id}/{id}.{ext}", Place{ID: "i", Ext: "xml", Revision: 2}, "i/i-r2.xml"},
		"id only above":    {"{id}/report.{ext}", Place{ID: "i", Ext: "xml", Revision: 2}, "i-r2/report.xml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := folderOf(t, func(c2 *Config) { c2.Layout = c.layout })
			got, err := f.Path(c.place)
			if err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestReplaceKeepsTheFirstName(t *testing.T) {
	t.Parallel()
	f := folderOf(t, func(c *Config) { c.OnRevision = Replace })
	if got, err := f.Path(Place{ID: "i", Ext: "pdf", Revision: 4}); err != nil || got != "i.pdf" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestUnknownExtensionIsRefused(t *testing.T) {
	t.Parallel()
	f := folderOf(t, nil)
	for _, ext := range []string{"", "exe", "PDF", "pdf/..", "json.", "enc"} {
		var refused *NameError
		if got, err := f.Path(Place{ID: "i", Ext: ext}); !errors.As(err, &refused) {
			t.Errorf("%q gives %q, %v", ext, got, err)
		}
	}
}

func TestDifferentValuesStayDifferent(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	long := strings.Repeat("x", 100)
	for _, v := range []string{"", "_", "__", ".", "..", "...", "a", "A/", `a\`, "a/", "a_", "a ", " a", "a\x00", "á", "à", "-a", "_a", ".a", "a.",
		long, long + "y", long[:64], long[:65], "a.b", "a.b/", "a_b/", "CON", "%2e%2e"} {
		got := safe(v)
		if before, taken := seen[got]; taken {
			t.Errorf("%q and %q both become %q", before, v, got)
		}
		seen[got] = v
		if !plain(got) || len(got) > maxValue || got[0] == '.' || got[0] == '-' || got[len(got)-1] == '.' {
			t.Errorf("%q becomes %q", v, got)
		}
	}
}

func TestExtComesFromTheFileNameThenTheMediaType(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ contentType, fileName, want string }{
		{"application/octet-stream", "018f.pdf", "pdf"},
		{"text/plain", "018f.CSV", "csv"},
		{"", `..\..\evil.html`, "html"},
		{"", "job.json.enc", "json.enc"},
		{"", "page.htm", "html"},
		{"application/pdf", "report.exe", "pdf"},
		{"application/pdf", "pdf", "pdf"},
		{"text/plain; charset=utf-8", "", "txt"},
		{"application/xml", "", "xml"},
		{"Text/XML;charset=ISO-8859-1", "", "xml"},
		{"text/html", "", "html"},
		{"text/csv; header=present", "", "csv"},
		{"text/csv; broken=", "", "csv"},
		{"application/json", "", "json"},
		{"application/octet-stream", "", "bin"},
		{"", "", "bin"},
		{"application/x-sh", "run.sh", "bin"},
	} {
		if got := Ext(c.contentType, c.fileName); got != c.want {
			t.Errorf("Ext(%q, %q) = %q, want %q", c.contentType, c.fileName, got, c.want)
		}
	}
}

func TestFileNameReadsContentDisposition(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		`attachment; filename="018f.pdf"`:         "018f.pdf",
		`attachment; filename=018f.xml`:           "018f.xml",
		`attachment; filename*=UTF-8''a%20b.csv`:  "a b.csv",
		`attachment; filename="../../etc/passwd"`: "../../etc/passwd", // only ever looked at for its extension
		`attachment`:                   "",
		`attachment; filename="broken`: "",
		``:                             "",
	} {
		if got := FileName(header); got != want {
			t.Errorf("%s gives %q, want %q", header, got, want)
		}
	}
}
