// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation"
)

// TestBlindSites: which of a volume's copies can be blind.
func TestBlindSites(t *testing.T) {
	for _, tt := range []struct {
		name, says string
		change     func(v *federation.Volume)
	}{
		{"none", "", func(v *federation.Volume) { v.Blind = nil }},
		{"one", "", func(*federation.Volume) {}},
		{"all but the first", "", func(v *federation.Volume) { v.Blind = []string{"b", "c"} }},
		{"the first", "a is none of its sites after the first", func(v *federation.Volume) { v.Blind = []string{"a"} }},
		{"no copy at all", "d is none of its sites after the first", func(v *federation.Volume) { v.Blind = []string{"c", "d"} }},
		{"twice", "c is none of its sites after the first, or is there twice", func(v *federation.Volume) { v.Blind = []string{"c", "c"} }},
		{"with a grant", "at site c is blind and serves nobody", func(v *federation.Volume) {
			v.Grants = []federation.Grant{{Site: "b", Namespace: "x", Access: federation.ReadOnly},
				{Site: "c", Namespace: "x", Access: federation.ReadOnly}}
		}},
	} {
		v := federation.Volume{UUID: "u", Name: "v", Owner: "o", Generation: 3, Sites: []string{"a", "b", "c"}, Blind: []string{"c"}}
		tt.change(&v)
		err := v.Validate()
		if (err == nil) != (tt.says == "") || err != nil && (!errors.Is(err, federation.ErrInvalid) || !strings.Contains(err.Error(),
			tt.says)) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	was := federation.Volume{UUID: "u", Name: "v", Generation: 3, Sites: []string{"a", "b"}}
	is := was
	is.Blind = []string{"b"}
	if err := federation.CheckUpdate(was, is); err == nil {
		t.Error("copies become blind in the same generation")
	}
	is.Generation++
	if err := federation.CheckUpdate(was, is); err != nil || !is.IsBlind("b") || is.IsBlind("a") {
		t.Error(err)
	}
}
