// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/volume"
)

// todo are the names of snapshots that are to be taken and dropped. First the volume is rolled
// back, if roll is not nil. old go last, and only if other clocks agree (clocks-1).
type todo struct {
	take, drop, old []string
	roll            *snapshots.Rollback
	// hold has the wishes for which changes are to be held, after all else, and finish those that
	// are then taken. release has the tokens of holds that nobody wants any more.
	hold, finish []snapshots.Wish
	release      []string
}

// nothing reports whether there is nothing to do. waits: old wait for clocks.
func (t todo) nothing(waits bool) bool {
	return t.roll == nil && len(t.take)+len(t.drop)+len(t.hold)+len(t.finish)+len(t.release) == 0 &&
		(waits || len(t.old) == 0)
}

// holds are the holds of a reign, by the name of their snapshots.
type holds struct {
	tokens map[string]string
	// by reports whether changes are held by a token, and have been ever since.
	by func(token string) bool
}

// now reports whether changes are held for a snapshot of which this reign knows.
func (h holds) now() bool {
	for _, token := range h.tokens {
		if h.by(token) {
			return true
		}
	}
	return false
}

// ready reports whether a snapshot is to be taken by the hold that was begun for it, which goes on.
func (h holds) ready(w snapshots.Wish) bool {
	return w.Take != "" && !w.Drop && w.Take == h.tokens[w.Name] && h.by(w.Take)
}

// forget forgets the holds that are over and of which no wish tells any more.
func (h holds) forget(wishes []snapshots.Wish) {
	maps.DeleteFunc(h.tokens, func(name, token string) bool {
		_, ok := snapshots.Find(wishes, name)
		return !ok && !h.by(token)
	})
}

// plan adds what is to be done for snapshots that are taken while changes are held. A hold begins
// once in a reign, and nothing else is begun meanwhile: it would wait. It ends early if its
// snapshot is not wanted any more, or is to be taken by another token.
func (h holds) plan(v federation.Volume, list []volume.Snapshot, t *todo) {
	held := false
	for name, token := range h.tokens {
		if w, ok := snapshots.Find(v.Snapshots, name); h.by(token) {
			if !ok || w.Drop || w.Take != "" && w.Take != token {
				t.release = append(t.release, token)
			} else {
				held = true
			}
		}
	}
	if held {
		*t = todo{release: t.release}
	}
	for _, w := range v.Snapshots {
		switch {
		case !w.Hold || w.Drop || has(list, w.Name):
		case h.ready(w):
			t.finish = append(t.finish, w)
		case w.Take == "" && h.tokens[w.Name] == "" && !held:
			t.hold = append(t.hold, w)
		}
	}
}

// state is what became of a wish that is not there yet, with the token of StateHeld.
func (h holds) state(w snapshots.Wish) (snapshots.State, string) {
	token := h.tokens[w.Name]
	switch {
	case w.Take == "" && token == "":
		return snapshots.StatePending, ""
	case h.by(token) && (w.Take == "" || w.Take == token):
		return snapshots.StateHeld, token
	}
	return snapshots.StateMissed, ""
}

// plan returns what is to be done for a volume that has the snapshots of list. dropped has the UIDs
// of wishes to drop that were done in this reign, by name, and rolled what became in it of a
// rollback. held has the snapshots of which volumes are being made, which are dropped later
// (fill-3). What is missing from the record is dropped by nobody (snapshots-1).
func plan(v federation.Volume, list []volume.Snapshot, dropped, held map[string]string, rolled snapshots.Rolled, h holds,
	now time.Time) (t todo) {
	if v.Rollback != nil && (rolled.ID != v.Rollback.ID || rolled.State == snapshots.StatePending) {
		t.roll = v.Rollback
	}
	for _, w := range v.Snapshots {
		switch {
		case w.Drop && dropped[w.Name] != w.UID:
			// Also if it is not in list: an attempt to take it may be under way (snapshots-2).
			if held[w.Name] == "" {
				t.drop = append(t.drop, w.Name)
			}
		case !w.Drop && !w.Hold && !has(list, w.Name):
			t.take = append(t.take, w.Name)
		}
	}
	for _, s := range v.Spec.Snapshots.Schedule {
		if name := s.Every.Name(now); !has(list, name) && !asked(v, name) {
			t.take = append(t.take, name)
		}
	}
	t.old = old(v, list, held, now)
	h.plan(v, list, &t)
	return t
}

// skew is how far the clock of a home may be ahead of the next one's, as far as its snapshots are
// not taken for wrong.
const skew = 2 * time.Minute

// old returns which snapshots of its schedules a volume has too many of. One that was taken while
// the home's clock was wrong is in nobody's place: its name is of the future, or of before an
// earlier one's. It goes when there is one of the present.
func old(v federation.Volume, list []volume.Snapshot, held map[string]string, now time.Time) (drop []string) {
	for _, s := range v.Spec.Snapshots.Schedule {
		newest, wrong := "", map[string]bool{}
		mine := slices.DeleteFunc(slices.Clone(list), func(x volume.Snapshot) bool {
			every, ok := snapshots.Parse(x.Name)
			return !ok || every != s.Every || asked(v, x.Name) || held[x.Name] != ""
		})
		for _, x := range mine {
			if wrong[x.Name] = x.Name > s.Every.Name(now.Add(skew)) || x.Name < newest; !wrong[x.Name] {
				newest = x.Name
			}
		}
		kept := 0
		for _, x := range slices.Backward(mine) {
			if !wrong[x.Name] {
				kept++
			}
			if wrong[x.Name] && has(list, s.Every.Name(now)) || !wrong[x.Name] && kept > s.Keep {
				drop = append(drop, x.Name)
			}
		}
	}
	return drop
}

func has(list []volume.Snapshot, name string) bool {
	return slices.ContainsFunc(list, func(s volume.Snapshot) bool { return s.Name == name })
}

// asked reports whether somebody decides about a snapshot.
func asked(v federation.Volume, name string) bool {
	_, ok := snapshots.Find(v.Snapshots, name)
	return ok
}

// report says what became of a volume's wishes, and which snapshots there are. failed has why a
// name could not be taken or dropped, and held the volumes that are being made of a snapshot.
func report(wishes []snapshots.Wish, list []volume.Snapshot, dropped, failed, held map[string]string, h holds) *snapshots.Report {
	r := &snapshots.Report{}
	rest := max(0, snapshots.MaxReported-len(wishes)) // how many may be told that nobody asked for
	for _, s := range slices.Backward(list) {
		out := snapshots.Snapshot{Name: s.Name, State: snapshots.StateTaken, Time: s.Time.UTC(), Bytes: s.Bytes, Inodes: s.Inodes,
			Snap: s.Snap}
		w, asked := snapshots.Find(wishes, s.Name)
		switch {
		case asked:
			out.UID = w.UID
			if w.Drop {
				out.State, out.Message = snapshots.StatePending, failed[s.Name]
				if of := held[s.Name]; of != "" {
					out.Message = "volume " + of + " is being made of it: it is dropped when that has all"
				}
			}
		case rest == 0:
			r.More++
			continue
		default:
			rest--
		}
		r.All = append(r.All, out)
	}
	slices.Reverse(r.All)
	for _, w := range wishes {
		if has(list, w.Name) {
			continue
		}
		out := snapshots.Snapshot{Name: w.Name, UID: w.UID, State: snapshots.StatePending, Message: failed[w.Name]}
		if w.Hold && !w.Drop {
			out.State, out.Token = h.state(w)
		}
		if w.Drop && dropped[w.Name] == w.UID {
			out.State, out.Message = snapshots.StateDropped, ""
		}
		r.All = append(r.All, out)
	}
	return r
}
