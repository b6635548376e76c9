package setting

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written 512MiB, 1GB, 64KiB or as a plain number.
type Size int64

// units from the largest; each power of 1024 before the power of 1000 beside it, since that is what sizes are written in.
var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"TB", 1e12},
	{"GiB", 1 << 30}, {"GB", 1e9},
	{"MiB", 1 << 20}, {"MB", 1e6},
	{"KiB", 1 << 10}, {"KB", 1e3},
	{"B", 1},
}

// ParseSize reads a whole number of bytes with an optional unit. Upper and lower case are the same; K, M and G alone
// are refused, because people disagree on what they mean.
func ParseSize(text string) (Size, error) {
	if text == "" {
		return 0, errors.New("a size is missing, such as 512MiB or 1GB")
	}
	if strings.HasPrefix(text, "-") {
		return 0, fmt.Errorf("%q is negative", text)
	}
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	number, unit := text[:digits], strings.TrimLeft(text[digits:], " ")
	factor := factorOf(unit)
	if number == "" || factor == 0 {
		return 0, fmt.Errorf("%q is no size such as 512MiB, 1GB or 65536", text)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return Size(n * factor), nil
}

func factorOf(unit string) int64 {
	if unit == "" {
		return 1
	}
	for _, u := range units {
		if strings.EqualFold(unit, u.name) {
			return u.bytes
		}
	}
	return 0
}

// String writes the size in the largest unit that expresses it exactly: ParseSize reads it back unchanged.
func (s Size) String() string {
	if s == 0 {
		return "0"
	}
	for _, u := range units {
		if int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}
