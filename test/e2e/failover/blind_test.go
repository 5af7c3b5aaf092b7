// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weir-storage/weir/test/e2e/bed"
)

// newBlindScene is as newScene, but c's copy holds ciphertext only.
func newBlindScene(t *testing.T, members int) *scene {
	t.Helper()
	manifest := strings.Replace(bed.Manifest("v", members, "a"), "copies: 3", "copies: 3, sites: {blind: [c]}", 1)
	s := &scene{Scene: bed.NewScene(t, bed.Config{Promise: promise.String()}, manifest)}
	s.guest = s.Machine("b", "wb")
	return s
}

// onlyBlind makes the blind copy the only member beside the home, which is at a: b is away until
// the home goes on without it. b then follows.
func (s *scene) onlyBlind() {
	s.T.Helper()
	b := s.Bed.Site("b")
	b.Gateway().Kill()
	s.Await("a", func(st bed.Status) bool {
		return slices.Equal(slices.Sorted(slices.Values(st.Members)), []string{"ga", "gc"})
	})
	if err := b.StartGateway(); err != nil {
		s.T.Fatal(err)
	}
}

// TestHomeIsKilledWithABlindMember: of the other copies one has the key and one is blind. The home
// is killed under load, every other time while the blind copy is the only other member: it hands on
// to the one that follows. Nothing that was acknowledged is lost, and no program gets an error.
func TestHomeIsKilledWithABlindMember(t *testing.T) {
	s := newBlindScene(t, 2)
	lines := s.lines()
	for i := range 2 * losses {
		if s.healthy(); i%2 == 0 {
			s.onlyBlind()
		}
		before := s.healthy()
		if i%2 == 0 && !slices.Contains(before.Members, "gc") {
			t.Fatalf("the members are %v", before.Members)
		}
		a := s.Bed.Site("a")
		a.Gateway().Kill()
		if after := s.newEpoch(before.Epoch); after.HomeSite != "b" {
			t.Fatalf("home is %s in epoch %d", after.HomeSite, after.Epoch)
		}
		if err := a.StartGateway(); err != nil {
			t.Fatal(err)
		}
	}
	s.healthy()
	s.finishLines(lines)
	text, err := os.ReadFile(s.Bed.Site("c").Gateway().Log())
	if err != nil {
		t.Fatal(err)
	}
	stewards := strings.Count(string(text), "role=Home")
	t.Logf("the blind copy led, and handed on, %d times", stewards)
	if stewards < losses {
		t.Errorf("the blind copy led %d times, not %d", stewards, losses)
	}
	check := s.Machine("a", "wa")
	text, err = os.ReadFile(s.guest.Shared() + "/lines")
	if err == nil {
		err = os.WriteFile(check.Shared()+"/lines", text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	check.Verify("/mnt/v/lines", "/x/lines")
}

// TestOnlyABlindCopyIsLeft: both copies with the key are lost. The volume waits, and goes on with
// all that was acknowledged when one is back.
func TestOnlyABlindCopyIsLeft(t *testing.T) {
	s := newBlindScene(t, 3)
	s.Await("b", func(st bed.Status) bool { return st.State == "Ready" && len(st.Members) == 3 })
	lines := s.lines()
	before := s.Await("b", func(st bed.Status) bool { return st.HomeSite == "a" })
	a, b := s.Bed.Site("a"), s.Bed.Site("b")
	b.Gateway().Kill()
	a.Gateway().Kill()
	waits := s.Await("c", func(st bed.Status) bool { return st.HomeSite == "c" && strings.Contains(st.Message, "ciphertext") })
	if waits.Epoch <= before.Epoch || waits.State == "Ready" {
		t.Errorf("with a blind copy only it is %+v", waits)
	}
	t.Log(waits.State, waits.Message)
	if err := b.StartGateway(); err != nil {
		t.Fatal(err)
	}
	s.Await("c", func(st bed.Status) bool { return st.HomeSite == "b" })
	if err := a.StartGateway(); err != nil {
		t.Fatal(err)
	}
	s.Await("b", func(st bed.Status) bool { return st.State == "Ready" && len(st.Members) == 3 })
	s.finishLines(lines)
}
