// Command vulndb lays a folder of OSV files out as the database that govulncheck reads (https://go.dev/doc/security/vuln/database).
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is what the indexes need of an OSV file.
type entry struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Aliases  []string  `json:"aliases,omitempty"`
	Affected []struct {
		Package struct {
			Name string `json:"name"`
		} `json:"package"`
		Ranges []struct {
			Events []struct {
				Fixed string `json:"fixed"`
			} `json:"events"`
		} `json:"ranges"`
	} `json:"affected,omitempty"`
}

type moduleVuln struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Fixed    string    `json:"fixed,omitempty"`
}

type module struct {
	Path  string       `json:"path"`
	Vulns []moduleVuln `json:"vulns"`
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: vulndb OSV-FOLDER DATABASE-FOLDER")
	}
	if err := build(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func build(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.json"))
	if err != nil {
		return err
	}
	for _, dir := range []string{"ID", "index"} {
		if err := os.MkdirAll(filepath.Join(to, dir), 0o755); err != nil {
			return err
		}
	}
	modules := map[string]*module{}
	var vulns []entry
	var newest time.Time
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var e entry
		if err := json.Unmarshal(data, &e); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, "ID", e.ID+".json"), data, 0o644); err != nil {
			return err
		}
		if e.Modified.After(newest) {
			newest = e.Modified
		}
		addModules(modules, &e)
		e.Affected = nil
		vulns = append(vulns, e)
	}
	list := make([]*module, 0, len(modules))
	for _, m := range modules {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *module) int { return strings.Compare(a.Path, b.Path) })
	for name, v := range map[string]any{
		"db": map[string]time.Time{"modified": newest}, "modules": list, "vulns": vulns,
	} {
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, "index", name+".json"), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// addModules lists the vulnerability once for each module, with the last version that fixes it.
func addModules(modules map[string]*module, e *entry) {
	for _, a := range e.Affected {
		fixed := ""
		for _, r := range a.Ranges {
			for _, event := range r.Events {
				if event.Fixed != "" {
					fixed = event.Fixed
				}
			}
		}
		m := modules[a.Package.Name]
		if m == nil {
			m = &module{Path: a.Package.Name}
			modules[m.Path] = m
		}
		if !slices.ContainsFunc(m.Vulns, func(v moduleVuln) bool { return v.ID == e.ID }) {
			m.Vulns = append(m.Vulns, moduleVuln{e.ID, e.Modified, fixed})
		}
	}
}
