// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
)

// TestFirstKey: before a volume begins, a gateway of the site where it begins adds a data key, and
// nobody else does; afterwards its home alone.
func TestFirstKey(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	must[federation.Revision](w)(w.pa.CreateVolume(ctx, volumeOf("v9", "nine", "A", "a", "c"), ringOf("v9", "a", "c")))
	ring, at, err := w.ga.GetKeyring(ctx, "v9")
	w.ok(err)
	ring.Generation++
	ring.Later = []federation.LaterKey{{At: time.Unix(1e9, 0).UTC(), Under: []byte("digest"),
		Wrapped: map[string][]byte{"a": []byte("for a"), "c": []byte("for c")}}}
	if _, err := w.gc.PutKeyring(ctx, at, ring); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("a site where it does not begin adds a key: %v", err)
	}
	two := ring
	two.Later = append(two.Later, two.Later[0])
	if _, err := w.ga.PutKeyring(ctx, at, two); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("two at once: %v", err)
	}
	at = must[federation.Revision](w)(w.ga.PutKeyring(ctx, at, ring))
	ctl := federation.Control{Volume: "v9", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
		History: []federation.EpochStart{{Epoch: 1}}}
	rev := must[federation.Revision](w)(w.ga.SwapControl(ctx, "v9", 0, ctl))
	ctl.Members = append(ctl.Members, member("c"))
	rev = must[federation.Revision](w)(w.ga.SwapControl(ctx, "v9", rev, ctl))
	ctl.Epoch, ctl.Home = 2, member("c")
	ctl.Begin(federation.EpochStart{Epoch: 2})
	must[federation.Revision](w)(w.gc.SwapControl(ctx, "v9", rev, ctl))
	two.Generation++
	if _, err := w.ga.PutKeyring(ctx, at, two); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("where it began, when it is at home elsewhere: %v", err)
	}
	must[federation.Revision](w)(w.gc.PutKeyring(ctx, at, two))
}
