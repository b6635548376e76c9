package rest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// maxHops is how many redirects one request follows.
const maxHops = 3

// redirectError is a redirect that is not followed. It names origins only: paths and queries may hold credentials.
type redirectError struct{ text string }

func (e *redirectError) Error() string { return e.text }

// follow returns the policy for redirects: at most hops, never from https to http, and once a chain has left the
// service's origin the request keeps nothing of ours (law 7: no secret to another origin). net/http itself would carry
// custom headers anywhere, and Authorization to another port or scheme of the same host.
func follow(hops int) func(*http.Request, []*http.Request) error {
	return func(next *http.Request, via []*http.Request) error {
		from := via[len(via)-1].URL
		switch {
		case len(via) > hops && hops == 0:
			return &redirectError{"redirected to " + origin(next.URL) + ", where it is not followed"}
		case len(via) > hops:
			return &redirectError{fmt.Sprintf("more than %d redirects, the last to %s", hops, origin(next.URL))}
		case next.URL.Scheme != "http" && next.URL.Scheme != "https":
			return &redirectError{"redirected to something that is neither http nor https"}
		case from.Scheme == "https" && next.URL.Scheme == "http":
			return &redirectError{"redirected from https to plain http at " + origin(next.URL)}
		}
		if leaves(next, via) {
			next.Header = impersonal(next.Header)
		}
		return nil
	}
}

// leaves reports whether any hop of the chain has been at another origin than the first.
func leaves(next *http.Request, via []*http.Request) bool {
	for _, hop := range append(via[1:len(via):len(via)], next) {
		if !sameOrigin(hop.URL, via[0].URL) {
			return true
		}
	}
	return false
}

// impersonal keeps what says nothing about us.
func impersonal(header http.Header) http.Header {
	kept := http.Header{}
	for _, name := range []string{"Accept", "Accept-Encoding", "User-Agent", "Range", "If-Range"} {
		if values := header.Values(name); len(values) > 0 {
			kept[name] = values
		}
	}
	return kept
}

func sameOrigin(a, b *url.URL) bool { return origin(a) == origin(b) }

// origin is scheme, host and port (RFC 6454 §4).
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + Harmless(strings.ToLower(u.Hostname()), excerptSize) + ":" + port
}
