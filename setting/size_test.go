package setting

import "testing"

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		size    Size
		written string
	}{
		"0":                   {0, "0"},
		"0MiB":                {0, "0"},
		"1":                   {1, "1B"},
		"1000":                {1000, "1KB"},
		"1024":                {1024, "1KiB"},
		"65536":               {65536, "64KiB"},
		"64KiB":               {65536, "64KiB"},
		"512MiB":              {512 << 20, "512MiB"},
		"512mib":              {512 << 20, "512MiB"},
		"512 MiB":             {512 << 20, "512MiB"},
		"4GiB":                {4 << 30, "4GiB"},
		"1GB":                 {1e9, "1GB"},
		"1500MB":              {1500e6, "1500MB"},
		"1536MiB":             {1536 << 20, "1536MiB"},
		"2TiB":                {2 << 40, "2TiB"},
		"3kb":                 {3000, "3KB"},
		"7B":                  {7, "7B"},
		"9223372036854775807": {9223372036854775807, "9223372036854775807B"},
	} {
		got, err := ParseSize(text)
		if err != nil || got != want.size {
			t.Errorf("%s: got %d, %v", text, got, err)
		}
		if got.String() != want.written {
			t.Errorf("%s: written %s, want %s", text, got, want.written)
		}
		if again, err := ParseSize(got.String()); again != got || err != nil {
			t.Errorf("%s: read again %d, %v", text, again, err)
		}
	}
}

func TestSizesThatAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    "a size is missing, such as 512MiB or 1GB",
		"-1":                  `"-1" is negative`,
		"MiB":                 `"MiB" is no size such as 512MiB, 1GB or 65536`,
		"1M":                  `"1M" is no size such as 512MiB, 1GB or 65536`,
		"1.5GiB":              `"1.5GiB" is no size such as 512MiB, 1GB or 65536`,
		"1 GiB more":          `"1 GiB more" is no size such as 512MiB, 1GB or 65536`,
		" 1":                  `" 1" is no size such as 512MiB, 1GB or 65536`,
		"0x10":                `"0x10" is no size such as 512MiB, 1GB or 65536`,
		"9223372036854775808": `"9223372036854775808" is too large`,
		"8388608TiB":          `"8388608TiB" is too large`,
	} {
		if s, err := ParseSize(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %d, %v, want %s", text, s, err, want)
		}
	}
}
