package downloads

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"recibo/setting"
)

// Values of Config.OnRevision.
const (
	Keep    = "keep"
	Replace = "replace"
)

// Inherit as a mode leaves mode and group to the file system, for shares that refuse to have them set.
const Inherit = "inherit"

// Config is the section downloads of the configuration.
type Config struct {
	Dir        string       `yaml:"dir" doc:"folder that reports arrive in"`
	Layout     string       `yaml:"layout" doc:"relative name: {id} and {ext}; optional {template}, {tenant}, {yyyy}, {mm}, {dd} (UTC, of completion)"`
	Mode       string       `yaml:"mode" doc:"octal mode of files, set before publishing; inherit leaves it to the file system"`
	DirMode    string       `yaml:"dir_mode" doc:"octal mode of folders made by the layout; inherit leaves it to the file system"`
	Group      string       `yaml:"group" doc:"group of files and folders, by name or number; empty leaves it to the file system"`
	OnRevision string       `yaml:"on_revision" doc:"a report generated again: keep both files (<id>-r2.<ext>) or replace ours" enum:"keep,replace"`
	MaxSize    setting.Size `yaml:"max_size" doc:"largest file taken"`
	MinFree    setting.Size `yaml:"min_free" doc:"room that always stays free on the disk"`
	Manifest   bool         `yaml:"manifest" doc:"write <file>.receipt.json beside each file, and one for partial and failed reports"`
}

// DefaultConfig returns the documented defaults.
func DefaultConfig() Config {
	return Config{
		Dir:        "./data/downloads",
		Layout:     "{id}.{ext}",
		Mode:       "0640",
		DirMode:    "0750",
		OnRevision: Keep,
		MaxSize:    4 << 30,
		MinFree:    512 << 20,
	}
}

// Validate says which keys can't hold the values they have, and why. It does not look at the disk.
func (c Config) Validate() error {
	var faults []error
	fault := func(key, value, why string) {
		faults = append(faults, fmt.Errorf("downloads.%s: %q: %s", key, value, why))
	}
	if c.Dir == "" {
		fault("dir", c.Dir, "must name a folder")
	}
	if _, err := parseLayout(c.Layout); err != nil {
		fault("layout", c.Layout, err.Error())
	}
	if m, err := parseMode(c.Mode); err != nil {
		fault("mode", c.Mode, err.Error())
	} else if !m.inherit && (m.bits&0o400 == 0 || m.bits&^0o777 != 0) {
		fault("mode", c.Mode, "must let the agent read its own files (0400) and hold no special bits")
	}
	if m, err := parseMode(c.DirMode); err != nil {
		fault("dir_mode", c.DirMode, err.Error())
	} else if !m.inherit && (m.bits&0o700 != 0o700 || m.bits&0o4000 != 0) {
		fault("dir_mode", c.DirMode, "must let the agent use its own folders (0700); of the special bits only 2000 and 1000 mean something")
	}
	if c.OnRevision != Keep && c.OnRevision != Replace {
		fault("on_revision", c.OnRevision, "must be keep or replace")
	}
	if c.MaxSize <= 0 {
		fault("max_size", strconv.FormatInt(int64(c.MaxSize), 10), "must be more than nothing")
	}
	if c.MinFree < 0 {
		fault("min_free", strconv.FormatInt(int64(c.MinFree), 10), "must not be negative")
	}
	return errors.Join(faults...)
}

// mode is a mode as configured: bits as chmod(1) writes them, or whatever the file system gives.
type mode struct {
	bits    uint32
	inherit bool
}

func parseMode(s string) (mode, error) {
	if s == Inherit {
		return mode{inherit: true}, nil
	}
	bits, err := strconv.ParseUint(s, 8, 32)
	if err != nil || bits > 0o7777 {
		return mode{}, errors.New(`must be an octal mode such as "0640", or inherit`)
	}
	return mode{bits: uint32(bits)}, nil
}

// file returns the mode as os wants it, which keeps the special bits elsewhere than chmod(1) does.
func (m mode) file() fs.FileMode {
	result := fs.FileMode(m.bits & 0o777)
	if m.bits&0o2000 != 0 {
		result |= fs.ModeSetgid
	}
	if m.bits&0o1000 != 0 {
		result |= fs.ModeSticky
	}
	return result
}
