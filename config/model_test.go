package config

import (
	"reflect"
	"testing"
)

// Sections of one type may hold different things when they are named, and no two of them share a list.
func TestSectionsOfOneTypeHaveTheirOwnDefaults(t *testing.T) {
	t.Parallel()
	type bed struct {
		Plants []string `yaml:"plants"`
	}
	type yard struct {
		Front *bed `yaml:"front"`
		Back  *bed `yaml:"back"`
		Side  *bed `yaml:"side"`
		Beds  []struct {
			Bed *bed `yaml:"bed"`
		} `yaml:"beds"`
	}
	plants := func(names ...string) func() bed {
		return func() bed { return bed{Plants: append([]string(nil), names...)} }
	}
	m := newModel(yard{}, map[string]any{"front": plants("rose"), "back": plants("bean"), "beds.bed": plants("leek")})
	var y yard
	src := source{file: "yard.yaml", data: []byte("front:\nback: {}\nside:\nbeds: [{bed: {}}, {bed: {}}]\n")}
	if _, _, err := m.load(src, &y); err != nil {
		t.Fatal(err)
	}
	y.Beds[0].Bed.Plants[0] = "weed"
	got := [][]string{y.Front.Plants, y.Back.Plants, y.Side.Plants, y.Beds[1].Bed.Plants}
	if want := [][]string{{"rose"}, {"bean"}, nil, {"leek"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for key, start := range map[string]any{"nowhere": plants(), "beds": plants(), "front": bed{}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: %T was taken", key, start)
				}
			}()
			newModel(yard{}, map[string]any{key: start})
		}()
	}
}
