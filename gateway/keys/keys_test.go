// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/encryption"
	"github.com/weir-storage/weir/federation/federationtest"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/federation/view"
)

var errEnds = errors.New("it ends")

// told is a watch that tells events and ends.
type told []federation.Event

func (t told) Watch(_ context.Context, fn func(federation.Event) error) error {
	for _, e := range t {
		if err := fn(e); err != nil {
			return err
		}
	}
	return errEnds
}

func (told) Head(context.Context) (federation.Head, error) { return federation.Head{}, nil }

// rig is the home of one volume, which site ams has the key of.
type rig struct {
	*Keeper
	v    federation.Volume
	ring federation.Keyring
	reg  federation.Registry
}

func newRig(t *testing.T, is encryption.Policy) *rig {
	t.Helper()
	key, err := keyring.NewSiteKey()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{reg: memory.New(), v: federationtest.Volume("u1", "data")}
	r.v.Sites, r.v.Spec.Encryption = []string{"ams"}, is
	if r.ring, _, err = keyring.New("u1", map[string][]byte{"ams": key.Public()}, rand.Reader); err != nil {
		t.Fatal(err)
	}
	if _, err = r.reg.CreateVolume(t.Context(), r.v, r.ring); err != nil {
		t.Fatal(err)
	}
	self := federation.Member{Gateway: "a", Site: "ams", Incarnation: "i"}
	r.Keeper = &Keeper{Self: self, View: view.New("ams", federation.KindVolume, federation.KindControl, federation.KindKeyring,
		federation.KindSite), Registry: r.reg, SiteKey: key, Now: time.Now, After: time.After, Rand: rand.Reader,
		Rotates: func() bool { return true }, Logger: slog.New(slog.DiscardHandler)}
	ctl := federation.Control{Volume: "u1", Epoch: 1, Home: self, Members: []federation.Member{self}}
	err = r.View.Watch(t.Context(), told{{Kind: federation.KindVolume, Name: "u1", Revision: 1, Volume: &r.v},
		{Kind: federation.KindSite, Name: "ams", Site: &federation.Site{Name: "ams", WrapKey: key.Public()}},
		{Kind: federation.KindControl, Name: "u1", Control: &ctl}, {Kind: federation.KindKeyring, Name: "u1", Keyring: &r.ring}})
	if !errors.Is(err, errEnds) {
		t.Fatal(err)
	}
	return r
}

func leads() bool { return true }

// keys is how many data keys the registry has.
func (r *rig) keys(t *testing.T) int {
	t.Helper()
	ring, _, err := r.reg.GetKeyring(t.Context(), "u1")
	if err != nil {
		t.Fatal(err)
	}
	return len(ring.Keys())
}

// A home that has not heard of the key that another one made does not make a second one for the
// same word.
func TestOneKeyOfANumber(t *testing.T) {
	r := newRig(t, encryption.Policy{Rotation: 1})
	if r.Share(t.Context(), r.v, leads) || r.keys(t) != 2 {
		t.Fatalf("there are %d", r.keys(t))
	}
	if !r.Share(t.Context(), r.v, leads) || r.keys(t) != 2 {
		t.Errorf("after the second there are %d", r.keys(t))
	}
}

// Nothing follows before all gateways know of later keys, or by the hand of who is not the home.
func TestNothingFollows(t *testing.T) {
	r := newRig(t, encryption.Policy{Rotation: 1})
	r.Rotates = func() bool { return false }
	if r.Share(t.Context(), r.v, leads) || r.keys(t) != 1 {
		t.Errorf("without signatures there are %d", r.keys(t))
	}
	r.Rotates = func() bool { return true }
	if !r.Share(t.Context(), r.v, func() bool { return false }) || r.keys(t) != 1 {
		t.Errorf("who does not lead makes one: %d", r.keys(t))
	}
}

// A volume with a schedule is looked at again without news of the registry.
func TestLook(t *testing.T) {
	r := newRig(t, encryption.Policy{RotateEvery: quantity.Duration(time.Hour)})
	if r.Look() != nil {
		t.Error("it is looked before anybody asked")
	}
	r.Share(t.Context(), r.v, leads)
	if r.Look() == nil {
		t.Error("it is not looked")
	}
	r.v.Spec.Encryption.RotateEvery = 0
	r.Share(t.Context(), r.v, leads)
	if r.Look() != nil {
		t.Error("it is looked although there is no schedule")
	}
}
