package rest

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// century bounds what a header can ask for, so that adding it to a time does not overflow.
const century = 100 * 365 * 24 * time.Hour

// retryAt reads Retry-After (RFC 9110 §10.2.3): seconds, or a date in any of the three forms of §5.6.7. A date is taken
// relative to the answer's own Date, since the two clocks may differ. Zero: there is none that can be read.
func retryAt(header http.Header, now time.Time) time.Time {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if value == "" {
		return time.Time{}
	}
	if digits(value) {
		return now.Add(seconds(value))
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return time.Time{}
	}
	return now.Add(min(max(date.Sub(serverTime(header, now)), 0), century))
}

// serverTime is the time of the answer by the service's clock, or now where it does not say.
func serverTime(header http.Header, now time.Time) time.Time {
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		return date
	}
	return now
}

// seconds converts decimal digits; more than a century is a century.
func seconds(digits string) time.Duration {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > int64(century/time.Second) {
		return century
	}
	return time.Duration(n) * time.Second
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
