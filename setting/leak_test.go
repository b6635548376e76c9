package setting

import (
	"fmt"
	"strings"
	"testing"
)

// A struct may hold a secret in a field that fmt can't call methods of: there it must not show itself either.
func TestSecretsHideInsideOtherStructs(t *testing.T) {
	t.Parallel()
	type holder struct {
		hidden  Secret
		list    []Secret
		byName  map[string]Secret
		pointer *Secret
	}
	s := NewSecret("sesame-open")
	h := holder{hidden: s, list: []Secret{s}, byName: map[string]Secret{"x": s}, pointer: &s}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, value := range []any{h, &h, []holder{h}} {
			if text := fmt.Sprintf(verb, value); strings.Contains(text, "sesame") || strings.Contains(text, "736573616d65") {
				t.Errorf("%s of %T shows it: %s", verb, value, text)
			}
		}
	}
}
