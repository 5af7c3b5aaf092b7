// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"bytes"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
)

// A data key that is sealed under a secret is opened by who has the secret and the key of a site,
// and by nobody who lacks one of them. Sites that come later get it the same way.
func TestSecret(t *testing.T) {
	a, err := NewSiteKey()
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewSiteKey()
	if err != nil {
		t.Fatal(err)
	}
	ring, first, err := New("v1", map[string][]byte{"a": a.Public()}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secret, now := Secret{1, 2, 3}, time.Unix(1e9, 0).UTC()
	ring, err = a.Rotate(ring, "a", map[string][]byte{"a": a.Public()}, Next{At: now, Under: &secret}, rand.Reader)
	if err != nil || !bytes.Equal(ring.Later[0].Under, secret.Digest("v1")) || !Newest(ring, now).Erasable {
		t.Fatalf("%+v, %v", ring.Later, err)
	}
	if all, err := a.UnwrapAll(ring, "a"); !errors.Is(err, ErrErasable) || len(all) != 1 || all[0] != first {
		t.Errorf("without the secret it opens %d keys, %v", len(all), err)
	}
	// A later key that is sealed under none opens all the same.
	plain, err := a.With(func(federation.Keyring, []byte) (Secret, error) { return secret, nil }).Rotate(ring, "a",
		map[string][]byte{"a": a.Public()}, Next{At: now}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := a.UnwrapAll(plain, "a"); !errors.Is(err, ErrErasable) || len(all) != 2 || all[2] == (DataKey{}) {
		t.Errorf("without the secret it opens %d keys of three, %v", len(all), err)
	}
	knows := func(s Secret) Secrets {
		return func(ring federation.Keyring, digest []byte) (Secret, error) {
			if ring.Volume != "v1" || !bytes.Equal(digest, secret.Digest("v1")) {
				t.Errorf("it is asked for %x of %s", digest, ring.Volume)
			}
			return s, nil
		}
	}
	if _, err := a.With(knows(Secret{4})).UnwrapAll(ring, "a"); err == nil {
		t.Error("another secret opens it")
	}
	all, err := a.With(knows(secret)).UnwrapAll(ring, "a")
	if err != nil || all[0] != first || all[1] == first || all[1] == (DataKey{}) {
		t.Fatalf("%v", err)
	}
	if _, err := a.Extend(ring, "a", map[string][]byte{"b": b.Public()}); !errors.Is(err, ErrErasable) {
		t.Errorf("who has no secret wraps it for another: %v", err)
	}
	more, err := a.With(knows(secret)).Extend(ring, "a", map[string][]byte{"b": b.Public()})
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err := b.With(knows(secret)).UnwrapAll(more, "b"); err != nil || theirs[1] != all[1] {
		t.Errorf("b: %v", err)
	}
	bare := clone(more)
	bare.Later[0].Under = nil
	if _, err := a.UnwrapAll(bare, "a"); err == nil || Grown(more, bare) == nil {
		t.Error("a key passes for one that is sealed under nothing")
	}
	sealed, err := SealSecret(secret, "v1", "b", b.Public())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.OpenSecret(sealed, "v1", "b"); err != nil || got != secret {
		t.Errorf("b opens %v, %v", got == secret, err)
	}
	if _, err := a.OpenSecret(sealed, "v1", "b"); err == nil {
		t.Error("a opens what was sealed for b")
	}
	if _, err := b.OpenSecret(sealed, "v2", "b"); err == nil {
		t.Error("it passes for another volume's")
	}
}
