package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Position is where a value stands: a place in the file, or an environment variable. The zero Position is a default.
type Position struct {
	File     string
	Line     int // from 1; 0 for the file as a whole
	Column   int // from 1
	Variable string
}

// String writes file:line:column, or names the variable; a default has no place and gives nothing.
func (p Position) String() string {
	switch {
	case p.Variable != "":
		return "environment " + p.Variable
	case p.Line == 0:
		return p.File
	default:
		return p.File + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column)
	}
}

// Problem is one thing that is wrong. Neither Key nor Text ever holds the value of a secret.
type Problem struct {
	Position
	Key  string // such as hub.nats.url; empty when it is about the file
	Text string
}

// String writes place: key: what is wrong, leaving out what there is not.
func (p Problem) String() string {
	var parts []string
	for _, part := range []string{p.Position.String(), p.Key, p.Text} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Error is everything that is wrong with a configuration, in the order of the file, then of the environment.
type Error struct {
	Problems []Problem
	Rest     *Loaded // with the values that could be read, and the defaults of others; nil where the file could not be
}

// Spares reports whether all that is wrong is inside other sections than these.
func (e *Error) Spares(sections ...string) bool {
	return e.Rest != nil && !slices.ContainsFunc(e.Problems, func(p Problem) bool {
		section, _, inside := strings.Cut(p.Key, ".")
		return !inside || slices.Contains(sections, section) || e.Rest.model.find(section) == nil
	})
}

// Error writes one line per problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// failure turns problems into an error, sorted and without the values of secrets; nil when there are none.
func failure(problems []Problem, secrets []string) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Variable, b.Variable),
		)
	})
	for i := range problems {
		problems[i].Key = hideUser(problems[i].Key) // an unknown key may be an address in the wrong place
		problems[i].Text = scrub(problems[i].Text, secrets)
	}
	return &Error{Problems: problems}
}

func rank(p Problem) int {
	switch {
	case p.Variable != "":
		return 1
	case p.File != "":
		return 0
	default:
		return 2
	}
}

// nearest returns the candidate that differs least from name, empty when none is close enough to be meant.
func nearest(name string, candidates []string) string {
	// What every variable begins with says nothing about which one is meant.
	significant := len(strings.TrimPrefix(name, variablePrefix))
	best, limit := "", max(1, significant/3)+1
	for _, candidate := range candidates {
		if d := distance(name, candidate); d < limit {
			best, limit = candidate, d
		}
	}
	return best
}

// distance is the number of bytes to insert, remove, replace or swap with their neighbour (optimal string alignment).
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	var older, old, row [65]int
	for j := range old {
		old[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(old[j]+1, row[j-1]+1, old[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		older, old = old, row
	}
	return old[len(b)]
}
