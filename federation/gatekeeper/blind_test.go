// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
)

// TestBlindAttacks: the host of a blind copy, which leads for a moment, draws no key and wraps
// none, and takes in whom the owner named, or who has the key. Nobody wraps a key for it.
func TestBlindAttacks(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	refused := func(what string, err error, why string) {
		t.Helper()
		if !errors.Is(err, federation.ErrAccess) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", what, err, why)
		}
		if said := w.log.last(); !strings.Contains(said, "audit=refused") {
			t.Errorf("%s: it is logged as %s", what, said)
		}
	}
	v := volumeOf("v8", "eight", "A", "a", "c")
	v.Blind = []string{"c"}
	at := must[federation.Revision](w)(w.pa.CreateVolume(ctx, v, ringOf("v8", "a")))
	ctl := federation.Control{Volume: "v8", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
		History: []federation.EpochStart{{Epoch: 1}}}
	rev := must[federation.Revision](w)(w.ga.SwapControl(ctx, "v8", 0, ctl))
	ctl.Members = append(ctl.Members, member("c"))
	rev = must[federation.Revision](w)(w.ga.SwapControl(ctx, "v8", rev, ctl))
	ring, ringAt, err := w.ga.GetKeyring(ctx, "v8")
	w.ok(err)
	with := func(site string) federation.Keyring {
		next := ring
		next.Generation++
		next.Wrapped = map[string][]byte{"a": ring.Wrapped["a"], site: []byte("wrapped for " + site)}
		return next
	}
	_, err = w.ga.PutKeyring(ctx, ringAt, with("c"))
	refused("the home wraps the key for a blind copy", err, "the copy at site c is blind")

	ctl.Epoch, ctl.Home, ctl.Members = 2, member("c"), []federation.Member{member("c")}
	ctl.Begin(federation.EpochStart{Epoch: 2})
	rev = must[federation.Revision](w)(w.gc.SwapControl(ctx, "v8", rev, ctl))
	_, err = w.gc.PutKeyring(ctx, ringAt, with("c"))
	refused("a steward wraps a key of its own for itself", err, "site c has no key")
	_, err = w.gc.PutKeyring(ctx, ringAt, with("b"))
	refused("a steward wraps something for another", err, "site c has no key")
	mine := ring
	mine.Generation++
	mine.Later = []federation.LaterKey{{At: time.Unix(1e9, 0).UTC(), Wrapped: map[string][]byte{"a": []byte("mine"), "c": []byte("mine")}}}
	_, err = w.gc.PutKeyring(ctx, ringAt, mine)
	refused("a steward draws the next data key", err, "site c has no key")
	other := ctl
	other.Members = []federation.Member{member("c"), member("b")}
	_, err = w.gc.SwapControl(ctx, "v8", rev, other)
	refused("a steward takes in a site without a copy", err, "where the volume is to have no copy")

	// The owner moves the copy that has the key away from a. The steward may still hand on to it.
	v.Generation++
	v.Sites = []string{"b", "c"}
	must[federation.Revision](w)(w.pa.UpdateVolume(ctx, at, v))
	ctl.Members = append(slices.Clone(ctl.Members), member("a"))
	rev = must[federation.Revision](w)(w.gc.SwapControl(ctx, "v8", rev, ctl))
	ctl.Epoch, ctl.Home = 3, member("a")
	ctl.Begin(federation.EpochStart{Epoch: 3})
	must[federation.Revision](w)(w.ga.SwapControl(ctx, "v8", rev, ctl))
	must[federation.Revision](w)(w.ga.PutKeyring(ctx, ringAt, with("b")))
}
