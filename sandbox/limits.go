package sandbox

import (
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// limits are the rate limits of the contract: fixed windows by client address, downloads and other GETs apart.
type limits struct {
	downloads, gets int
	window          time.Duration

	mu      sync.Mutex
	windows map[limitKey]*limitWindow
}

type limitKey struct {
	address  string
	download bool
}

type limitWindow struct {
	ends time.Time
	used int
}

func newLimits(o ReporterOptions) *limits {
	return &limits{downloads: o.DownloadLimit, gets: o.GetLimit, window: o.Window, windows: map[limitKey]*limitWindow{}}
}

// take counts a request. With a limit it sets the X-RateLimit headers of a request within it, and Retry-After of one
// that is over it; both are whole seconds, rounded up so that waiting them out is enough.
func (l *limits) take(h http.Header, req *http.Request, class string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.gets
	if class == ClassDownload {
		limit = l.downloads
	}
	if limit == 0 {
		return true
	}
	address, _, _ := net.SplitHostPort(req.RemoteAddr)
	now := time.Now()
	key := limitKey{address, class == ClassDownload}
	window := l.windows[key]
	if window == nil || !now.Before(window.ends) {
		window = &limitWindow{ends: now.Add(l.window)}
		l.windows[key] = window
	}
	window.used++
	left := limit - window.used
	seconds := strconv.Itoa(int((window.ends.Sub(now) + time.Second - 1) / time.Second))
	if left < 0 {
		h.Set("Retry-After", seconds)
		return false
	}
	h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
	h.Set("X-RateLimit-Reset", seconds)
	return true
}

// SetLimits changes the rate limits; 0 is none. Windows begin anew.
func (r *Reporter) SetLimits(downloads, gets int, window time.Duration) {
	r.limits.mu.Lock()
	defer r.limits.mu.Unlock()
	r.limits.downloads, r.limits.gets, r.limits.window = downloads, gets, window
	clear(r.limits.windows)
}
