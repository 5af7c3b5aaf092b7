// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
)

// An administrator keeps one of two branches, in which somebody had taken over by force. Who knows
// the other branch follows what the home then writes, and takes neither it nor that for forged.
func TestDecidedBetweenBranches(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	must[federation.Revision](w)(w.pa.CreateVolume(ctx, volumeOf("v1", "one", "A", "a", "b"), ringOf("v1", "a")))
	first := federation.Control{Volume: "v1", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
		History: []federation.EpochStart{{Epoch: 1}}}
	rev := must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", 0, first))
	first, _, err := w.ga.GetControl(ctx, "v1")
	w.ok(err)
	// One branch: by force, from the first record.
	forced := first.Clone()
	forced.Epoch, forced.Home, forced.Members = 2, member("b"), []federation.Member{member("b")}
	forced.Begin(federation.EpochStart{Epoch: 2, Forced: true,
		Word: w.pa.says(signed.Takeover{Volume: "v1", Gateway: "gb", Epoch: 1, Change: first.Change})})
	forced.Succeed(&first)
	// The other, which the reader knows: its home went on, twice.
	other := first.Clone()
	other.Members = append(other.Members, member("b"))
	rev = must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", rev, other))
	other.Members = other.Members[:1]
	must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", rev, other))
	other, _, err = w.ga.GetControl(ctx, "v1")
	w.ok(err)
	r := w.reader("C", "c", "gc")
	r.after(r.heard())

	decision := federation.Correction{Key: "control/v1", Branches: []federation.Control{other, forced}}
	w.ok(decision.Keep("gb", func(volume, gateway string, epoch, change uint64) (string, error) {
		return w.admin.says(signed.Takeover{Volume: volume, Gateway: gateway, Epoch: epoch, Change: change}), nil
	}))
	var kept federation.Control
	w.ok(federation.Decode("control", "v1", decision.Value, &kept))
	next := kept.Clone()
	next.Epoch++
	next.Begin(federation.EpochStart{Epoch: next.Epoch})
	next.Succeed(&kept)
	n := r.heard()
	_, err = w.plain.Put(ctx, prefix+"control/v1", string(w.gb.forge("control/v1", next.Change, next)))
	w.ok(err)
	r.after(n)
	if got, _, err := r.GetControl(ctx, "v1"); err != nil || got.Epoch != next.Epoch || r.refusals(federation.KindControl) != 0 {
		t.Errorf("the reader has epoch %d (%v), and refused %d records", got.Epoch, err, r.refusals(federation.KindControl))
	}
}
