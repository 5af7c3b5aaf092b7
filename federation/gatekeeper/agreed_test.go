// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"errors"
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/pki"
)

// A volume has copies at a site that lends nothing else, by an agreement that both sides signed, as
// long as it can be used. Neither another's agreement counts, nor one about something else.
func TestCopiesByAgreement(t *testing.T) {
	w := newConcealing(t)
	ctx := t.Context()
	const store = "6f1c2b6e-0000-4000-8000-000000000003"
	copies := disks()
	copies.Name, copies.Kind = "copies", paper.KindCopy
	w.ok(w.oa.puts(paper.Paper{Offer: disks()}, paper.Paper{Offer: copies}))
	r := w.pb.request(lent, 4<<30)
	r.Offer, r.Kind = "copies", paper.KindCopy
	w.ok(w.pb.puts(paper.Paper{Request: r}, paper.Paper{Request: w.pb.request(store, 1<<30)}))
	place := func(id string, agreed ...string) error {
		v := volumeOf(id, "b."+id, "B", "b", "a")
		v.Agreed = agreed
		_, err := w.pb.CreateVolume(ctx, v, ringOf(id, "b", "a"))
		return err
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, federation.ErrAccess) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("without an agreement", place("v8"))
	refused("before it is agreed on", place("v8", lent))
	accept := func(o *one, id, offer string) {
		t.Helper()
		of, q := w.paper(o, "offer/A/"+offer), w.paper(o, paper.RequestName(id)).Request
		of.Offer.Given = nil
		given := *of.Offer
		given.Given = map[string]federation.Bytes{id: q.Amount}
		of.Offer = &given
		w.ok(o.PutPapers(ctx, of, paper.At{Paper: paper.Paper{Answer: &paper.Answer{ID: id, Guest: "B", Host: "A",
			Accepted: &paper.Acceptance{Moment: o.says0(""), Terms: q.Digest()}, Ready: &paper.Place{}}}}))
	}
	accept(w.oa, lent, "copies")
	accept(w.oa, store, "disks")
	refused("by one about a store", place("v8", store))
	w.ok(place("v8", lent))
	stolen := volumeOf("v7", "c.seven", "C", "c", "a")
	stolen.Agreed = []string{lent}
	_, err := w.as("C", "c", pki.PartPerson, "carol").CreateVolume(ctx, stolen, ringOf("v7", "c", "a"))
	refused("by another's", err)

	// Nobody takes room of another's agreement, and nobody keeps a copy by none, or a larger one.
	full := volumeOf("v6", "c.six", "C", "c")
	full.Agreed, full.Spec.Size = []string{lent}, 1<<60
	_, err = w.as("C", "c", pki.PartPerson, "carol").CreateVolume(ctx, full, ringOf("v6", "c"))
	refused("another's, at one's own site", err)
	full.Agreed, full.Stores = nil, []string{store}
	_, err = w.as("C", "c", pki.PartPerson, "carol").CreateVolume(ctx, full, ringOf("v6", "c"))
	refused("another's store", err)
	change := func(f func(*federation.Volume)) error {
		v, rev, err := w.pb.GetVolume(ctx, "v8")
		w.ok(err)
		v.Generation++
		f(&v)
		_, err = w.pb.UpdateVolume(ctx, rev, v)
		return err
	}
	refused("by none any more", change(func(v *federation.Volume) { v.Agreed = nil }))
	refused("by one that is none", change(func(v *federation.Volume) { v.Agreed = []string{"nothing"} }))
	refused("by a store's in its place", change(func(v *federation.Volume) { v.Agreed = []string{store} }))
	unanswered := w.pb.request("6f1c2b6e-0000-4000-8000-000000000004", 1<<30)
	unanswered.Offer, unanswered.Kind = "copies", paper.KindCopy
	w.ok(w.pb.puts(paper.Paper{Request: unanswered}))
	refused("by one that nobody accepted too", change(func(v *federation.Volume) { v.Agreed = []string{lent, unanswered.ID} }))
	refused("larger than the agreement", change(func(v *federation.Volume) { v.Spec.Size = 4<<30 + 1 }))
	refused("given away", change(func(v *federation.Volume) { v.Owner, v.OwnerSite = "C", "" }))
	w.ok(change(func(v *federation.Volume) { v.Spec.Size = 4 << 30 }))

	// What is taken is counted by the guest's operators and the host's gateways, for the site.
	counts := func(by, organization, of string, erased *paper.Deletion) paper.Paper {
		return paper.Paper{Usage: &paper.Usage{ID: lent, Guest: "B", Host: "A", By: by, Organization: organization, At: w.clock(),
			Of: map[string]paper.Counters{of: {Stored: 1 << 30}}, Erased: erased}}
	}
	w.ok(w.ob.puts(counts("b", "B", "a", nil)))
	w.ok(w.ga.puts(counts("ga", "A", "a", nil)))
	refused("counted by the guest's operator for the host", w.ob.puts(counts("a", "A", "a", nil)))
	refused("counted by the host's operator", w.oa.puts(counts("a", "A", "a", nil)))
	refused("counted by the host's operator for its gateway", w.oa.puts(counts("ga", "A", "a", nil)))
	refused("counted by the guest's gateway for its operator", w.gb.puts(counts("b", "B", "a", nil)))
	refused("counted by the guest by its own gateway", w.gb.puts(counts("gb", "B", "gb", nil)))
	refused("counted by the host by its own gateway", w.ga.puts(counts("ga", "A", "ga", nil)))
	refused("erased what was to stay", w.ga.puts(counts("ga", "A", "a", &paper.Deletion{Moment: w.ga.says0("")})))

	// What is there stays, and nothing new comes.
	v, rev, err := w.pb.GetVolume(ctx, "v8")
	w.ok(err)
	request := w.paper(w.pb, paper.RequestName(lent))
	drained := w.pb.says0("")
	request.Request.Drained = &drained
	w.ok(w.pb.PutPapers(ctx, request))
	refused("of one that is drained", place("v9", lent))
	v.Generation, v.Sites = v.Generation+1, []string{"b", "a"}
	if _, err := w.pb.UpdateVolume(ctx, rev, v); err != nil {
		t.Errorf("a copy that is there: %v", err)
	}
	refused("a copy that grows", change(func(v *federation.Volume) { v.Spec.Size = 5 << 30 }))
}
