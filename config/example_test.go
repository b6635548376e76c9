package config

import (
	"reflect"
	"testing"
)

// The example shows every default, so that with it the agent does what it does without a file.
func TestExampleShowsTheDefaults(t *testing.T) {
	t.Parallel()
	example, err := Load("../config.yaml.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	none := Default()
	got := example.Config
	// Paths are relative to the file.
	got.Store.Path, got.Downloads.Dir = none.Store.Path, none.Downloads.Dir
	if !reflect.DeepEqual(got, none) {
		t.Errorf("the example gives\n%+v\nand the defaults are\n%+v", got, none)
	}
}
