package config

import (
	"errors"
	"fmt"
	"strings"
)

// environment is the variables of the process.
type environment map[string]string

func newEnvironment(list []string) environment {
	env := make(environment, len(list))
	for _, variable := range list {
		if name, value, ok := strings.Cut(variable, "="); ok {
			env[name] = value
		}
	}
	return env
}

// expand replaces ${NAME} and ${NAME:-default} in a value of the file, and $$ by a dollar; any other dollar stands for
// itself. As in a shell, the default also serves for a variable that is empty. It works on a value that has already
// been read, so what a variable holds can't become another key, and it is not expanded again. used lists the names.
// Errors name variables only: the text around them may be a secret.
func (env environment) expand(text string) (expanded string, used []string, err error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String(), used, nil
		}
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "{"):
			inner, after, closed := strings.Cut(rest[1:], "}")
			if !closed {
				return "", used, errors.New("a ${ is not closed by }; a dollar that stands for itself is written $$")
			}
			name, value, err := env.variable(inner)
			if err != nil {
				return "", used, err
			}
			out.WriteString(value)
			used = append(used, name)
			text = after
		default:
			out.WriteByte('$')
			text = rest
		}
	}
}

func (env environment) variable(inner string) (name, value string, err error) {
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	if !isVariable(name) {
		return "", "", errors.New("between ${ and } stands no name of a variable; a dollar that stands for itself is written $$")
	}
	if strings.Contains(fallback, "${") {
		return "", "", fmt.Errorf("the default of ${%s} holds a variable itself: one level only", name)
	}
	value, set := env[name]
	switch {
	case hasFallback && value == "":
		return name, fallback, nil
	case !set:
		return "", "", fmt.Errorf("the variable %s is not set: set it, or write ${%s:-default}", name, name)
	default:
		return name, value, nil
	}
}

func isVariable(name string) bool {
	for i, c := range name {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
