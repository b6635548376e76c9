package setting

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// day is what the unit d stands for; no configuration key depends on days that a clock change makes longer or shorter.
const day = 24 * time.Hour

// Range is two durations, the shortest and the longest of something, written `1s..15m`.
type Range struct{ Min, Max time.Duration }

// ParseDuration reads 90s, 5m, 48h, 400d, 1h30m or 1d12h. A number without a unit is refused, except 0, and so is
// anything negative.
func ParseDuration(text string) (time.Duration, error) {
	switch {
	case text == "":
		return 0, errors.New("a duration is missing, such as 90s, 5m, 48h or 400d")
	case text == "0":
		return 0, nil
	case strings.HasPrefix(text, "-"):
		return 0, fmt.Errorf("%q is negative", text)
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf("%q has no unit: write %ss, %sm, %sh or %sd", text, text, text, text, text)
	}
	malformed := fmt.Errorf("%q is no duration such as 90s, 5m, 48h or 400d", text)
	days, rest, hasDays := strings.Cut(text, "d")
	if !hasDays {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 32)
	if err != nil {
		return 0, malformed
	}
	if n > uint64(math.MaxInt64/day) {
		return 0, fmt.Errorf("%q is too long", text)
	}
	total := time.Duration(n) * day
	if rest == "" {
		return total, nil
	}
	if rest[0] < '0' || rest[0] > '9' { // a second sign, or .5h
		return 0, malformed
	}
	part, err := time.ParseDuration(rest)
	if err != nil {
		return 0, malformed
	}
	if part > math.MaxInt64-total {
		return 0, fmt.Errorf("%q is too long", text)
	}
	return total + part, nil
}

// FormatDuration writes a duration the way a person would: 90s as 1m30s, an hour as 1h, and from three days on whole
// days as 400d. ParseDuration reads it back unchanged.
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	if d >= 3*day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	text := d.String()
	if d >= time.Minute || d <= -time.Minute {
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
	}
	return text
}

// ParseRange reads two durations joined by two dots, the shorter one first.
func ParseRange(text string) (Range, error) {
	low, high, ok := strings.Cut(text, "..")
	if !ok {
		return Range{}, fmt.Errorf("%q is no range such as 1s..15m", text)
	}
	var r Range
	var err error
	if r.Min, err = ParseDuration(strings.TrimSpace(low)); err != nil {
		return Range{}, err
	}
	if r.Max, err = ParseDuration(strings.TrimSpace(high)); err != nil {
		return Range{}, err
	}
	if r.Min > r.Max {
		return Range{}, fmt.Errorf("%q begins with the longer duration: write %s..%s", text, FormatDuration(r.Max), FormatDuration(r.Min))
	}
	return r, nil
}

// String writes the range so that ParseRange reads it back.
func (r Range) String() string { return FormatDuration(r.Min) + ".." + FormatDuration(r.Max) }
