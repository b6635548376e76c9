package config

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"recibo/setting"
)

func TestNothingKeepsTheDefaults(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"", "\n", "# a remark\n", "---\n", "--- \n...\n", "{}\n", "kitchen:\ndoor:\n", "kitchen: {}\n", "\ufeffkitchen: ~\n"} {
		h, _, warnings, err := loadHouse(t, file, nil, "PATH=/bin", "RECIBO_CONFIG=x")
		if err != nil || len(warnings) > 0 {
			t.Errorf("%q: %v %v", file, err, warnings)
			continue
		}
		if h.Kitchen.Cooks != 4 || h.Kitchen.Every != 5*time.Minute || h.Kitchen.Dir != "DIR/data" || h.Garden != nil || h.Kitchen.Limit != nil {
			t.Errorf("%q: %+v", file, h)
		}
	}
}

// Every line sets one key and says what it must hold then.
func TestValuesAreReadAsMeant(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file string
		env  []string
		got  func(house) any
		want any
	}{
		"octal mode without quotes": {file: "kitchen: {mode: 0640}", got: func(h house) any { return h.Kitchen.Mode }, want: "0640"},
		"octal mode with quotes":    {file: "kitchen: {mode: '0600'}", got: func(h house) any { return h.Kitchen.Mode }, want: "0600"},
		"octal mode of YAML 1.2":    {file: "kitchen: {mode: 0o640}", got: func(h house) any { return h.Kitchen.Mode }, want: "0o640"},
		"text of digits":            {file: "kitchen: {mode: 1_000}", got: func(h house) any { return h.Kitchen.Mode }, want: "1_000"},
		"empty text":                {file: `kitchen: {mode: ""}`, got: func(h house) any { return h.Kitchen.Mode }, want: ""},
		"block text":                {file: "kitchen:\n  mode: |-\n    a\n    b\n", got: func(h house) any { return h.Kitchen.Mode }, want: "a\nb"},
		"truth value in quotes":     {file: `kitchen: {mode: "true"}`, got: func(h house) any { return h.Kitchen.Mode }, want: "true"},
		"remark":                    {file: "kitchen:\n  mode: a#b # c\n", got: func(h house) any { return h.Kitchen.Mode }, want: "a#b"},
		"line ends of Windows":      {file: "kitchen:\r\n  mode: a\r\n  cooks: 7\r\n", got: func(h house) any { return h.Kitchen.Mode }, want: "a"},
		"no byte order mark":        {file: "\ufeffkitchen: {mode: a}", got: func(h house) any { return h.Kitchen.Mode }, want: "a"},
		"false":                     {file: "kitchen: {open: false}", got: func(h house) any { return h.Kitchen.Open }, want: false},
		"number":                    {file: "kitchen: {cooks: 12}", got: func(h house) any { return h.Kitchen.Cooks }, want: 12},
		"share":                     {file: "kitchen: {share: 0.75}", got: func(h house) any { return h.Kitchen.Share }, want: 0.75},
		"port":                      {file: "kitchen: {port: 9790}", got: func(h house) any { return h.Kitchen.Port }, want: uint16(9790)},
		"optional number":           {file: "kitchen: {limit: 0}", got: func(h house) any { return *h.Kitchen.Limit }, want: 0},
		"duration":                  {file: "kitchen: {poll_every: 1h30m}", got: func(h house) any { return h.Kitchen.Every }, want: 90 * time.Minute},
		"days":                      {file: "kitchen: {poll_every: 400d}", got: func(h house) any { return h.Kitchen.Every }, want: 400 * 24 * time.Hour},
		"duration of nothing":       {file: "kitchen: {poll_every: 0}", got: func(h house) any { return h.Kitchen.Every }, want: time.Duration(0)},
		"size":                      {file: "kitchen: {pot: 512MiB}", got: func(h house) any { return h.Kitchen.Pot }, want: setting.Size(512 << 20)},
		"size in bytes":             {file: "kitchen: {pot: 4096}", got: func(h house) any { return h.Kitchen.Pot }, want: setting.Size(4096)},
		"range":                     {file: "kitchen: {backoff: 2s..1h}", got: func(h house) any { return h.Kitchen.Backoff }, want: setting.Range{Min: 2 * time.Second, Max: time.Hour}},
		"day":                       {file: "kitchen: {start_at: 2026-01-31}", got: func(h house) any { return h.Kitchen.StartAt }, want: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)},
		"time":                      {file: "kitchen: {start_at: 2026-01-31T08:00:00Z}", got: func(h house) any { return h.Kitchen.StartAt }, want: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)},
		"no time":                   {file: `kitchen: {start_at: ""}`, got: func(h house) any { return h.Kitchen.StartAt.IsZero() }, want: true},
		"relative path":             {file: "kitchen: {dir: ../x}", got: func(h house) any { return h.Kitchen.Dir[len(h.Kitchen.Dir)-2:] }, want: "/x"},
		"absolute path":             {file: "kitchen: {dir: /x/../y}", got: func(h house) any { return h.Kitchen.Dir }, want: "/x/../y"},
		"empty path":                {file: `kitchen: {dir: ""}`, got: func(h house) any { return h.Kitchen.Dir }, want: ""},
		"path of no file":           {file: "garden: {path: hook}", got: func(h house) any { return h.Garden.Route }, want: "hook"},
		"section without keys":      {file: "garden:\n", got: func(h house) any { return *h.Garden }, want: garden{Trees: 3, Route: "/events"}},
		"section with one key":      {file: "garden: {trees: 9}", got: func(h house) any { return *h.Garden }, want: garden{Trees: 9, Route: "/events"}},
		"default of an element":     {file: "door: {keys: [{id: a}]}", got: func(h house) any { return h.Door.Keys[0].Weight }, want: 1},
		"list on lines":             {file: "door:\n  subjects:\n  - a\n  - b\n", got: subjects, want: "a b"},
		"empty list":                {file: "door: {subjects: []}", got: subjects, want: ""},

		"variable":                   {file: "kitchen: {mode: '${M}'}", env: []string{"M=x"}, got: func(h house) any { return h.Kitchen.Mode }, want: "x"},
		"variable without quotes":    {file: "kitchen:\n  mode: ${M}\n", env: []string{"M=x: {y"}, got: func(h house) any { return h.Kitchen.Mode }, want: "x: {y"},
		"variable for a number":      {file: "kitchen:\n  cooks: ${N}\n", env: []string{"N=8"}, got: func(h house) any { return h.Kitchen.Cooks }, want: 8},
		"variable for a truth value": {file: "kitchen:\n  open: \"${OPEN:-false}\"\n", got: func(h house) any { return h.Kitchen.Open }, want: false},
		"default for a variable":     {file: "door:\n  url: ${U:-http://h:1/p}/q\n", got: func(h house) any { return h.Door.URL }, want: "http://h:1/p/q"},
		"default for an empty one":   {file: "door:\n  url: ${U:-x}\n", env: []string{"U="}, got: func(h house) any { return h.Door.URL }, want: "x"},
		"empty variable":             {file: "door:\n  url: ${U}\n", env: []string{"U="}, got: func(h house) any { return h.Door.URL }, want: ""},
		"two variables":              {file: "door:\n  url: ${A}-${B}\n", env: []string{"A=1", "B=${A}"}, got: func(h house) any { return h.Door.URL }, want: "1-${A}"},
		"dollars":                    {file: "door:\n  url: a$b$$c$${D}$\n", got: func(h house) any { return h.Door.URL }, want: "a$b$c${D}$"},

		"overriding a text":         {file: "door: {url: a}", env: []string{"RECIBO_DOOR_URL=b"}, got: func(h house) any { return h.Door.URL }, want: "b"},
		"overriding without a file": {env: []string{"RECIBO_DOOR_URL=${b}"}, got: func(h house) any { return h.Door.URL }, want: "${b}"},
		"overriding with nothing":   {env: []string{"RECIBO_DOOR_URL="}, got: func(h house) any { return h.Door.URL }, want: ""},
		"overriding a word":         {env: []string{"RECIBO_KITCHEN_POLL_EVERY=2m"}, got: func(h house) any { return h.Kitchen.Every }, want: 2 * time.Minute},
		"overriding a mode":         {env: []string{"RECIBO_KITCHEN_MODE=true"}, got: func(h house) any { return h.Kitchen.Mode }, want: "true"},
		"overriding a list":         {file: "door: {subjects: [x]}", env: []string{"RECIBO_DOOR_SUBJECTS=a, b"}, got: subjects, want: "a b"},
		"overriding a list, empty":  {env: []string{"RECIBO_DOOR_SUBJECTS="}, got: subjects, want: ""},
		"overriding in an empty section": {
			file: "kitchen:\n", env: []string{"RECIBO_KITCHEN_COOKS=9"}, got: func(h house) any { return h.Kitchen.Cooks }, want: 9,
		},
		"overriding turns a section on": {env: []string{"RECIBO_GARDEN_TREES=1"}, got: func(h house) any { return *h.Garden }, want: garden{Trees: 1, Route: "/events"}},
		"overriding what is wrong":      {file: "kitchen: {cooks: x}", env: []string{"RECIBO_KITCHEN_COOKS=9"}, got: func(h house) any { return h.Kitchen.Cooks }, want: 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, _, warnings, err := loadHouse(t, tt.file, nil, tt.env...)
			if err != nil || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			if got := tt.got(h); got != tt.want {
				t.Errorf("got %#v, want %#v", got, tt.want)
			}
		})
	}
}

func subjects(h house) any {
	joined := ""
	for i, s := range h.Door.Subjects {
		if i > 0 {
			joined += " "
		}
		joined += s
	}
	return joined
}

func TestPathsAreRelativeToTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newHouse()
	src := source{file: "house.yaml", dir: dir, data: []byte("garden: {log: logs}\ndoor: {tls: {ca_file: ca.pem}}\n")}
	if _, _, err := houseModel().load(src, &h); err != nil {
		t.Fatal(err)
	}
	got := []string{h.Garden.Gnomes.LogDir, h.Door.TLS.CAFile, h.Kitchen.Dir}
	if want := []string{dir + "/logs", dir + "/ca.pem", dir + "/data"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTypesThatReadThemselves(t *testing.T) {
	t.Parallel()
	h, _, _, err := loadHouse(t, "door: {from: [10.0.0.0/8, '::1/128']}", nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}; !slices.Equal(h.Door.From, want) {
		t.Errorf("got %v", h.Door.From)
	}
}

func TestVariablesThatMatchNoKeyAreNamed(t *testing.T) {
	t.Parallel()
	_, _, warnings, err := loadHouse(t, "", nil,
		"RECIBO_KITCHEN_COOK=3", "RECIBO_GARDEN=on", "RECIBO_CONFIG=/x", "RECIBO_DOOR_KEYS_ID=a", "OTHER=1", "RECIBO_PORT=tcp://10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"environment RECIBO_DOOR_KEYS_ID: matches no key and is left alone; did you mean RECIBO_DOOR_KEYS?",
		"environment RECIBO_GARDEN: matches no key and is left alone",
		"environment RECIBO_KITCHEN_COOK: matches no key and is left alone; did you mean RECIBO_KITCHEN_COOKS?",
		"environment RECIBO_PORT: matches no key and is left alone",
	}
	if !slices.Equal(warnings, want) {
		t.Errorf("got %q", warnings)
	}
}

func TestTwoKeysNeverShareAVariable(t *testing.T) {
	t.Parallel()
	// variables is a map: a name that two keys share would be counted once.
	for name, m := range map[string]*model{"house": houseModel(), "recibo": shape()} {
		keys := 0
		var count func(*field)
		count = func(f *field) {
			for _, child := range f.fields {
				if child.kind == section {
					count(child)
					continue
				}
				keys++
				if child.isSecret() {
					keys++
				}
			}
		}
		count(m.root)
		if got := len(m.variables()); got != keys {
			t.Errorf("%s: %d variables for %d keys", name, got, keys)
		}
	}
}
