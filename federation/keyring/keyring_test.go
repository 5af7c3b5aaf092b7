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

func TestExtend(t *testing.T) {
	var keys [3]SiteKey
	for i := range keys {
		var err error
		if keys[i], err = NewSiteKey(); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := keys[0], keys[1], keys[2]
	ring, key, err := New("v1", map[string][]byte{"a": a.Public()}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	next, err := a.Extend(ring, "a", map[string][]byte{"a": c.Public(), "b": b.Public()})
	if err != nil {
		t.Fatal(err)
	}
	if next.Generation != ring.Generation+1 || len(ring.Wrapped) != 1 {
		t.Errorf("generation %d after %d, and the old one has %d sites", next.Generation, ring.Generation, len(ring.Wrapped))
	}
	for site, k := range map[string]SiteKey{"a": a, "b": b} {
		if got, err := k.Unwrap(next, site); err != nil || got != key {
			t.Errorf("site %s: another key is %v, %v", site, got != key, err)
		}
	}
	if _, err := b.Extend(ring, "b", nil); err == nil || !strings.Contains(err.Error(), "not wrapped for site b") {
		t.Errorf("by a site that can not unwrap it: %v", err)
	}
	if _, err := a.Extend(ring, "a", map[string][]byte{"c": []byte("no key")}); err == nil || !strings.Contains(err.Error(), "site c") {
		t.Errorf("for what is no public key: %v", err)
	}
}
