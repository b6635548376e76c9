package setting

import (
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		d       time.Duration
		written string
	}{
		"0":         {0, "0"},
		"0s":        {0, "0"},
		"90s":       {90 * time.Second, "1m30s"},
		"5m":        {5 * time.Minute, "5m"},
		"1h30m":     {90 * time.Minute, "1h30m"},
		"1h0m5s":    {time.Hour + 5*time.Second, "1h0m5s"},
		"20h10m":    {20*time.Hour + 10*time.Minute, "20h10m"},
		"48h":       {48 * time.Hour, "48h"},
		"72h":       {72 * time.Hour, "3d"},
		"400d":      {400 * 24 * time.Hour, "400d"},
		"1d12h":     {36 * time.Hour, "36h"},
		"1.5h":      {90 * time.Minute, "1h30m"},
		"250ms":     {250 * time.Millisecond, "250ms"},
		"10s":       {10 * time.Second, "10s"},
		"106751d":   {106751 * 24 * time.Hour, "106751d"},
		"2562047h":  {2562047 * time.Hour, "2562047h"},
		"106751d1h": {106751*24*time.Hour + time.Hour, "2562025h"},
	} {
		got, err := ParseDuration(text)
		if err != nil || got != want.d {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
		if written := FormatDuration(got); written != want.written {
			t.Errorf("%s: written %s, want %s", text, written, want.written)
		}
		if again, err := ParseDuration(FormatDuration(got)); again != got || err != nil {
			t.Errorf("%s: read again %v, %v", text, again, err)
		}
	}
}

func TestDurationsThatAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":           "a duration is missing, such as 90s, 5m, 48h or 400d",
		"-5m":        `"-5m" is negative`,
		"-0":         `"-0" is negative`,
		"90":         `"90" has no unit: write 90s, 90m, 90h or 90d`,
		"1.5":        `"1.5" has no unit: write 1.5s, 1.5m, 1.5h or 1.5d`,
		"5 m":        `"5 m" is no duration such as 90s, 5m, 48h or 400d`,
		"d":          `"d" is no duration such as 90s, 5m, 48h or 400d`,
		"1.5d":       `"1.5d" is no duration such as 90s, 5m, 48h or 400d`,
		"1d-1h":      `"1d-1h" is no duration such as 90s, 5m, 48h or 400d`,
		"1d1d":       `"1d1d" is no duration such as 90s, 5m, 48h or 400d`,
		"1h1d":       `"1h1d" is no duration such as 90s, 5m, 48h or 400d`,
		"+5m":        `"+5m" is no duration such as 90s, 5m, 48h or 400d`,
		"2w":         `"2w" is no duration such as 90s, 5m, 48h or 400d`,
		"soon":       `"soon" is no duration such as 90s, 5m, 48h or 400d`,
		"106752d":    `"106752d" is too long`,
		"106751d24h": `"106751d24h" is too long`,
	} {
		if d, err := ParseDuration(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, %v, want %s", text, d, err, want)
		}
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Range{
		"1s..15m":   {time.Second, 15 * time.Minute},
		"0..0":      {},
		"5m .. 6h":  {5 * time.Minute, 6 * time.Hour},
		"1h..1h":    {time.Hour, time.Hour},
		"100ms..7d": {100 * time.Millisecond, 7 * 24 * time.Hour},
	} {
		got, err := ParseRange(text)
		if err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
		if again, err := ParseRange(got.String()); again != got || err != nil {
			t.Errorf("%s: written %s, read again %v, %v", text, got, again, err)
		}
	}
	for text, want := range map[string]string{
		"":         `"" is no range such as 1s..15m`,
		"5m":       `"5m" is no range such as 1s..15m`,
		"1s-5m":    `"1s-5m" is no range such as 1s..15m`,
		"..5m":     "a duration is missing, such as 90s, 5m, 48h or 400d",
		"1s..":     "a duration is missing, such as 90s, 5m, 48h or 400d",
		"1s...5m":  `".5m" is no duration such as 90s, 5m, 48h or 400d`,
		"15m..1s":  `"15m..1s" begins with the longer duration: write 1s..15m`,
		"-1s..1s":  `"-1s" is negative`,
		"1s..5..6": `"5..6" is no duration such as 90s, 5m, 48h or 400d`,
	} {
		if r, err := ParseRange(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, %v, want %s", text, r, err, want)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"0", "1h30m", "400d", "1d12h", "-1s", "1.5h", "90", "9223372036854775807ns", "106751d23h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			return
		}
		if again, err := ParseDuration(FormatDuration(d)); d < 0 || again != d || err != nil {
			t.Errorf("%q is %d, written %q, read again %d: %v", text, d, FormatDuration(d), again, err)
		}
	})
}
