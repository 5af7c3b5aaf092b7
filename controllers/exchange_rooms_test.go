// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// counts is what a gateway of RUG, or the store of SURF, counted under an agreement.
func (f *fed) counts(id, by string, stored map[string]quantity.Bytes) {
	f.t.Helper()
	u := paper.Usage{ID: id, Guest: "RUG", Host: "SURF", By: by, Organization: "RUG", At: f.clock(), Of: map[string]paper.Counters{}}
	if by == "ams" {
		u.Organization = "SURF"
	}
	for g, n := range stored {
		u.Of[g] = paper.Counters{Puts: 1, In: 1 << 30, Stored: n}
	}
	p := paper.At{Paper: paper.Paper{Usage: &u}}
	if is, err := f.reg.GetPaper(f.t.Context(), p.Name()); err == nil {
		p.Revision = is.Revision
	}
	f.ok(f.reg.PutPapers(f.t.Context(), p))
}

// TestRoomIsGivenBack: a gateway that fills nothing gives back its room when another needs it, and
// one that is gone for ever keeps only what is there. It does not keep the agreement from being
// drained either, when the store counted that nothing is there.
func TestRoomIsGivenBack(t *testing.T) {
	f, host, guest := lenders(t)
	f.ok(f.reg.Register(t.Context(), federation.Site{Name: "gro", Organization: "RUG",
		Gateways: []federation.Gateway{{Name: "gro-2", Addr: "gro:7441", Incarnation: "1"}}}))
	rooms := func(want ...string) {
		t.Helper()
		settleAll(host, guest)
		var all []string
		for _, r := range agreementOf(guest, anID).Status.Rooms {
			all = append(all, r.Gateway+" "+r.Amount.String())
		}
		if !slices.Equal(all, want) {
			t.Fatalf("rooms are %q, want %q", all, want)
		}
	}
	host.create(anOffer("disks", func(s *v1alpha1.StorageOfferSpec) { s.Automatic = new(resource.MustParse("5Ti")) }))
	settleAll(host, guest)
	guest.create(f.aRequest(anID, "ams.disks", "1Gi"))
	rooms("gro-1 256Mi", "gro-2 256Mi")

	g := gv("lab", "runs", func(s *v1alpha1.GeoVolumeSpec) { s.Size = new(resource.MustParse("512Mi")) })
	guest.create(g)
	settleAll(host, guest)
	uuid := v1alpha1.VolumeUUID("uid-gro", string(g.UID))
	f.serve(uuid, 0) // gro-1 is home
	f.counts(anID, "gro-1", map[string]quantity.Bytes{"gro-1": 200 << 20})
	rooms("gro-1 456Mi", "gro-2 256Mi")
	f.counts(anID, "gro-1", map[string]quantity.Bytes{"gro-1": 400 << 20})
	rooms("gro-1 656Mi", "gro-2 0")

	ctl, rev, err := f.reg.GetControl(t.Context(), uuid)
	f.ok(err)
	next := federation.Member{Gateway: "gro-2", Site: "gro", Incarnation: "1"}
	ctl.Epoch, ctl.Home, ctl.Members = 2, next, append(ctl.Members, next)
	_, err = f.reg.SwapControl(t.Context(), uuid, rev, ctl)
	f.ok(err)
	rooms("gro-1 400Mi", "gro-2 256Mi")

	f.counts(anID, "ams", map[string]quantity.Bytes{"gro-1": 300 << 20, "gro-2": 0})
	f.ok(f.reg.RemoveGateway(t.Context(), "gro", "gro-1"))
	guest.reconcile("StorageAgreement", anID)
	rooms("gro-1 300Mi", "gro-2 256Mi")

	edit(host, agreementOf(host, anID), func(a *v1alpha1.StorageAgreement) { a.Spec.Notice = &v1alpha1.Statement{Why: "they are old"} })
	v, at, err := f.reg.GetVolume(t.Context(), uuid)
	f.ok(err)
	v.Stores, v.Generation = nil, v.Generation+1
	_, err = f.reg.UpdateVolume(t.Context(), at, v)
	f.ok(err)
	for i, step := range []struct {
		by     string
		stored map[string]quantity.Bytes
		want   paper.Phase
	}{
		{"gro-2", map[string]quantity.Bytes{"gro-2": 0}, paper.Ending},
		{"ams", map[string]quantity.Bytes{"gro-1": 1, "gro-2": 0}, paper.Ending},
		{"ams", map[string]quantity.Bytes{"gro-1": 0, "gro-2": 0}, paper.Drained},
	} {
		settleAll(host, guest)
		f.advance(time.Minute)
		f.counts(anID, step.by, step.stored)
		settleAll(host, guest)
		if is := paper.Phase(agreementOf(guest, anID).Status.Phase); is != step.want {
			t.Errorf("%s: the agreement is %s, want %s", fmt.Sprint(i, step.by), is, step.want)
		}
	}
}
