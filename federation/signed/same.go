// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/weir-storage/weir/federation"
)

// Same reports whether two values are the same in the registry.
func Same(a, b any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

// OnlyRemoves reports whether next is prev without some gateways.
func OnlyRemoves(prev, next federation.Site) bool {
	for _, g := range next.Gateways {
		if !slices.ContainsFunc(prev.Gateways, func(x federation.Gateway) bool { return Same(x, g) }) {
			return false
		}
	}
	prev.Gateways, next.Gateways = nil, nil
	return Same(prev, next)
}
