// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"maps"
	"testing"
)

// TestObjectLabels: what Kubernetes takes for no label does not keep a site from having its object.
func TestObjectLabels(t *testing.T) {
	got := ObjectLabels(map[string]string{"jurisdiction": "eu", "room": "server room", "a b": "c", "example.org/rack": "7"})
	if want := map[string]string{"jurisdiction": "eu", "example.org/rack": "7"}; !maps.Equal(got, want) {
		t.Errorf("labels are %v, want %v", got, want)
	}
}
