package config

import (
	"strings"
	"testing"
)

// Every line is a file that can't be meant, and what its writer is told.
func TestFaultsAreReportedWithTheirPlace(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file, want string
		env        []string
	}{
		"unknown key, spelt alike": {
			file: "kitchen:\n  cook: 2\n",
			want: "house.yaml:2:3: kitchen.cook: unknown key; did you mean cooks?",
		},
		"unknown section": {
			file: "door:\n  url: x\nkichten:\n  cooks: 1\n",
			want: "house.yaml:3:1: kichten: unknown key; did you mean kitchen?",
		},
		"key of another section": {
			file: "door:\n  start_at: 2026-01-01\n",
			want: "house.yaml:2:3: door.start_at: unknown key; did you mean kitchen.start_at?",
		},
		"key like nothing": {
			file: "door:\n  zzzzzzzz: 1\n",
			want: "house.yaml:2:3: door.zzzzzzzz: unknown key",
		},
		"twin of what is no secret": {
			file: "door:\n  url_file: x\n",
			want: "house.yaml:2:3: door.url_file: unknown key",
		},
		"key of a list's section": {
			file: "door:\n  keys:\n    - id: a\n      sekret: b\n",
			want: "house.yaml:4:7: door.keys[0].sekret: unknown key; did you mean secret?",
		},
		"all problems at once": {
			file: "kitchen:\n  cooks: many\n  open: yes\n  zzzzzz: 1\ndoor:\n  urll: x\n",
			want: "house.yaml:2:10: kitchen.cooks: must be a whole number, without quotes, not \"many\"\n" +
				"house.yaml:3:9: kitchen.open: must be true or false, without quotes, not \"yes\"\n" +
				"house.yaml:4:3: kitchen.zzzzzz: unknown key\n" +
				"house.yaml:6:3: door.urll: unknown key; did you mean url?",
		},
		"key given twice": {
			file: "kitchen:\n  cooks: 1\n  cooks: 2\n",
			want: "house.yaml:3:3: kitchen.cooks: is given twice: first on line 2",
		},
		"section given twice": {
			file: "kitchen:\n  cooks: 1\nkitchen:\n  open: true\n",
			want: "house.yaml:3:1: kitchen: is given twice: first on line 1",
		},
		"value for a section": {
			file: "kitchen: 4\n",
			want: "house.yaml:1:10: kitchen: must be a section: keys with values, one per line",
		},
		"list for a section": {
			file: "kitchen: [1]\n",
			want: "house.yaml:1:10: kitchen: must be a section: keys with values, one per line",
		},
		"list for the file":   {file: "- a\n", want: "house.yaml:1:1: must be a section: keys with values, one per line"},
		"text for the file":   {file: "hello", want: "house.yaml:1:1: must be a section: keys with values, one per line"},
		"section for a value": {file: "kitchen:\n  mode: {a: 1}\n", want: "house.yaml:2:10: kitchen.mode: must be a single value, not a section"},
		"list for a value":    {file: "kitchen:\n  mode: [a]\n", want: "house.yaml:2:9: kitchen.mode: must be a single value, not a list"},
		"value for a list":    {file: "door:\n  subjects: a\n", want: "house.yaml:2:13: door.subjects: must be a list: [one, two], or a line with a dash for each"},
		"list in a list":      {file: "door:\n  subjects: [[a]]\n", want: "house.yaml:2:14: door.subjects[0]: must be a single value, not a list"},
		"value without value": {
			file: "kitchen:\n  cooks:\n  mode: ~\n",
			want: "house.yaml:2:3: kitchen.cooks: has no value: write \"\" for an empty text, or remove the key to keep the default\n" +
				"house.yaml:3:3: kitchen.mode: has no value: write \"\" for an empty text, or remove the key to keep the default",
		},
		"list without value": {
			file: "door:\n  subjects:\n",
			want: "house.yaml:2:3: door.subjects: has no value: write [] for an empty list, or remove the key to keep the default",
		},
		"element without value": {file: "door:\n  keys:\n    -\n", want: "house.yaml:3:7: door.keys[0]: has no value"},
		"number with a quote":   {file: "kitchen:\n  cooks: '4'\n", want: `house.yaml:2:10: kitchen.cooks: must be a whole number, without quotes, not "4"`},
		"octal number":          {file: "kitchen:\n  cooks: 010\n", want: `house.yaml:2:10: kitchen.cooks: must be a whole number, without quotes, not "010"`},
		"fraction":              {file: "kitchen:\n  cooks: 1.5\n", want: `house.yaml:2:10: kitchen.cooks: must be a whole number, without quotes, not "1.5"`},
		"below the minimum":     {file: "kitchen:\n  cooks: 0\n", want: "house.yaml:2:10: kitchen.cooks: must be at least 1"},
		"above the maximum":     {file: "kitchen:\n  cooks: 65\n", want: "house.yaml:2:10: kitchen.cooks: must be at most 64"},
		"beyond the type":       {file: "kitchen:\n  port: 65536\n", want: "house.yaml:2:9: kitchen.port: 65536 is out of range"},
		"negative for unsigned": {file: "kitchen:\n  port: -1\n", want: "house.yaml:2:9: kitchen.port: -1 is out of range"},
		"beyond 64 bits":        {file: "kitchen:\n  cooks: 99999999999999999999\n", want: "house.yaml:2:10: kitchen.cooks: 99999999999999999999 is too large"},
		"share above":           {file: "kitchen:\n  share: 1.01\n", want: "house.yaml:2:10: kitchen.share: must be at most 1, not 1.01"},
		"share not a number":    {file: "kitchen:\n  share: .nan\n", want: `house.yaml:2:10: kitchen.share: must be a number, without quotes, not ".nan"`},
		"truth value with quotes": {
			file: "kitchen:\n  open: \"true\"\n",
			want: `house.yaml:2:9: kitchen.open: must be true or false, without quotes, not "true"`,
		},
		"truth value in capitals": {file: "kitchen:\n  open: True\n", want: `house.yaml:2:9: kitchen.open: must be true or false, without quotes, not "True"`},
		"truth value for a text": {
			file: "kitchen:\n  mode: false\n",
			want: "house.yaml:2:9: kitchen.mode: must be a text, and YAML takes false for a truth value: put it in quotes if it is meant",
		},
		"duration without unit": {file: "kitchen:\n  poll_every: 90\n", want: `house.yaml:2:15: kitchen.poll_every: "90" has no unit: write 90s, 90m, 90h or 90d`},
		"negative duration":     {file: "kitchen:\n  poll_every: -5m\n", want: `house.yaml:2:15: kitchen.poll_every: "-5m" is negative`},
		"duration of words":     {file: "kitchen:\n  poll_every: often\n", want: `house.yaml:2:15: kitchen.poll_every: "often" is no duration such as 90s, 5m, 48h or 400d`},
		"duration above":        {file: "kitchen:\n  poll_every: 401d\n", want: "house.yaml:2:15: kitchen.poll_every: must be at most 400d"},
		"size of words":         {file: "kitchen:\n  pot: 5 pounds\n", want: `house.yaml:2:8: kitchen.pot: "5 pounds" is no size such as 512MiB, 1GB or 65536`},
		"size below":            {file: "kitchen:\n  pot: 1000\n", want: "house.yaml:2:8: kitchen.pot: must be at least 1KiB"},
		"range of one":          {file: "kitchen:\n  backoff: 5m\n", want: `house.yaml:2:12: kitchen.backoff: "5m" is no range such as 1s..15m`},
		"range backwards":       {file: "kitchen:\n  backoff: 5m..1s\n", want: `house.yaml:2:12: kitchen.backoff: "5m..1s" begins with the longer duration: write 1s..5m`},
		"time":                  {file: "kitchen:\n  start_at: yesterday\n", want: `house.yaml:2:13: kitchen.start_at: must be a time such as 2026-01-31 or 2026-01-31T08:00:00Z, not "yesterday"`},
		"not one of":            {file: "kitchen:\n  style: burn\n", want: `house.yaml:2:10: kitchen.style: must be one of keep, replace, not "burn"`},
		"reads itself":          {file: "door:\n  from: [10.0.0.0/8, home]\n", want: `house.yaml:2:22: door.from[1]: "home" can't be read: netip.ParsePrefix("home"): no '/'`},

		"tab":                 {file: "kitchen:\n\tcooks: 1\n", want: "house.yaml:2:1: a tab can't indent: use spaces"},
		"second document":     {file: "kitchen:\n---\ndoor:\n", want: "house.yaml:3:1: a second document begins here: the file holds one"},
		"anchor":              {file: "kitchen: &k\n  cooks: 1\n", want: "house.yaml:1:10: anchors and aliases are not taken: write the value out"},
		"merge":               {file: "kitchen:\n  <<: {cooks: 1}\n", want: "house.yaml:2:3: merges are not taken: write the keys out"},
		"tag":                 {file: "kitchen:\n  mode: !!str 0640\n", want: "house.yaml:2:9: tags are not taken: quotes make a text"},
		"directive":           {file: "%YAML 1.2\n---\nkitchen:\n", want: "house.yaml:1:1: directives are not taken"},
		"key that is no text": {file: "1: x\n", want: "house.yaml:1:1: this is no key"},
		"unclosed":            {file: "door:\n  subjects: [a\n", want: "house.yaml:2:13: sequence end token ']' not found"},
		"variable in brackets": {
			file: "door:\n  subjects: [${A}, b]\n",
			want: "house.yaml:2:15: ',' or ']' must be specified (inside [ ] and { } a value with ${ } needs quotes)",
		},
		"not UTF-8":  {file: "door:\n  url: \xff\n", want: "house.yaml: is not UTF-8 text"},
		"binary":     {file: "door:\n  url: a\x00b\n", want: "house.yaml: holds control characters: this is no text"},
		"too deep":   {file: "door: " + strings.Repeat("[", 40), want: "house.yaml:1:39: is nested too deeply"},
		"many marks": {file: strings.Repeat("- ", 40), want: "house.yaml:1:65: is nested too deeply"},
		"long":       {file: strings.Repeat("\n", maxLines+1), want: "house.yaml: has more than 4000 lines: this is no configuration"},
		"huge":       {file: strings.Repeat("#", maxBytes+1), want: "house.yaml: is larger than 64 KiB: this is no configuration"},

		"variable not set": {
			file: "door:\n  url: http://${HOST_NAME}/\n",
			want: "house.yaml:2:8: door.url: the variable HOST_NAME is not set: set it, or write ${HOST_NAME:-default}",
		},
		"variable not closed": {
			file: "door:\n  url: http://${HOST\n",
			want: "house.yaml:2:8: door.url: a ${ is not closed by }; a dollar that stands for itself is written $$",
		},
		"variable without name": {
			file: "door:\n  url: http://${}\n",
			want: "house.yaml:2:8: door.url: between ${ and } stands no name of a variable; a dollar that stands for itself is written $$",
		},
		"default with a variable": {
			file: "door:\n  url: ${A:-${B}}\n",
			want: "house.yaml:2:8: door.url: the default of ${A} holds a variable itself: one level only",
		},
		"variable can't bring another key": {
			file: "kitchen:\n  mode: ${M}\n  cooks: ${N}\n", env: []string{"M=0640\ncooks: 1", "N=1\n  open: false"},
			want: "house.yaml:3:10: kitchen.cooks: must be a whole number, without quotes, not \"1\\n  open: false\"",
		},

		"overriding variable": {
			env:  []string{"RECIBO_KITCHEN_COOKS=none", "RECIBO_KITCHEN_POLL_EVERY="},
			want: "environment RECIBO_KITCHEN_COOKS: kitchen.cooks: must be a whole number, without quotes, not \"none\"\nenvironment RECIBO_KITCHEN_POLL_EVERY: kitchen.poll_every: a duration is missing, such as 90s, 5m, 48h or 400d",
		},
		"variable for a list of sections": {
			env:  []string{"RECIBO_DOOR_KEYS=a,b"},
			want: "environment RECIBO_DOOR_KEYS: door.keys: is a list of sections, which a variable can't hold: write it in the file",
		},

		"section's own check, at the key": {file: "kitchen:\n  open: true\n  cooks: 13\n", want: "house.yaml:3:3: kitchen.cooks: 13 is unlucky"},
		"section's own check, at the section": {
			file: "kitchen:\n  share: 0.5\n",
			want: "house.yaml:1:1: kitchen: nothing is left\nhouse.yaml:2:3: kitchen.share: half is no share",
		},
		"section's own check beside other problems": {
			file: "kitchen:\n  open: 1\n  cooks: 13\n",
			want: "house.yaml:2:9: kitchen.open: must be true or false, without quotes, not \"1\"\nhouse.yaml:3:3: kitchen.cooks: 13 is unlucky",
		},
		"no check of what was not read": {
			file: "kitchen:\n  share: 0.5\n  cooks: 13\n  cooks: 1\n", // what is said about the kitchen as a whole may come from it
			want: "house.yaml:2:3: kitchen.share: half is no share\nhouse.yaml:4:3: kitchen.cooks: is given twice: first on line 3",
		},
		"no check of a secret that was not read": {
			file: "garden:\n  trees: 99\n  password_file: none\n",
			want: "house.yaml:3:18: garden.password_file: can't be read: stat DIR/none: no such file or directory",
		},
		"no check of what an unknown key was meant to be": {
			file: "garden:\n  trees: 99\n  pasword: x\n",
			want: "house.yaml:3:3: garden.pasword: unknown key; did you mean password?",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, _, err := loadHouse(t, tt.file, nil, tt.env...)
			if err == nil {
				t.Fatal("was taken")
			}
			if err.Error() != tt.want {
				t.Errorf("\n got %s\nwant %s", err, tt.want)
			}
		})
	}
}
