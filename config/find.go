package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// places are where a file is looked for when none is named.
func places() []string { return []string{"config.yaml", "/etc/recibo/config.yaml"} }

// Find returns the file to read: flag, which is the value of --config, else $RECIBO_CONFIG, else ./config.yaml, else
// /etc/recibo/config.yaml. The path is empty when there is none, which is no error unless one was named: then the
// defaults hold. looked lists where it was looked for.
func Find(flag string, environ []string) (path string, looked []string, err error) {
	return find(flag, newEnvironment(environ)[PathVariable], places())
}

func find(flag, variable string, places []string) (path string, looked []string, err error) {
	switch {
	case flag != "":
		return flag, []string{flag}, usable(flag, "--config")
	case variable != "":
		return variable, []string{variable}, usable(variable, PathVariable)
	}
	for _, place := range places {
		looked = append(looked, place)
		err := usable(place, "")
		if err == nil {
			return place, looked, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return place, looked, err
		}
	}
	return "", looked, nil
}

// usable says why path can't be the file; by names who chose it.
func usable(path, by string) error {
	if by != "" {
		by = " (from " + by + ")"
	}
	info, err := os.Stat(path)
	var at *fs.PathError
	switch {
	case errors.As(err, &at):
		return fmt.Errorf("%s%s: %w", path, by, at.Err)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s%s: is a folder, not a file", path, by)
	default:
		return nil
	}
}
