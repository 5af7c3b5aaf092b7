// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/volume"
)

// TestPlanWhileChangesAreHeld: a hold begins once in a reign, and is taken by its own token only;
// nothing that would wait for it is begun meanwhile; who does not want it any more ends it.
func TestPlanWhileChangesAreHeld(t *testing.T) {
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	held := func(take string) snapshots.Wish {
		return snapshots.Wish{Name: "g-1", UID: "1", Hold: true, Take: take}
	}
	drop, other := snapshots.Wish{Name: "g-1", UID: "1", Hold: true, Drop: true}, snapshots.Wish{Name: "o", UID: "2"}
	for _, tt := range []struct {
		what   string
		wishes []snapshots.Wish
		list   []volume.Snapshot
		tokens map[string]string // that were given
		by     string            // by which changes are held
		state  snapshots.State

		take, drop, hold, finish, release int
	}{
		{what: "asked for", wishes: []snapshots.Wish{held(""), other}, state: snapshots.StatePending, take: 1, hold: 1},
		{what: "held", wishes: []snapshots.Wish{held(""), other}, tokens: map[string]string{"g-1": "t"}, by: "t",
			state: snapshots.StateHeld},
		{what: "over", wishes: []snapshots.Wish{held(""), other}, tokens: map[string]string{"g-1": "t"},
			state: snapshots.StateMissed, take: 1},
		{what: "taken by it", wishes: []snapshots.Wish{held("t"), other}, tokens: map[string]string{"g-1": "t"}, by: "t",
			state: snapshots.StateHeld, finish: 1},
		{what: "taken when it is over", wishes: []snapshots.Wish{held("t")}, tokens: map[string]string{"g-1": "t"},
			state: snapshots.StateMissed},
		{what: "taken by that of another reign", wishes: []snapshots.Wish{held("t")}, state: snapshots.StateMissed},
		{what: "taken by another one than this", wishes: []snapshots.Wish{held("t")}, tokens: map[string]string{"g-1": "u"}, by: "u",
			state: snapshots.StateMissed, release: 1},
		{what: "taken by that of another snapshot", wishes: []snapshots.Wish{held("t"), {Name: "g-2", UID: "2", Hold: true}},
			tokens: map[string]string{"g-2": "t"}, by: "t", state: snapshots.StateMissed},
		{what: "two groups", wishes: []snapshots.Wish{held(""), {Name: "g-2", UID: "2", Hold: true}},
			tokens: map[string]string{"g-2": "t"}, by: "t", state: snapshots.StatePending},
		{what: "gone", wishes: []snapshots.Wish{other}, tokens: map[string]string{"g-1": "t"}, by: "t", take: 1, release: 1},
		{what: "gone and over", wishes: []snapshots.Wish{other}, tokens: map[string]string{"g-1": "t"}, take: 1},
		{what: "there", wishes: []snapshots.Wish{held("t")}, list: list("g-1"), tokens: map[string]string{"g-1": "t"},
			state: snapshots.StateTaken},
		{what: "dropped", wishes: []snapshots.Wish{drop}, tokens: map[string]string{"g-1": "t"}, by: "t", state: snapshots.StatePending,
			drop: 1, release: 1},
	} {
		h := holds{tt.tokens, func(token string) bool { return token == tt.by }}
		got := plan(federation.Volume{Snapshots: tt.wishes}, tt.list, nil, nil, snapshots.Rolled{}, h, at)
		is := [...]int{len(got.take), len(got.drop), len(got.hold), len(got.finish), len(got.release)}
		if want := [...]int{tt.take, tt.drop, tt.hold, tt.finish, tt.release}; is != want {
			t.Errorf("%s: taken, dropped, held, finished, released are %v, want %v", tt.what, is, want)
		}
		for _, w := range tt.wishes {
			if is := h.ready(w); is != (tt.finish > 0 && w.Name == "g-1") {
				t.Errorf("%s: %s is ready to be taken: %t", tt.what, w.Name, is)
			}
		}
		h.forget(tt.wishes)
		if _, asked := snapshots.Find(tt.wishes, "g-1"); len(h.tokens) > 0 && !asked && tt.by == "" {
			t.Errorf("%s: it keeps %v", tt.what, h.tokens)
		}
		s, _ := report(tt.wishes, tt.list, nil, nil, nil, h).Of("g-1")
		if s.State != tt.state || (s.Token != "") != (tt.state == snapshots.StateHeld) {
			t.Errorf("%s: it says %+v, want %s", tt.what, s, tt.state)
		}
	}
}
