// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/encryption"
	"github.com/weir-storage/weir/federation/federationtest"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/pki"
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

// Schedules are looked at when the first key is due, and not up to a minute later. One that is due
// and can not follow is not looked at all the time.
func TestLookWhenDue(t *testing.T) {
	r := newRig(t, encryption.Policy{RotateEvery: quantity.Duration(time.Hour)})
	var now time.Time
	var waits time.Duration
	r.After = func(d time.Duration) <-chan time.Time { waits = d; return nil }
	made := r.View.Volume("u1").Record.CreatedAt
	for _, tt := range []struct {
		age, want time.Duration
	}{
		{0, time.Minute},
		{time.Hour - 61*time.Second, time.Minute},
		{time.Hour - 7*time.Second, 7 * time.Second},
		{time.Hour, time.Minute},
		{5 * time.Hour, time.Minute},
		{-5 * time.Hour, time.Minute},
	} {
		now = made.Add(tt.age)
		r.Now = func() time.Time { return now }
		waits = 0
		r.Share(t.Context(), r.v, func() bool { return false })
		r.Look()
		if waits != tt.want {
			t.Errorf("the key is %v old: it is looked after %v, not %v", tt.age, waits, tt.want)
		}
	}
	// The first of two counts.
	now = made.Add(time.Hour - 7*time.Second)
	other := r.v
	other.UUID = "u2"
	r.Share(t.Context(), other, leads)
	r.Share(t.Context(), r.v, leads)
	r.Share(t.Context(), other, leads)
	if r.Look(); waits != 7*time.Second {
		t.Errorf("of two volumes, it is looked after %v", waits)
	}
}

// vaults has a folder in memory, which may fail.
func (r *rig) vaults(t *testing.T) (fails *error) {
	t.Helper()
	pool, err := crashfs.NewDisk(crashfs.Config{Gateway: "a", Limit: 1 << 20, Rand: mathrand.New(mathrand.NewPCG(1, 2))}).Open()
	if err != nil {
		t.Fatal(err)
	}
	fails = new(error)
	r.Vault = func() (cachepool.Dir, error) {
		if *fails != nil {
			return nil, *fails
		}
		return pool.Volume("keys")
	}
	r.Forward = func(gateway string) (forwardpb.ForwardClient, error) { return nil, errors.New("away") }
	return fails
}

// full is a folder that takes no file.
type full struct{ cachepool.Dir }

func (full) Create(string) (cachepool.File, error) { return nil, cachepool.ErrFull }

// The secret is on the pool before the registry has a key that is sealed under it. A second attempt
// uses what the first one kept; and a purge's part removes it.
func TestSecretIsKeptFirst(t *testing.T) {
	r := newRig(t, encryption.Policy{Erase: encryption.EraseOnPurge})
	fails := r.vaults(t)
	*fails = errors.New("the disk fails")
	if !r.Share(t.Context(), r.v, leads) || r.keys(t) != 1 {
		t.Fatalf("with a disk that fails there are %d keys", r.keys(t))
	}
	*fails = nil
	dir, err := r.Vault()
	if err != nil {
		t.Fatal(err)
	}
	r.vault = full{dir}
	if !r.Share(t.Context(), r.v, leads) || r.keys(t) != 1 {
		t.Fatalf("with a full pool there are %d keys", r.keys(t))
	}
	r.vault = nil
	r.v.Sites = []string{"ams"}
	held, err := r.Open(t.Context(), r.v) // nobody has led the volume
	if err != nil || r.keys(t) != 2 {
		t.Fatalf("there are %d keys, %v", r.keys(t), err)
	}
	if n, _ := held.Newest(); n != 1 {
		t.Errorf("key %d is used first", n)
	}
	if _, err := r.Open(t.Context(), r.v); err != nil || r.keys(t) != 2 {
		t.Errorf("opened again, there are %d keys, %v", r.keys(t), err)
	}
	if !r.HasSecret("u1") {
		t.Error("the pool does not have the secret")
	}
	if err := errors.Join(r.Destroy("u1"), r.Destroy("u1")); err != nil || r.HasSecret("u1") {
		t.Errorf("destroyed: %v", err)
	}
	if _, err := r.Open(t.Context(), r.v); err == nil || !strings.Contains(err.Error(), "no other gateway gives it") {
		t.Errorf("without the secret: %v", err)
	}
}

// Elsewhere than where it begins, a volume waits for its first key.
func TestOthersWaitForTheFirstKey(t *testing.T) {
	r := newRig(t, encryption.Policy{Erase: encryption.EraseOnPurge})
	r.vaults(t)
	r.v.Sites = []string{"utr", "ams"}
	if _, err := r.Open(t.Context(), r.v); !errors.Is(err, ErrAwaited) || r.keys(t) != 1 {
		t.Errorf("%d keys, %v", r.keys(t), err)
	}
	r.v.Sites, r.Rotates = []string{"ams"}, func() bool { return false }
	if _, err := r.Open(t.Context(), r.v); err == nil || !strings.Contains(err.Error(), "not signed yet") || r.keys(t) != 1 {
		t.Errorf("%d keys, %v", r.keys(t), err)
	}
}

// A gateway gives the secret to a gateway of a site that has the newest data key, sealed for that
// site, and to no other.
func TestWhoGetsTheSecret(t *testing.T) {
	r := newRig(t, encryption.Policy{Erase: encryption.EraseOnPurge})
	r.vaults(t)
	other, err := keyring.NewSiteKey()
	if err != nil {
		t.Fatal(err)
	}
	asks := func(gateway, site string) ([]byte, error) {
		r.Caller = func(context.Context) (pki.Identity, error) { return pki.Identity{Site: site, Gateway: gateway}, nil }
		reply, err := r.Key(t.Context(), &forwardpb.KeyRequest{Volume: "u1"})
		return reply.GetSealed(), err
	}
	tells := func(e ...federation.Event) {
		t.Helper()
		if err := r.View.Watch(t.Context(), told(e)); !errors.Is(err, errEnds) {
			t.Fatal(err)
		}
	}
	record := federation.Event{Kind: federation.KindVolume, Name: "u1", Revision: 1, Volume: &r.v}
	site := federation.Event{Kind: federation.KindSite, Name: "utr", Site: &federation.Site{Name: "utr", WrapKey: other.Public(),
		Gateways: []federation.Gateway{{Name: "b"}}}}
	mine := federation.Event{Kind: federation.KindKeyring, Name: "u1", Keyring: &r.ring}
	tells(record, site, mine)
	if _, err := asks("b", "utr"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a site without the key: %v", err)
	}
	ring, err := r.SiteKey.Extend(r.ring, "ams", map[string][]byte{"utr": other.Public()})
	if err != nil {
		t.Fatal(err)
	}
	tells(record, site, federation.Event{Kind: federation.KindKeyring, Name: "u1", Keyring: &ring})
	if _, err := asks("b", "utr"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("there is none yet: %v", err)
	}
	if _, err := r.under(t.Context(), r.v, r.ring); err != nil {
		t.Fatal(err)
	}
	sealed, err := asks("b", "utr")
	if err != nil {
		t.Fatal(err)
	}
	own, err := r.own("u1")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := other.OpenSecret(sealed, "u1", "utr"); err != nil || got != own {
		t.Errorf("it opens another one: %v", err)
	}
	for _, c := range [][2]string{{"b", "ams"}, {"c", "utr"}} {
		if _, err := asks(c[0], c[1]); status.Code(err) != codes.PermissionDenied {
			t.Errorf("gateway %s of site %s: %v", c[0], c[1], err)
		}
	}
	if _, err := r.Key(t.Context(), &forwardpb.KeyRequest{Volume: "u2"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown volume: %v", err)
	}
}
