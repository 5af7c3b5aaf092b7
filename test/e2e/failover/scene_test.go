// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-storage/weir/test/e2e/bed"
)

// promise is how long the members of these volumes promise. A home that was silent for longer has
// lost it.
const promise = 2 * time.Second

// scene is a volume that two sites acknowledge, and a machine at b that works on it.
type scene struct {
	*bed.Scene
	guest *bed.Machine
	moves uint64 // planned moves so far
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{Scene: bed.NewScene(t, bed.Config{Promise: promise.String()}, bed.Manifest("v", 2, "a"))}
	s.guest = s.Machine("b", "wb")
	return s
}

// lines begins to append fsync'ed lines at b.
func (s *scene) lines() *bed.Work {
	s.T.Helper()
	return s.guest.Begin("lines", s.Tool+" write /mnt/v/lines /x/lines")
}

// finishLines ends the appending, and checks that every line is there.
func (s *scene) finishLines(w *bed.Work) {
	s.T.Helper()
	w.Finish(s.Ctx)
	s.guest.Verify("/mnt/v/lines", "/x/lines")
}

// whole waits until the volume has all its copies and two members, and returns its state.
func (s *scene) whole() bed.Status {
	s.T.Helper()
	return s.Await("b", func(st bed.Status) bool { return st.State == "Ready" && len(st.Members) == 2 && joined(st) == 3 })
}

// alive waits until a site's gateway has its heartbeat in the registry. A gateway that was cut off
// can follow its peers earlier.
func (s *scene) alive(site string) {
	s.T.Helper()
	for {
		out, err := s.Bed.Weir(s.Ctx, "b", "site", "list", "-o", "json")
		if err != nil {
			s.T.Fatalf("list sites: %v: %s", err, out)
		}
		type line struct {
			Name  string
			Alive []string
		}
		var sites []line
		if err := json.Unmarshal([]byte(out), &sites); err != nil {
			s.T.Fatalf("list sites: %v: %s", err, out)
		}
		if slices.ContainsFunc(sites, func(l line) bool { return l.Name == site && len(l.Alive) > 0 }) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// move makes a site home by a planned move, which programs must not notice. The volume belongs to
// a's organization.
func (s *scene) move(to string) {
	s.T.Helper()
	s.alive(to)
	if out, err := s.Bed.Weir(s.Ctx, "a", "failover", "v", "--to", to); err != nil {
		s.T.Fatalf("planned move: %v: %s", err, out)
	}
	s.moves++
}

// healthy waits until the volume is whole and has its home at a or c, and returns its state. The
// loss of these sites leaves b's machine alone.
func (s *scene) healthy() bed.Status {
	s.T.Helper()
	for {
		st := s.whole()
		if st.HomeSite != "b" {
			return st
		}
		s.move("a")
	}
}

// joined is how many replicas have everything or are about to.
func joined(st bed.Status) (n int) {
	for _, r := range st.Replicas {
		if r.State == "Home" || r.State == "Member" || r.State == "Follower" {
			n++
		}
	}
	return n
}

// newEpoch waits until an epoch after the given one is served.
func (s *scene) newEpoch(after uint64) bed.Status {
	s.T.Helper()
	return s.Await("b", func(st bed.Status) bool { return st.Epoch > after && (st.State == "Ready" || st.State == "Degraded") })
}

// lose kills the home's gateway and starts it again, at once or once the epoch has moved.
func (s *scene) lose(held bool) {
	s.T.Helper()
	before := s.healthy()
	home := s.Bed.Site(before.HomeSite)
	home.Gateway().Kill()
	if held {
		after := s.newEpoch(before.Epoch)
		if after.HomeSite == before.HomeSite {
			s.T.Fatalf("home is %s in epoch %d although its gateway is dead", after.HomeSite, after.Epoch)
		}
	}
	if err := home.StartGateway(); err != nil {
		s.T.Fatal(err)
	}
	s.newEpoch(before.Epoch)
	time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond) // some load in between; nothing depends on how long
}
