package reporter

import (
	"strings"
	"time"
)

// ParseTime reads one of Reporter's timestamps: RFC 3339, with any number of digits after the second. One without a
// zone is taken for UTC.
func ParseTime(s string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05"} { // both take a fraction too
		if t, err := time.Parse(layout, strings.TrimSpace(s)); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// SameCompletion reports whether two values of completedAt mean the same completion. Timestamps of one report differ in
// precision between calls, so they are compared at the coarser one, which may have been cut or rounded. Two empty ones
// are the same; ones that can't be read are compared as texts.
func SameCompletion(a, b string) bool {
	if a == b {
		return true
	}
	at, okA := ParseTime(a)
	bt, okB := ParseTime(b)
	if !okA || !okB {
		return false
	}
	coarse, fine, unit := at, bt, precision(a)
	if other := precision(b); other > unit {
		coarse, fine, unit = bt, at, other
	}
	return coarse.Equal(fine) || coarse.Equal(fine.Truncate(unit)) || coarse.Equal(fine.Round(unit))
}

// precision is the value of the last digit of a timestamp.
func precision(s string) time.Duration {
	unit := time.Second
	_, fraction, _ := strings.Cut(s, ".")
	for i := 0; i < len(fraction) && fraction[i] >= '0' && fraction[i] <= '9' && unit > 1; i++ {
		unit /= 10
	}
	return unit
}
