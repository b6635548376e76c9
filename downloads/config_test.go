package downloads

import (
	"strings"
	"testing"
)

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

func TestFaultyValuesAreNamedWithKeyValueAndReason(t *testing.T) {
	t.Parallel()
	layout := func(s string) func(*Config) { return func(c *Config) { c.Layout = s } }
	for name, c := range map[string]struct {
		change func(*Config)
		want   []string // all of them in the error
	}{
		"no dir":         {func(c *Config) { c.Dir = "" }, []string{"downloads.dir"}},
		"no id":          {layout("report.{ext}"), []string{"downloads.layout", `"report.{ext}"`, "{id}"}},
		"no ext":         {layout("{id}"), []string{"downloads.layout", "{ext}"}},
		"absolute":       {layout("/srv/{id}.{ext}"), []string{"downloads.layout", "relative"}},
		"parent":         {layout("../{id}.{ext}"), []string{"dot"}},
		"parent inside":  {layout("a/../{id}.{ext}"), []string{"dot"}},
		"current":        {layout("./{id}.{ext}"), []string{"dot"}},
		"own folder":     {layout(".recibo/{id}.{ext}"), []string{".recibo"}},
		"hidden":         {layout("{yyyy}/.{id}.{ext}"), []string{"dot"}},
		"empty segment":  {layout("a//{id}.{ext}"), []string{"empty segment"}},
		"trailing slash": {layout("{id}.{ext}/"), []string{"empty segment"}},
		"backslash":      {layout(`a\{id}.{ext}`), []string{"portable"}},
		"NUL":            {layout("a\x00{id}.{ext}"), []string{"portable"}},
		"not UTF-8":      {layout("a\xff{id}.{ext}"), []string{"portable"}},
		"device":         {layout("aux/{id}.{ext}"), []string{"device"}},
		"unknown":        {layout("{name}/{id}.{ext}"), []string{"{name}", "placeholder"}},
		"open brace":     {layout("{id}.{ext"), []string{"placeholder"}},
		"stray brace":    {layout("{id}}.{ext}"), []string{"portable"}},
		"trailing dot":   {layout("{id}.{ext}."), []string{"dot"}},
		"trailing space": {layout("a /{id}.{ext}"), []string{"white space"}},
		"too long":       {layout(strings.Repeat("x", 200) + "{id}.{ext}"), []string{"long"}},
		"mode":           {func(c *Config) { c.Mode = "rw-r-----" }, []string{"downloads.mode", "rw-r-----", "octal"}},
		"mode too large": {func(c *Config) { c.Mode = "17777" }, []string{"downloads.mode"}},
		"unreadable":     {func(c *Config) { c.Mode = "0040" }, []string{"downloads.mode", "0400"}},
		"set-user-id":    {func(c *Config) { c.Mode = "4750" }, []string{"downloads.mode", "special"}},
		"closed folders": {func(c *Config) { c.DirMode = "0640" }, []string{"downloads.dir_mode", "0640", "0700"}},
		"on_revision":    {func(c *Config) { c.OnRevision = "both" }, []string{"downloads.on_revision", "both", "replace"}},
		"max_size":       {func(c *Config) { c.MaxSize = 0 }, []string{"downloads.max_size"}},
		"min_free":       {func(c *Config) { c.MinFree = -1 }, []string{"downloads.min_free", "-1"}},
		"two faults":     {func(c *Config) { c.Mode, c.OnRevision = "x", "y" }, []string{"downloads.mode", "downloads.on_revision"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := DefaultConfig()
			c.change(&config)
			err := config.Validate()
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q lacks %q", err, part)
				}
			}
		})
	}
}

func TestUsualLayoutsAreValid(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{"{id}.{ext}", "{yyyy}/{mm}/{dd}/{id}.{ext}", "{tenant}/{template}/{id}.{ext}", "relatórios/{id}.{ext}",
		"{id}/{id}.{ext}", "{ext}/{id}", "reports of {yyyy}/{id}_{template}.{ext}"} {
		c := DefaultConfig()
		c.Layout, c.Mode, c.DirMode = layout, Inherit, Inherit
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", layout, err)
		}
	}
}
