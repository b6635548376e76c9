// Command vulnfilter reads `govulncheck -format json` and fails for every vulnerability of a dependency that is called.
// Those of Go's own library are told and do not fail: which Go builds recibo is not for this repository to choose.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
)

type message struct {
	Finding *struct {
		OSV          string `json:"osv"`
		FixedVersion string `json:"fixed_version"`
		Trace        []struct {
			Module   string `json:"module"`
			Version  string `json:"version"`
			Function string `json:"function"`
		} `json:"trace"`
	} `json:"finding"`
}

func main() {
	called, standard, err := read(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range standard {
		fmt.Println("note: Go's own library:", s)
	}
	for _, c := range called {
		fmt.Println("vulnerable:", c)
	}
	if len(called) > 0 {
		os.Exit(1)
	}
}

func read(r io.Reader) (called, standard []string, err error) {
	for decoder := json.NewDecoder(r); ; {
		var m message
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		if m.Finding == nil || len(m.Finding.Trace) == 0 || m.Finding.Trace[0].Function == "" {
			continue // imported or required, and not called
		}
		at := m.Finding.Trace[0]
		text := fmt.Sprintf("%s in %s %s, fixed in %s", m.Finding.OSV, at.Module, at.Version, m.Finding.FixedVersion)
		if at.Module == "stdlib" {
			standard = append(standard, text)
		} else {
			called = append(called, text)
		}
	}
	for _, list := range []*[]string{&called, &standard} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return called, standard, nil
}
