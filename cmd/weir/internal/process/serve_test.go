// SPDX-License-Identifier: Apache-2.0

package process

import (
	"testing"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
)

// The node plugin needs no registry. Other processes do.
func TestNodeNeedsNoRegistry(t *testing.T) {
	p := Options{Connection: access.Connection{NoRegistry: true, Site: "ams", CA: "ca", Cert: "c", Key: "k"}}
	if err := p.Complete(func(string) string { return "" }); err != nil {
		t.Error(err)
	}
	p.NoRegistry = false
	if err := p.Complete(func(string) string { return "" }); err == nil {
		t.Error("others do")
	}
}
