package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
)

// Loaded is a configuration that is free of problems, with where its values came from.
type Loaded struct {
	Config   Config
	Path     string   // of the file, as it was found; empty when there is none
	Dir      string   // absolute; relative paths are relative to it: the file's folder, or without one the working folder
	Looked   []string // where a file was looked for
	Warnings []string // such as a RECIBO_ variable that matches no key

	model   *model
	origins map[string]Origin
}

// Load finds the file, see Find, and reads it, with RECIBO_ variables of environ (as os.Environ gives it) on top. When
// the content is at fault the error is an *Error, otherwise it says which file can't be read and why.
func Load(path string, environ []string) (*Loaded, error) {
	path, looked, err := Find(path, environ)
	if err != nil {
		return nil, err
	}
	l := &Loaded{Config: Default(), Path: path, Looked: looked, model: shape()}
	var data []byte
	if path != "" {
		if data, err = read(path); err != nil {
			return nil, err
		}
	}
	if l.Dir, err = folder(path); err != nil {
		return nil, err
	}
	src := source{file: path, dir: l.Dir, data: data, env: newEnvironment(environ)}
	if l.origins, l.Warnings, err = l.model.load(src, &l.Config); err != nil {
		var wrong *Error
		if errors.As(err, &wrong) && l.origins != nil {
			wrong.Rest = l
		}
		return nil, err
	}
	return l, nil
}

// read takes no more of a file than shows that it is too large.
func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	return data, errors.Join(err, file.Close())
}

// folder is the absolute path of the folder that the file at path is in.
func folder(path string) (string, error) {
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("the working folder is not known: %w", err)
	}
	return dir, nil
}

// Origin says where the value of a key, such as agent.workers, came from.
func (l *Loaded) Origin(key string) Origin { return l.origins[key] }

// Print writes the effective values in the order of the sections, with secrets hidden: as YAML with the origin of each
// value behind it, or as one JSON document {"path", "dir", "values", "origins"}, in which origins lacks what is a default.
func (l *Loaded) Print(w io.Writer, asJSON bool) error {
	v := reflect.ValueOf(l.Config)
	if !asJSON {
		return l.model.print(w, v, l.origins)
	}
	origins := make(map[string]string, len(l.origins))
	for key, origin := range l.origins {
		origins[key] = origin.String()
	}
	data, err := indented(object{
		{"path", l.Path},
		{"dir", l.Dir},
		{"values", l.model.json(l.model.root, v, secretsOf(l.model.root, v))},
		{"origins", origins},
	})
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// Schema returns a JSON Schema (draft 2020-12) of the file, for editors.
func Schema() ([]byte, error) { return shape().schema(reflect.ValueOf(Default())) }
