// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
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

// A site that is not to read what is written from now on gets no later key, and cannot pass for one
// that has it; one that gets a copy later gets all.
func TestRotate(t *testing.T) {
	var keys [3]SiteKey
	for i := range keys {
		var err error
		if keys[i], err = NewSiteKey(); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := keys[0], keys[1], keys[2]
	ring, first, err := New("v1", map[string][]byte{"a": a.Public(), "b": b.Public()}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	next, err := a.Rotate(ring, "a", map[string][]byte{"a": a.Public()}, Next{At: now}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if len(ring.Later) != 0 || len(next.Later) != 1 || next.Generation != 2 || !next.Later[0].At.Equal(now) || len(next.Newest()) != 1 {
		t.Fatalf("%+v", next)
	}
	third, err := a.Rotate(next, "a", map[string][]byte{"a": a.Public()}, Next{Rotation: 7, At: now.Add(time.Hour)}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if is := Newest(third, now); is.Number != 2 || is.Rotation != 7 || !is.Since.Equal(now.Add(time.Hour)) {
		t.Errorf("the third is %+v", is)
	}
	fourth, err := a.Rotate(third, "a", map[string][]byte{"a": a.Public()}, Next{At: now}, rand.Reader)
	if is := Newest(fourth, now); err != nil || is.Number != 3 || is.Rotation != 7 {
		t.Errorf("the fourth is %+v, %v", is, err)
	}
	if is := Newest(ring, now); is.Number != 0 || is.Rotation != 0 || !is.Since.Equal(now) {
		t.Errorf("the first is %+v", is)
	}
	relabelled := clone(third)
	relabelled.Later[1].Rotation = 8
	if err := Grown(third, relabelled); err == nil {
		t.Error("a key follows for another word afterwards")
	}
	all, err := a.UnwrapAll(next, "a")
	if err != nil || len(all) != 2 || all[0] != first || all[1] == first {
		t.Errorf("a has %d keys, %v", len(all), err)
	}
	if theirs, err := b.UnwrapAll(next, "b"); err != nil || len(theirs) != 1 {
		t.Errorf("b has %d keys, %v", len(theirs), err)
	}
	if _, err := b.Rotate(next, "b", map[string][]byte{"b": b.Public()}, Next{At: now}, rand.Reader); err == nil {
		t.Error("a site without the newest key makes another")
	}
	if _, err := b.Extend(next, "b", map[string][]byte{"c": c.Public()}); err == nil {
		t.Error("a site without the newest key wraps it")
	}
	swapped := clone(next)
	swapped.Wrapped["a"], swapped.Later[0].Wrapped["a"] = next.Later[0].Wrapped["a"], next.Wrapped["a"]
	if _, err := a.UnwrapAll(swapped, "a"); err == nil {
		t.Error("one key's wrap passes for another's")
	}
	more, err := a.Extend(next, "a", map[string][]byte{"a": c.Public(), "c": c.Public()})
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err := c.UnwrapAll(more, "c"); err != nil || len(theirs) != 2 || theirs[1] != all[1] {
		t.Errorf("c has %d keys, %v", len(theirs), err)
	}
	for name, x := range map[string]struct {
		next federation.Keyring
		ok   bool
	}{
		"more wraps": {more, true}, "another key": {next, true}, "the same": {clone(ring), true},
		"a wrap less": {federation.Keyring{Volume: "v1", Wrapped: map[string][]byte{"a": ring.Wrapped["a"]}}, false},
		"swapped":     {swapped, false},
	} {
		if err := Grown(ring, x.next); (err == nil) != x.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Grown(next, ring); err == nil {
		t.Error("a key less counts as grown")
	}
}
