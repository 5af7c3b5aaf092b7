// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/view"
)

// A volume that is not shown here takes of its sites' room, and is no volume.
func TestElsewhere(t *testing.T) {
	elsewhere := func(rev federation.Revision, sites ...string) federation.Event {
		return federation.Event{Kind: federation.KindVolume, Name: "x", Deleted: true, Revision: rev,
			Elsewhere: &federation.Elsewhere{Sites: sites, Size: 7}}
	}
	takes := func(v *view.View, site string, want federation.Bytes, of int32) {
		t.Helper()
		promised, copies := v.Promised(site)
		equal(t, "promised at "+site, []any{promised, copies}, []any{want, of})
		if all, _ := v.Volumes(); len(all) != 0 || v.Volume("x") != nil {
			t.Errorf("volumes are %v", all)
		}
	}
	v := filled(t, elsewhere(1, "ams", "utr"), synced(2))
	takes(v, "ams", 7, 1)
	takes(v, "utr", 7, 1)
	watch(t, v, elsewhere(3, "utr"), synced(4))
	takes(v, "ams", 0, 0)
	takes(v, "utr", 7, 1)
	watch(t, v, federation.Event{Kind: federation.KindVolume, Name: "x", Deleted: true, Revision: 5}, synced(6))
	takes(v, "utr", 0, 0)
	watch(t, v, elsewhere(7, "utr"), synced(8))
	watch(t, v, synced(9)) // a new list without it
	takes(v, "utr", 0, 0)
}
