// SPDX-License-Identifier: Apache-2.0

package cachepool

import (
	"strings"
	"testing"
)

func FuzzID(f *testing.F) {
	f.Add(ID{1}.String())
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseID(s); err == nil && id.String() != strings.ToLower(s) {
			t.Fatalf("%q is %s", s, id)
		}
	})
}
