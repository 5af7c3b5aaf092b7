// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
)

func TestFederationName(t *testing.T) {
	for name, want := range map[string]string{
		"pvc-1": "pvc-1", "a.b": "a.b", "A": "csi-u", strings.Repeat("a", 64): "csi-u", "a.b.c": "csi-u",
	} {
		if got := federationName(name, "u"); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
