// SPDX-License-Identifier: Apache-2.0

package federationtest

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/weir-storage/weir/federation"
)

func volumeCreate(f *fixture) {
	v := Volume("u1", "home")
	v.CreatedAt = time.Unix(1e9, 0).UTC()
	v.Spec.Durability.MaxLag = federation.MaxLag{Time: federation.Duration(time.Minute), Bytes: 500e6}
	rev, err := f.r.CreateVolume(f.ctx, v, federation.Keyring{})
	f.ok(err)
	got, grev, err := f.r.GetVolume(f.ctx, "u1")
	f.ok(err)
	if !reflect.DeepEqual(got, v) || grev != rev {
		f.Fatalf("read %+v at %d, want %+v at %d", got, grev, v, rev)
	}
	got, _, err = f.r.FindVolume(f.ctx, "home")
	f.ok(err)
	if got.UUID != "u1" {
		f.Fatalf("found %+v", got)
	}
	_, err = f.r.CreateVolume(f.ctx, Volume("u2", "home"), federation.Keyring{})
	f.is(err, federation.ErrNameTaken)
	_, _, err = f.r.GetVolume(f.ctx, "u2")
	f.is(err, federation.ErrNotFound)
	_, err = f.r.CreateVolume(f.ctx, Volume("u1", "home"), federation.Keyring{})
	f.is(err, federation.ErrConflict)
	_, err = f.r.CreateVolume(f.ctx, Volume("u1", "other"), federation.Keyring{})
	f.is(err, federation.ErrConflict)
	_, _, err = f.r.FindVolume(f.ctx, "other")
	f.is(err, federation.ErrNotFound)
	for _, bad := range []federation.Volume{Volume("", "a"), Volume("a/b", "a"), Volume("u3", "Home"), Volume("u3", "a..b"),
		Volume("u3", "a.b.c"), Volume("u3", "")} {
		_, err := f.r.CreateVolume(f.ctx, bad, federation.Keyring{})
		f.is(err, federation.ErrInvalid)
	}
	_, err = f.r.CreateVolume(f.ctx, Volume("u0", "aa"), federation.Keyring{})
	f.ok(err)
	all, err := f.r.ListVolumes(f.ctx)
	f.ok(err)
	if len(all) != 2 || all[0].Volume.UUID != "u0" || all[1].Volume.UUID != "u1" || all[1].Revision != rev {
		f.Fatalf("listed %+v", all)
	}
}

func volumeUpdate(f *fixture) {
	v := Volume("u1", "home")
	rev, err := f.r.CreateVolume(f.ctx, v, federation.Keyring{})
	f.ok(err)
	bigger := v
	bigger.Spec.Size *= 2
	_, err = f.r.UpdateVolume(f.ctx, rev, bigger)
	f.is(err, federation.ErrInvalid) // same generation
	bigger.Generation = 2
	_, err = f.r.UpdateVolume(f.ctx, rev+9, bigger)
	f.is(err, federation.ErrConflict)
	rev2, err := f.r.UpdateVolume(f.ctx, rev, bigger)
	f.ok(err)
	_, err = f.r.UpdateVolume(f.ctx, rev, bigger)
	f.is(err, federation.ErrConflict)
	_, err = f.r.UpdateVolume(f.ctx, rev2, v)
	f.is(err, federation.ErrInvalid) // generation goes back
	renamed := bigger
	renamed.Name = "attic"
	_, err = f.r.UpdateVolume(f.ctx, rev2, renamed)
	f.is(err, federation.ErrInvalid)
	_, err = f.r.UpdateVolume(f.ctx, rev2, Volume("u9", "nine"))
	f.is(err, federation.ErrNotFound)
}

func volumePurge(f *fixture) {
	v := Volume("u1", "home")
	rev, err := f.r.CreateVolume(f.ctx, v, federation.Keyring{})
	f.ok(err)
	p := federation.Purge{Volume: "u1", Name: "home", At: time.Unix(2e9, 0).UTC(), Size: v.Spec.Size, Sites: v.Sites,
		Pending: []string{"ams-1", "fra-1"}}
	f.is(f.r.PurgeVolume(f.ctx, rev, p), federation.ErrInvalid)
	v.Deleted, v.DeletedAt = true, time.Unix(1e9, 0).UTC()
	rev2, err := f.r.UpdateVolume(f.ctx, rev, v)
	f.ok(err)
	_, err = f.r.CreateVolume(f.ctx, Volume("u2", "home"), federation.Keyring{})
	f.is(err, federation.ErrNameTaken) // still in the trash
	_, err = f.r.SwapControl(f.ctx, "u1", 0, Control("u1", 1, 1))
	f.ok(err)
	_, err = f.r.PutKeyring(f.ctx, 0, federation.Keyring{Volume: "u1", Wrapped: map[string][]byte{"ams": {1}}})
	f.ok(err)
	for _, u := range []string{"u1", "u11"} {
		f.ok(f.r.PutObserved(f.ctx, federation.Observed{Volume: u, Gateway: "ams-1"}))
		f.ok(f.r.PutAdmission(f.ctx, federation.Admission{Volume: u, Site: "ams", Client: "10.0.0.1", Access: federation.ReadOnly}))
		f.ok(f.r.PutAttachment(f.ctx, federation.Attachment{Volume: u, Site: "ams", Node: "n1", Access: federation.ReadOnly}))
		f.ok(f.r.PutClaim(f.ctx, federation.Claim{Volume: u, Site: "ams", Namespace: "n", Name: "c", Kind: federation.ClaimGeoVolume,
			Access: federation.ReadOnly}))
	}
	f.is(f.r.PurgeVolume(f.ctx, rev, p), federation.ErrConflict)
	f.ok(f.r.PurgeVolume(f.ctx, rev2, p))
	f.is(f.r.PurgeVolume(f.ctx, rev2, p), federation.ErrNotFound)
	_, err = f.r.CreateVolume(f.ctx, Volume("u2", "home"), federation.Keyring{})
	f.ok(err)
	_, _, err = f.r.GetControl(f.ctx, "u1")
	f.is(err, federation.ErrNotFound)
	_, _, err = f.r.GetKeyring(f.ctx, "u1")
	f.is(err, federation.ErrNotFound)
	_, err = f.r.SwapControl(f.ctx, "u1", 0, Control("u1", 1, 1))
	f.is(err, federation.ErrConflict) // a gateway that has not heard of it
	observed, err := f.r.ListObserved(f.ctx, "u1")
	f.ok(err)
	admitted, err := f.r.ListAdmissions(f.ctx, "")
	f.ok(err)
	attached, err := f.r.ListAttachments(f.ctx, "")
	f.ok(err)
	claimed, err := f.r.ListClaims(f.ctx, "")
	f.ok(err)
	others, err := f.r.ListObserved(f.ctx, "u11")
	f.ok(err)
	if len(observed) != 0 || len(others) != 1 || len(admitted) != 1 || len(attached) != 1 || len(claimed) != 1 {
		f.Errorf("left are %v, %v, %v, %v", observed, admitted, attached, claimed)
	}
	f.ok(f.r.LeavePurge(f.ctx, "u1", "fra-1"))
	f.ok(f.r.LeavePurge(f.ctx, "u1", "fra-1"))
	f.ok(f.r.LeavePurge(f.ctx, "u9", "fra-1"))
	all, err := f.r.ListPurges(f.ctx)
	f.ok(err)
	p.Pending, p.Generation, p.Change = []string{"ams-1"}, 1, 1
	if !reflect.DeepEqual(all, []federation.Purge{p}) {
		f.Errorf("purges are %+v, want %+v", all, p)
	}
	f.ok(f.r.DeletePurge(f.ctx, "u1"))
	f.ok(f.r.DeletePurge(f.ctx, "u1"))
	if all, err = f.r.ListPurges(f.ctx); err != nil || len(all) != 0 {
		f.Errorf("purges are %+v, %v", all, err)
	}
}

// nameRace: of many volumes of one name, exactly one is made.
func nameRace(f *fixture) {
	const racers = 8
	errs := make([]error, racers)
	var wg sync.WaitGroup
	for i := range racers {
		r := f.open()
		wg.Go(func() {
			_, errs[i] = r.CreateVolume(f.ctx, Volume("u"+string(rune('0'+i)), "home"), federation.Keyring{})
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			f.is(err, federation.ErrNameTaken)
		}
	}
	all, err := f.r.ListVolumes(f.ctx)
	f.ok(err)
	if won != 1 || len(all) != 1 {
		f.Fatalf("%d won, %d exist, want 1", won, len(all))
	}
}

func admissions(f *fixture) {
	a := federation.Admission{Volume: "v1", Site: "site0", Client: "10.0.0.1", Access: federation.ReadWrite}
	b := federation.Admission{Volume: "v1", Site: "site00", Client: "fd00::1", Access: federation.ReadOnly}
	f.ok(f.r.PutAdmission(f.ctx, b))
	f.ok(f.r.PutAdmission(f.ctx, a))
	for site, want := range map[string][]federation.Admission{"site0": {a}, "site00": {b}, "": {a, b}, "none": {}} {
		got, err := f.r.ListAdmissions(f.ctx, site)
		f.ok(err)
		if !reflect.DeepEqual(got, want) {
			f.Fatalf("site %q: %+v, want %+v", site, got, want)
		}
	}
	a.Access = federation.ReadOnly
	f.ok(f.r.PutAdmission(f.ctx, a))
	got, err := f.r.ListAdmissions(f.ctx, "site0")
	f.ok(err)
	if len(got) != 1 || got[0] != a {
		f.Fatalf("after a change: %+v, want %+v", got, a)
	}
	f.ok(f.r.DeleteAdmission(f.ctx, "v1", "site0", "10.0.0.1"))
	f.ok(f.r.DeleteAdmission(f.ctx, "v1", "site0", "10.0.0.1"))
	got, err = f.r.ListAdmissions(f.ctx, "site0")
	f.ok(err)
	if len(got) != 0 {
		f.Fatalf("after delete: %+v", got)
	}
	for _, client := range []string{"", "host", "10.0.0.1/8", "010.0.0.1", "FD00::1", "::ffff:10.0.0.1", "fe80::1%eth0"} {
		bad := a
		bad.Client = client
		f.is(f.r.PutAdmission(f.ctx, bad), federation.ErrInvalid)
	}
	a.Access = "rwx"
	f.is(f.r.PutAdmission(f.ctx, a), federation.ErrInvalid)
}

func keyrings(f *fixture) {
	_, _, err := f.r.GetKeyring(f.ctx, "v1")
	f.is(err, federation.ErrNotFound)
	k := federation.Keyring{Volume: "v1", Generation: 1, Wrapped: map[string][]byte{"site0": {0, 255}, "site1": {7}}}
	rev, err := f.r.PutKeyring(f.ctx, 0, k)
	f.ok(err)
	_, err = f.r.PutKeyring(f.ctx, 0, k)
	f.is(err, federation.ErrConflict)
	_, err = f.r.PutKeyring(f.ctx, rev, k)
	f.is(err, federation.ErrInvalid) // same generation
	got, grev, err := f.r.GetKeyring(f.ctx, "v1")
	f.ok(err)
	if !reflect.DeepEqual(got, k) || grev != rev {
		f.Fatalf("read %+v, want %+v", got, k)
	}
	k.Generation = 2
	rev2, err := f.r.PutKeyring(f.ctx, rev, k)
	f.ok(err)
	_, err = f.r.PutKeyring(f.ctx, rev, federation.Keyring{Volume: "v1", Generation: 3, Wrapped: k.Wrapped})
	f.is(err, federation.ErrConflict)
	// A volume and its keyring are made together. One that is there without a volume is replaced.
	k.Generation, k.Wrapped = 1, map[string][]byte{"site2": {9}}
	_, err = f.r.CreateVolume(f.ctx, Volume("v2", "other"), k)
	f.is(err, federation.ErrInvalid) // another volume's
	made, err := f.r.CreateVolume(f.ctx, Volume("v1", "home"), k)
	f.ok(err)
	got, grev, err = f.r.GetKeyring(f.ctx, "v1")
	f.ok(err)
	if !reflect.DeepEqual(got, k) || grev != made || grev <= rev2 {
		f.Fatalf("after the volume was made at %d: %+v of %d", made, got, grev)
	}
	_, err = f.r.CreateVolume(f.ctx, Volume("v1", "home"), federation.Keyring{Volume: "v1", Wrapped: map[string][]byte{"site3": {1}}})
	f.is(err, federation.ErrConflict)
	_, err = f.r.CreateVolume(f.ctx, Volume("v3", "home"), federation.Keyring{Volume: "v3", Wrapped: map[string][]byte{"site3": {1}}})
	f.is(err, federation.ErrNameTaken)
	_, _, err = f.r.GetKeyring(f.ctx, "v3")
	f.is(err, federation.ErrNotFound)
	_, err = f.r.PutKeyring(f.ctx, 0, federation.Keyring{Volume: "v2"})
	f.is(err, federation.ErrInvalid)
}

func observed(f *fixture) {
	o := federation.Observed{Volume: "v1", Gateway: "gw1", Epoch: 3, Home: "gw1", Commit: federation.Position{Seq: 4, Off: 5},
		Replicas: []federation.ObservedReplica{{Gateway: "gw2", Site: "site2", State: federation.ReplicaFollower, LagBytes: 7,
			LagSeconds: 0.5}}}
	p := federation.Observed{Volume: "v1", Gateway: "gw0", Epoch: 3, Home: "gw1"}
	f.ok(f.r.PutObserved(f.ctx, o))
	f.ok(f.r.PutObserved(f.ctx, p))
	f.ok(f.r.PutObserved(f.ctx, federation.Observed{Volume: "v11", Gateway: "gw0"}))
	o.Epoch = 4
	f.ok(f.r.PutObserved(f.ctx, o))
	got, err := f.r.ListObserved(f.ctx, "v1")
	f.ok(err)
	if !reflect.DeepEqual(got, []federation.Observed{p, o}) {
		f.Fatalf("read %+v", got)
	}
}

// canceled: a caller that gave up gets its own error, or for a change the truth, that the outcome
// is unknown.
func canceled(f *fixture) {
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	_, _, err := f.r.GetControl(ctx, "v1")
	f.is(err, context.Canceled)
	if err := f.r.PutAdmission(ctx, federation.Admission{Volume: "v1", Site: "s", Client: "10.0.0.1",
		Access: federation.ReadOnly}); !errors.Is(err, context.Canceled) && !errors.Is(err, federation.ErrUnknown) {
		f.Fatalf("error is %v, want canceled or unknown", err)
	}
}
