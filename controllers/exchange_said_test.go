// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// TestWhatPeopleSay: what each side may say of an agreement besides, and what comes of it.
func TestWhatPeopleSay(t *testing.T) {
	f, host, guest := lenders(t)
	host.create(anOffer("disks"))
	settleAll(host, guest)
	next := 10
	agree := func(change func(*v1alpha1.StorageAgreementSpec)) string {
		t.Helper()
		next++
		id := strings.Replace(anID, "aa", strconv.Itoa(next), 1)
		guest.create(f.aRequest(id, "ams.disks", "10Ti"))
		settleAll(host, guest)
		edit(host, agreementOf(host, id), func(a *v1alpha1.StorageAgreement) { change(&a.Spec) })
		settleAll(host, guest)
		return id
	}
	accept := func(s *v1alpha1.StorageAgreementSpec) { s.Decision = v1alpha1.DecisionAccept }
	say := func(c *cluster, id string, change func(*v1alpha1.StorageAgreementSpec)) {
		edit(c, agreementOf(c, id), func(a *v1alpha1.StorageAgreement) { change(&a.Spec) })
		settleAll(host, guest)
	}
	refused := func(c *cluster, id, want string) {
		t.Helper()
		if r := object.Ready(agreementOf(c, id).Status.Conditions); r.Reason != v1alpha1.ReasonRefused || !strings.Contains(r.Message,
			want) {
			t.Errorf("%s: %+v, want a refusal with %q", c.name, r, want)
		}
	}

	id := agree(func(s *v1alpha1.StorageAgreementSpec) {
		s.Decision, s.Why = v1alpha1.DecisionDecline, "the disks are full"
	})
	wantPhase(id, paper.Declined, "", host, guest)
	if why := object.Ready(agreementOf(guest, id).Status.Conditions).Message; why != "the host declined (the disks are full)" {
		t.Errorf("the guest reads %q", why)
	}

	id = agree(func(s *v1alpha1.StorageAgreementSpec) { accept(s); s.Endpoint = "https://elsewhere:7005" })
	if is := agreementOf(guest, id).Status.Endpoint; is != "https://elsewhere:7005" {
		t.Errorf("the room is at %q", is)
	}
	say(host, id, func(s *v1alpha1.StorageAgreementSpec) { s.Endpoint = "https://moved:7005" })
	if is := agreementOf(guest, id).Status.Endpoint; is != "https://moved:7005" {
		t.Errorf("the room has moved, and is at %q", is)
	}
	say(guest, id, func(s *v1alpha1.StorageAgreementSpec) {
		s.Rooms = []v1alpha1.AgreementRoom{{Gateway: "gro-1", Amount: resource.MustParse("3Ti")}}
	})
	if r := agreementOf(host, id).Status.Rooms; len(r) != 1 || r[0].Amount.String() != "3Ti" {
		t.Errorf("the host sees rooms %v", r)
	}
	say(guest, id, func(s *v1alpha1.StorageAgreementSpec) { s.Rooms[0].Amount = resource.MustParse("11Ti") })
	refused(guest, id, "spec.rooms: not possible: agreement "+id+" is about 10Ti: a gateway cannot fill 11Ti of it")
	say(guest, id, func(s *v1alpha1.StorageAgreementSpec) { s.Rooms[0] = v1alpha1.AgreementRoom{Gateway: "ams-1"} })
	refused(guest, id, `spec.rooms: site gro has no gateway "ams-1": name one of this site's`)
	say(host, id, func(s *v1alpha1.StorageAgreementSpec) { s.Unpaid = &v1alpha1.Statement{Why: "invoice 7"} })
	wantPhase(id, paper.Breached, v1alpha1.AgreementGuest, host, guest)
	say(host, id, func(s *v1alpha1.StorageAgreementSpec) { s.Drained = &v1alpha1.Statement{} })
	refused(host, id, `spec.drained: that is for "RUG" to say`)
	f.advance(time.Minute)
	f.count(id, 0, 0, "gro-1", "RUG")
	settleAll(host, guest)
	wantPhase(id, paper.Drained, v1alpha1.AgreementHost, host, guest) // nothing is there: it says so by itself

	id = agree(accept)
	say(guest, id, func(s *v1alpha1.StorageAgreementSpec) { s.Unpaid = &v1alpha1.Statement{} })
	refused(guest, id, `spec.unpaid: that is for "SURF" to say`)
	say(guest, id, func(s *v1alpha1.StorageAgreementSpec) { s.Notice = &v1alpha1.Statement{Why: "we move"} })
	wantPhase(id, paper.Ending, v1alpha1.AgreementGuest, host, guest) // what is refused keeps nothing else from being said
	refused(guest, id, `spec.unpaid: that is for "SURF" to say`)
	id = agree(accept)
	say(guest, id, func(s *v1alpha1.StorageAgreementSpec) { s.HostGone = &v1alpha1.Statement{Why: "no answer since May"} })
	wantPhase(id, paper.Breached, v1alpha1.AgreementHost, host, guest)
}

// TestVolumesInLentStores: a copy for which there is no site is in a lent store. When that
// agreement ends it is in another one, and the first is drained by itself, when this site's gateway
// has counted that nothing is there.
func TestVolumesInLentStores(t *testing.T) {
	f, host, guest := lenders(t)
	third := f.cluster("utr")
	automatic := func(s *v1alpha1.StorageOfferSpec) { s.Automatic = new(resource.MustParse("50Ti")) }
	g := gv("lab", "runs", func(s *v1alpha1.GeoVolumeSpec) { s.Size = new(resource.MustParse("1Ti")) })
	guest.create(g)
	settleAll(host, guest, third)
	uuid := v1alpha1.VolumeUUID("uid-gro", string(g.UID))
	c := contentOf(uuid)
	guest.get(c)
	if r := object.Ready(c.Status.Conditions); r.Reason != v1alpha1.ReasonUnplaceable || !strings.Contains(r.Message, "borrow room") {
		t.Fatalf("two copies at one site: %+v", r)
	}
	host.create(anOffer("disks", automatic))
	third.create(anOffer("tapes", automatic))
	settleAll(host, guest, third)
	guest.create(f.aRequest(anID, "ams.disks", "10Ti"))
	settleAll(host, guest, third)
	wantPhase(anID, paper.Active, "", host, guest)
	guest.reconcile("GeoVolumeContent", uuid) // as Stir has it
	settleAll(host, guest, third)
	if v := f.record(uuid); !slices.Equal(v.Sites, []string{"gro"}) || !slices.Equal(v.Stores, []string{anID}) {
		t.Fatalf("it is at %q and in stores %q", v.Sites, v.Stores)
	}
	if host.has(c) {
		t.Error("the host is shown the volume")
	}
	f.serve(uuid, 0)
	settleAll(host, guest, third)
	guest.get(c)
	if len(c.Status.Stores) != 1 || c.Status.Copies != "1/2" {
		t.Errorf("status is %+v", c.Status)
	}

	edit(host, agreementOf(host, anID),
		func(a *v1alpha1.StorageAgreement) { a.Spec.Notice = &v1alpha1.Statement{Why: "the disks are old"} })
	settleAll(host, guest, third)
	if v := f.record(uuid); !slices.Equal(v.Stores, []string{anID}) {
		t.Fatalf("there is no other store, and it is in %q", v.Stores)
	}
	other := strings.Replace(anID, "aa", "bb", 1)
	guest.create(f.aRequest(other, "utr.tapes", "10Ti"))
	settleAll(host, guest, third)
	guest.reconcile("GeoVolumeContent", uuid)
	settleAll(host, guest, third)
	if v := f.record(uuid); !slices.Equal(v.Stores, []string{other}) {
		t.Fatalf("it is in stores %q, want the other", v.Stores)
	}
	wantPhase(anID, paper.Ending, v1alpha1.AgreementGuest, host, guest)
	f.advance(time.Minute)
	f.count(anID, 0, 5<<20, "gro-1", "RUG")
	settleAll(host, guest, third)
	wantPhase(anID, paper.Ending, v1alpha1.AgreementGuest, host, guest)
	f.advance(time.Minute)
	f.count(anID, 0, 0, "gro-1", "RUG")
	settleAll(host, guest, third)
	wantPhase(anID, paper.Drained, v1alpha1.AgreementHost, host, guest)
}

// TestCopiesByAgreement: an organization has a copy at another's site, which lends nothing else, by
// an agreement about that, as far as its amount goes. When it ends the copy goes elsewhere, and
// both operators say the rest by themselves.
func TestCopiesByAgreement(t *testing.T) {
	f, host, guest := lenders(t)
	third := f.cluster("utr")
	copies := func(automatic string) func(*v1alpha1.StorageOfferSpec) {
		return func(s *v1alpha1.StorageOfferSpec) {
			s.Kind, s.Automatic = v1alpha1.RoomCopy, new(resource.MustParse(automatic))
		}
	}
	host.create(anOffer("copies", copies("2Ti")))
	third.create(anOffer("others", copies("4Ti")))
	settleAll(host, guest, third)
	guest.create(f.aRequest(anID, "ams.copies", "2Ti"))
	settleAll(host, guest, third)
	wantPhase(anID, paper.Active, "", host, guest)
	made := func(name, size string) (*v1alpha1.GeoVolume, string) {
		g := gv("lab", name, func(s *v1alpha1.GeoVolumeSpec) { s.Size = new(resource.MustParse(size)) })
		guest.create(g)
		settleAll(host, guest, third)
		return g, v1alpha1.VolumeUUID("uid-gro", string(g.UID))
	}
	_, first := made("runs", "1536Gi")
	if v := f.record(first); !slices.Equal(v.Sites, []string{"gro", "ams"}) || !slices.Equal(v.Agreed, []string{anID}) {
		t.Fatalf("it is at %q by %q", v.Sites, v.Agreed)
	}
	_, second := made("more", "1Ti")
	c := contentOf(second)
	guest.get(c)
	if r := object.Ready(c.Status.Conditions); r.Reason != v1alpha1.ReasonUnplaceable ||
		!strings.Contains(r.Message, `of the 2Ti agreed on with SURF, 1536Gi are promised, and 512Gi too little is left`) {
		t.Errorf("a volume beyond the agreement: %+v", r)
	}

	edit(host, agreementOf(host, anID),
		func(a *v1alpha1.StorageAgreement) { a.Spec.Notice = &v1alpha1.Statement{Why: "the disks are old"} })
	settleAll(host, guest, third)
	if v := f.record(first); !slices.Equal(v.Sites, []string{"gro", "ams"}) {
		t.Fatalf("there is no other site, and it is at %q", v.Sites)
	}
	other := strings.Replace(anID, "aa", "bb", 1)
	guest.create(f.aRequest(other, "utr.others", "4Ti")) // room for the volume that waits, too
	settleAll(host, guest, third)
	guest.reconcile("GeoVolumeContent", first) // as Stir has it
	settleAll(host, guest, third)
	v := f.record(first)
	if !slices.Contains(v.Sites, "utr") || slices.Contains(v.Sites, "ams") || !slices.Equal(v.Agreed, []string{other}) {
		t.Fatalf("it is at %q by %q", v.Sites, v.Agreed)
	}
	wantPhase(anID, paper.Drained, v1alpha1.AgreementHost, host, guest) // what is left there, its gateways delete
	f.advance(time.Minute)
	f.ok(f.reg.PutPapers(t.Context(), paper.At{Paper: paper.Paper{Usage: &paper.Usage{ID: anID, Guest: "RUG", Host: "SURF", By: "ams-1",
		Organization: "SURF", At: f.clock(), Erased: &paper.Deletion{Moment: paper.Moment{At: f.clock(), By: "gateway"}, Objects: 1,
			Bytes: 1536 << 30}}}}))
	settleAll(host, guest, third)
	wantPhase(anID, paper.Ended, "", host, guest)
	if said := agreementOf(guest, anID).Status.Said; !slices.ContainsFunc(said, func(s v1alpha1.AgreementStatement) bool {
		return s.What == "deleted, copies of 1 volumes, of 1536Gi"
	}) {
		t.Errorf("the story is %+v", said)
	}
}

// TestLodgedRoomIsCounted: the guest's operator counts what its volumes take of room that is no
// store's, by their records, and goes on from what it said. Its count and that of the host's
// gateway are the same, or a difference is shown.
func TestLodgedRoomIsCounted(t *testing.T) {
	f, host, guest := lenders(t)
	host.create(anOffer("copies", func(s *v1alpha1.StorageOfferSpec) {
		s.Kind, s.Automatic = v1alpha1.RoomCopy, new(resource.MustParse("2Ti"))
	}))
	settleAll(host, guest)
	guest.create(f.aRequest(anID, "ams.copies", "2Ti"))
	settleAll(host, guest)
	g := gv("lab", "runs", func(s *v1alpha1.GeoVolumeSpec) { s.Size = new(resource.MustParse("1Ti")) })
	guest.create(g)
	settleAll(host, guest)
	uuid := v1alpha1.VolumeUUID("uid-gro", string(g.UID))
	name := paper.UsageName(anID, paper.Guest, "gro")
	if _, err := f.reg.GetPaper(t.Context(), name); !errors.Is(err, federation.ErrNotFound) {
		t.Fatalf("a copy that is not there yet is counted: %v", err)
	}
	f.serve(uuid, 0)
	settleAll(host, guest)
	wants := func(name string, stored quantity.Bytes, hours float64) {
		t.Helper()
		settleAll(host, guest)
		p, err := f.reg.GetPaper(t.Context(), name)
		f.ok(err)
		if c := p.Usage.Of["ams"]; len(p.Usage.Of) != 1 || c.Stored != stored || math.Abs(c.ByteHours/(1<<40)-hours) > 0.001 {
			t.Errorf("%s: counted %+v, want %v and %v TiB-hours", name, p.Usage.Of, stored, hours)
		}
	}
	wants(name, 1<<40, 0)
	before := len(guest.writes)
	f.advance(30 * time.Minute)
	settleAll(host, guest)
	if n := len(guest.writes); n != before {
		t.Errorf("nothing changed, and it wrote %q", guest.writes[before:])
	}
	f.advance(30 * time.Minute)
	guest.reconcile("StorageAgreement", anID)
	wants(name, 1<<40, 1)

	// The host's gateway says the same, and then more.
	said := func(stored quantity.Bytes, hours float64) *v1alpha1.StorageUsage {
		u := paper.Usage{ID: anID, Guest: "RUG", Host: "SURF", By: "ams-1", Organization: "SURF", At: f.clock(),
			Of: map[string]paper.Counters{"ams": {Stored: stored, ByteHours: hours * (1 << 40)}}}
		p := paper.At{Paper: paper.Paper{Usage: &u}}
		if is, err := f.reg.GetPaper(t.Context(), p.Name()); err == nil {
			p.Revision = is.Revision
		}
		f.ok(f.reg.PutPapers(t.Context(), p))
		settleAll(host, guest)
		shown := &v1alpha1.StorageUsage{ObjectMeta: metav1.ObjectMeta{Name: anID}}
		host.get(shown)
		return shown
	}
	if u := said(1<<40, 1); u.Status.Differs != "" || u.Status.ByHost.Stored != 1<<40 || u.Status.ByGuest.Stored != 1<<40 {
		t.Errorf("both counted the same, and usage is %+v", u.Status)
	}
	f.advance(2 * time.Hour)
	if u := said(1<<40, 4); !strings.Contains(u.Status.Differs, "byte-hours: the guest counted") || u.Status.More != "Host" {
		t.Errorf("the host counted an hour more, and usage is %+v", u.Status)
	}
}

// TestACopyStaysByItsAgreement: a copy for which there is no other place is by its agreement also
// when that is over and the host deletes. So everybody knows by what right it is there.
func TestACopyStaysByItsAgreement(t *testing.T) {
	f, host, guest := lenders(t)
	host.create(anOffer("copies", func(s *v1alpha1.StorageOfferSpec) {
		s.Kind, s.Automatic = v1alpha1.RoomCopy, new(resource.MustParse("2Ti"))
	}))
	settleAll(host, guest)
	guest.create(f.aRequest(anID, "ams.copies", "2Ti"))
	settleAll(host, guest)
	g := gv("lab", "runs", func(s *v1alpha1.GeoVolumeSpec) { s.Size = new(resource.MustParse("1Ti")) })
	guest.create(g)
	settleAll(host, guest)
	uuid := v1alpha1.VolumeUUID("uid-gro", string(g.UID))
	stays := func(phase paper.Phase, move v1alpha1.AgreementParty) {
		t.Helper()
		settleAll(host, guest)
		guest.reconcile("GeoVolumeContent", uuid)
		settleAll(host, guest)
		wantPhase(anID, phase, move, host, guest)
		if v := f.record(uuid); !slices.Equal(v.Sites, []string{"gro", "ams"}) || !slices.Equal(v.Agreed, []string{anID}) {
			t.Errorf("it is at %q by %q", v.Sites, v.Agreed)
		}
	}
	edit(host, agreementOf(host, anID), func(a *v1alpha1.StorageAgreement) { a.Spec.Notice = &v1alpha1.Statement{Why: "old"} })
	stays(paper.Ending, v1alpha1.AgreementGuest)
	f.advance(39 * 24 * time.Hour)
	for _, c := range []*cluster{host, guest} {
		c.reconcile("StorageAgreement", anID)
	}
	stays(paper.Breached, v1alpha1.AgreementHost)
	edit(host, agreementOf(host, anID), func(a *v1alpha1.StorageAgreement) { a.Spec.Delete = &v1alpha1.Statement{} })
	stays(paper.Breached, v1alpha1.AgreementGuest)
}
