// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"testing"

	"github.com/weir-storage/weir/federation"
)

// FuzzUnwrap opens arbitrary wraps, and with arbitrary private keys.
func FuzzUnwrap(f *testing.F) {
	s, err := NewSiteKey()
	if err != nil {
		f.Fatal(err)
	}
	own, err := s.Bytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own, []byte("wrapped"), []byte{})
	f.Fuzz(func(t *testing.T, private, first, second []byte) {
		k, err := ParseSiteKey(private)
		if err != nil {
			k = s
		}
		ring := federation.Keyring{Volume: "v", Wrapped: map[string][]byte{"s": first},
			Later: []federation.LaterKey{{Wrapped: map[string][]byte{"s": second}}}}
		if _, err := k.UnwrapAll(ring, "s"); err == nil {
			t.Fatal("forged")
		}
	})
}
