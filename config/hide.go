package config

import (
	"strings"

	"recibo/setting"
)

// shortest is the length from which a secret is looked for in text: a password such as "recibo" would otherwise be
// replaced in every path, and be told by where it is missing.
const shortest = 8

// scrub makes a text fit to be shown (law 7: a secret is never shown). A section's own check may have put a secret into
// its message, and a value that is no secret by its key may be an address with a password in it.
func scrub(text string, secrets []string) string {
	for _, secret := range secrets {
		if len(secret) >= shortest {
			text = strings.ReplaceAll(text, secret, setting.Hidden)
		}
	}
	return hideUser(text)
}

// hideUser hides the credentials of every URL in text: what stands between :// and the last @ that may belong to it.
// Passwords are often written as they are, with @, a slash, a comma or a space that should have been encoded; so it
// rather hides too much than too little. The name of a user who has a password is left.
func hideUser(text string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "://")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString("://")
		end := nextURL(rest)
		if at := strings.LastIndexByte(rest[:end], '@'); at >= 0 {
			out.WriteString(userName(rest[:at]) + setting.Hidden)
			rest, end = rest[at:], end-at
		}
		out.WriteString(rest[:end])
		text = rest[end:]
	}
}

// userName returns what of credentials may be shown: the name and its colon. It is empty where there is no password,
// since NATS and others take a lone token for it, and where several servers follow one scheme, the first without a user.
func userName(credentials string) string {
	name, password, _ := strings.Cut(credentials, ":")
	if password == "" || strings.ContainsAny(name, "@/?#, \t\r\n") {
		return ""
	}
	return name + ":"
}

// nextURL is where in text another URL begins: at a scheme behind a separator. It is the end of text when none does.
func nextURL(text string) int {
	for from := 0; ; {
		at := strings.Index(text[from:], "://")
		if at < 0 {
			return len(text)
		}
		at += from
		before := strings.LastIndexFunc(text[:at], func(c rune) bool { return !inScheme(c) })
		if before >= 0 && before+1 < at && strings.IndexByte(" \t\r\n,;\"'", text[before]) >= 0 {
			return before + 1
		}
		from = at + len("://")
	}
}

// inScheme reports whether a URL's scheme may hold c (RFC 3986 §3.1).
func inScheme(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("+-.", c)
}
