// SPDX-License-Identifier: Apache-2.0

package caching

import (
	"slices"
	"testing"
)

// Names are in the order that people expect.
func TestByNumber(t *testing.T) {
	want := []string{"", "7", "007a", "10", "a", "a01", "a1", "a2", "a9b", "a10", "a10b", "a99999999999999999999999", "ab", "b"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, byNumber)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for _, a := range want {
		for _, b := range want {
			if (byNumber(a, b) == 0) != (a == b) || byNumber(a, b) != -byNumber(b, a) {
				t.Errorf("%q and %q: %d, %d", a, b, byNumber(a, b), byNumber(b, a))
			}
		}
	}
}
