// SPDX-License-Identifier: Apache-2.0

package federationtest

import (
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

func claims(f *fixture) {
	c := federation.Claim{Volume: "v1", Site: "ams", Namespace: "lab", Name: "data.0", Kind: federation.ClaimPVC, UID: "u",
		Access: federation.ReadWrite, At: time.Unix(1e9, 0).UTC()}
	d := c
	d.Site, d.Kind = "fra", federation.ClaimGeoVolume
	e := c
	e.Volume = "v10"
	for _, x := range []federation.Claim{e, d, c, c} {
		f.ok(f.r.PutClaim(f.ctx, x))
	}
	for volume, want := range map[string][]federation.Claim{"v1": {c, d}, "v10": {e}, "": {c, d, e}, "v": {}} {
		got, err := f.r.ListClaims(f.ctx, volume)
		f.ok(err)
		if !reflect.DeepEqual(got, want) {
			f.Fatalf("volume %q: %+v, want %+v", volume, got, want)
		}
	}
	f.ok(f.r.DeleteClaim(f.ctx, "v1", "ams", "lab", "data.0"))
	f.ok(f.r.DeleteClaim(f.ctx, "v1", "ams", "lab", "data.0"))
	got, err := f.r.ListClaims(f.ctx, "v1")
	f.ok(err)
	if len(got) != 1 || got[0] != d {
		f.Fatalf("after delete: %+v", got)
	}
	for _, spoil := range []func(*federation.Claim){
		func(c *federation.Claim) { c.Volume = "" }, func(c *federation.Claim) { c.Site = "A" },
		func(c *federation.Claim) { c.Namespace = "a/b" },
		func(c *federation.Claim) { c.Name = strings.Repeat("a", 254) }, func(c *federation.Claim) { c.Kind = "Pod" },
		func(c *federation.Claim) { c.Access = "" },
	} {
		bad := c
		spoil(&bad)
		f.is(f.r.PutClaim(f.ctx, bad), federation.ErrInvalid)
	}
	f.is(f.r.DeleteClaim(f.ctx, "v1", "", "lab", "x"), federation.ErrInvalid) // it would be all of a prefix
}

func attachments(f *fixture) {
	a := federation.Attachment{Volume: "v1", Site: "ams", Node: "n1.example", Access: federation.ReadWrite, At: time.Unix(1e9, 0).UTC()}
	b := a
	b.Site, b.Access = "ams-2", federation.ReadOnly
	f.ok(f.r.PutAttachment(f.ctx, b))
	f.ok(f.r.PutAttachment(f.ctx, a))
	for site, want := range map[string][]federation.Attachment{"ams": {a}, "ams-2": {b}, "none": {}} {
		got, err := f.r.ListAttachments(f.ctx, site)
		f.ok(err)
		if !reflect.DeepEqual(got, want) {
			f.Fatalf("site %q: %+v, want %+v", site, got, want)
		}
	}
	all, err := f.r.ListAttachments(f.ctx, "")
	f.ok(err)
	if len(all) != 2 {
		f.Fatalf("all: %+v", all)
	}
	a.Access = federation.ReadOnly
	f.ok(f.r.PutAttachment(f.ctx, a))
	got, err := f.r.GetAttachment(f.ctx, "ams", "v1", "n1.example")
	f.ok(err)
	if got != a {
		f.Fatalf("got %+v, want %+v", got, a)
	}
	f.ok(f.r.DeleteAttachment(f.ctx, "ams", "v1", "n1.example"))
	f.ok(f.r.DeleteAttachment(f.ctx, "ams", "v1", "n1.example"))
	_, err = f.r.GetAttachment(f.ctx, "ams", "v1", "n1.example")
	f.is(err, federation.ErrNotFound)
	for _, node := range []string{"", "N1", "a/b", strings.Repeat("n", 254)} {
		bad := a
		bad.Node = node
		f.is(f.r.PutAttachment(f.ctx, bad), federation.ErrInvalid)
	}
}

func losses(f *fixture) {
	l := federation.Lost{Site: "ams", By: "ops", At: time.Unix(1e9, 0).UTC()}
	f.ok(f.r.PutLost(f.ctx, l))
	f.ok(f.r.PutLost(f.ctx, federation.Lost{Site: "fra", At: l.At}))
	got, err := f.r.ListLost(f.ctx)
	f.ok(err)
	if len(got) != 2 || got[0] != l {
		f.Fatalf("%+v", got)
	}
	f.ok(f.r.DeleteLost(f.ctx, "fra"))
	f.ok(f.r.DeleteLost(f.ctx, "fra"))
	f.is(f.r.PutLost(f.ctx, federation.Lost{}), federation.ErrInvalid)
	got, err = f.r.ListLost(f.ctx)
	f.ok(err)
	if len(got) != 1 {
		f.Fatalf("%+v", got)
	}
}

func charters(f *fixture) {
	_, _, err := f.r.GetCharter(f.ctx)
	f.is(err, federation.ErrNotFound)
	first := federation.Charter{Serial: 1, Signed: "a.b.c"}
	rev, err := f.r.PutCharter(f.ctx, 0, first)
	f.ok(err)
	got, at, err := f.r.GetCharter(f.ctx)
	f.ok(err)
	if got != first || at != rev {
		f.Fatalf("%+v at %d, want %+v at %d", got, at, first, rev)
	}
	_, err = f.r.PutCharter(f.ctx, 0, federation.Charter{Serial: 2, Signed: "d"})
	f.is(err, federation.ErrConflict)
	for _, bad := range []federation.Charter{{Signed: "x"}, {Serial: 3}} {
		_, err = f.r.PutCharter(f.ctx, rev, bad)
		f.is(err, federation.ErrInvalid)
	}
	// A watch shows the one that is there, and each that follows.
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	var seen []federation.Charter
	err = f.r.Watch(ctx, func(e federation.Event) error {
		switch e.Kind {
		case federation.KindSynced:
			_, err := f.r.PutCharter(ctx, rev, federation.Charter{Serial: 2, Signed: "d"})
			return err
		case federation.KindCharter:
			if seen = append(seen, *e.Charter); len(seen) == 2 {
				return errEnough
			}
		}
		return nil
	})
	f.is(err, errEnough)
	if seen[0] != first || seen[1].Serial != 2 {
		f.Fatalf("%+v", seen)
	}
}

func papers(f *fixture) {
	offer := func(name string) paper.Paper {
		return paper.Paper{Offer: &paper.Offer{Organization: "A", Name: name, Kind: paper.KindStore, Site: "ams", Amount: 1 << 40}}
	}
	list := func(prefix string) (out []string) {
		all, err := f.r.ListPapers(f.ctx, prefix)
		f.ok(err)
		for _, p := range all {
			out = append(out, p.Name())
		}
		return out
	}
	f.ok(f.r.PutPapers(f.ctx))
	f.ok(f.r.PutPapers(f.ctx, paper.At{Paper: offer("one")}, paper.At{Paper: offer("two")}))
	f.is(f.r.PutPapers(f.ctx, paper.At{Paper: offer("three")}, paper.At{Paper: offer("two")}), federation.ErrConflict)
	if got := list("offer/A/"); !reflect.DeepEqual(got, []string{"offer/A/one", "offer/A/two"}) {
		f.Fatalf("%q", got)
	}
	if got := list("request/"); len(got) > 0 {
		f.Fatalf("%q", got)
	}
	one, err := f.r.GetPaper(f.ctx, "offer/A/one")
	f.ok(err)
	if !reflect.DeepEqual(one.Paper, offer("one")) || len(one.Value) == 0 {
		f.Fatalf("%+v", one)
	}
	_, err = f.r.GetPaper(f.ctx, "offer/A/three")
	f.is(err, federation.ErrNotFound)
	one.Offer.Price = "much"
	f.ok(f.r.PutPapers(f.ctx, one))
	f.is(f.r.PutPapers(f.ctx, one), federation.ErrConflict)
	f.is(f.r.DeletePaper(f.ctx, one.Name(), one.Revision), federation.ErrConflict)
	one, err = f.r.GetPaper(f.ctx, one.Name())
	f.ok(err)
	f.ok(f.r.DeletePaper(f.ctx, one.Name(), one.Revision))
	f.is(f.r.PutPapers(f.ctx, paper.At{}), federation.ErrInvalid)
	bad := offer("Bad")
	f.is(f.r.PutPapers(f.ctx, paper.At{Paper: bad}), federation.ErrInvalid)
	// A watch shows what there is, and what follows.
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	var seen []string
	err = f.r.Watch(ctx, func(e federation.Event) error {
		switch {
		case e.Kind == federation.KindSynced:
			two, err := f.r.GetPaper(ctx, "offer/A/two")
			f.ok(err)
			return f.r.DeletePaper(ctx, two.Name(), two.Revision)
		case e.Kind != federation.KindPaper:
		case e.Deleted:
			seen = append(seen, "-"+e.Name)
			return errEnough
		default:
			seen = append(seen, e.Paper.Name())
		}
		return nil
	})
	f.is(err, errEnough)
	if want := []string{"offer/A/two", "-offer/A/two"}; !reflect.DeepEqual(seen, want) {
		f.Fatalf("%q", seen)
	}
}
