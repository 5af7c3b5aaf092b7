// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"crypto/rand"
	"strings"
	"testing"
)

func TestWrapAndUnwrap(t *testing.T) {
	a, err := NewSiteKey()
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewSiteKey()
	if err != nil {
		t.Fatal(err)
	}
	ring, key, err := New("v1", map[string][]byte{"a": a.Public(), "b": b.Public()}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := a.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseSiteKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Unwrap(ring, "a"); err != nil || got != key {
		t.Fatalf("site a unwraps %v, %v", got != key, err)
	}
	if _, err := b.Unwrap(ring, "a"); err == nil {
		t.Error("site b unwraps what was wrapped for a")
	}
	if _, err := a.Unwrap(ring, "c"); err == nil || !strings.Contains(err.Error(), "site c") {
		t.Errorf("a site without a wrapped key: %v", err)
	}
	ring.Volume = "v2"
	if _, err := a.Unwrap(ring, "a"); err == nil {
		t.Error("a wrapped key passes for another volume's")
	}
}
