// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"

	"github.com/weir-storage/weir/federation"
)

// madeOf notes, or forgets, of which volume a volume is being made (ADR 53).
func (vs *volumes) madeOf(r *federation.Volume, is bool) {
	if !r.Source.Unfinished() {
		return
	}
	of := r.Source.Volume
	switch {
	case is && vs.made[of] == nil:
		vs.made[of] = map[string]bool{r.UUID: true}
	case is:
		vs.made[of][r.UUID] = true
	default:
		if delete(vs.made[of], r.UUID); len(vs.made[of]) == 0 {
			delete(vs.made, of)
		}
	}
}

// making returns the records of the volumes that their owner makes of his volume of. The caller
// holds mu.
func (v *View) making(of *federation.Volume) (out []*federation.Volume) {
	for uuid := range v.volumes.made[of.UUID] {
		e := v.volumes.all[uuid]
		if e == nil || e.Record == nil || e.Record.Deleted {
			continue
		}
		if r := e.Record; r.Owner == of.Owner && r.OwnerSite == of.OwnerSite && r.OwnerCluster == of.OwnerCluster {
			out = append(out, r)
		}
	}
	return out
}

// fills reports whether a site is to have a copy, with the key, of a volume that is being made of a
// snapshot of r. The caller holds mu.
func (v *View) fills(r *federation.Volume, site string) bool {
	return len(v.volumes.made[r.UUID]) > 0 &&
		slices.ContainsFunc(v.making(r), func(n *federation.Volume) bool { return hasKey(n, site) })
}

// Making returns the records of the volumes that are being made of snapshots of a volume by its
// owner, by name. They do not have all of them yet, as far as the registry says. They are not to be
// modified.
func (v *View) Making(volume string) []*federation.Volume {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e := v.volumes.all[volume]
	if e == nil || e.Record == nil || len(v.volumes.made[volume]) == 0 {
		return nil
	}
	out := v.making(e.Record)
	slices.SortFunc(out, func(a, b *federation.Volume) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
