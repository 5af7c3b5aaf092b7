// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/pki"
)

// BenchmarkPapers lists papers as commands and pages do, where there are 1 000 offers and as many
// agreements of 100 organizations, each counted by both sides. Nothing is shown to whom it does not
// concern.
func BenchmarkPapers(b *testing.B) {
	const organizations, each = 100, 10
	name := func(o int) string { return fmt.Sprintf("O%02d", o%organizations) }
	var names []string
	for o := range organizations {
		names = append(names, name(o))
	}
	w := newWorldOfBefore(b)
	w.conceals = true
	w.signed(names...)
	ctx := context.Background()
	by, counts := map[string]*one{}, map[string]*one{}
	for o := range organizations {
		site := fmt.Sprintf("s%02d", o)
		by[name(o)], counts[name(o)] = w.as(name(o), site, pki.PartPerson, "ann"), w.as(name(o), site, pki.PartGateway, "g")
	}
	write := func(key string, o *one, p paper.Paper) { // past the gatekeeper: it is not measured
		value := o.forge(key, uint64(w.clock().UnixMilli()), p)
		_, err := w.plain.Put(ctx, prefix+key, string(value))
		w.ok(err)
	}
	for n := range organizations * each {
		host, guest := name(n), name(n+1+n/organizations)
		id := fmt.Sprintf("6f1c2b6e-0000-4000-8000-%012d", n)
		offer := disks()
		offer.Organization, offer.Name, offer.Terms = host, fmt.Sprintf("disks-%d", n), "what is usual"
		r := by[guest].request(id, 1<<30)
		r.Host, r.Offer = host, offer.Name
		offer.Given = map[string]quantity.Bytes{id: r.Amount}
		a := &paper.Answer{ID: id, Guest: guest, Host: host, Accepted: &paper.Acceptance{Moment: by[host].says0(""), Terms: r.Digest()}}
		for _, p := range []paper.Paper{{Offer: offer}, {Request: r}, {Answer: a},
			{Usage: &paper.Usage{ID: id, Guest: guest, Host: host, By: "g", Organization: guest, At: w.clock()}},
			{Usage: &paper.Usage{ID: id, Guest: guest, Host: host, By: "g", Organization: host, At: w.clock()}}} {
			writer := by[p.Writer()]
			if p.Usage != nil {
				writer = counts[p.Writer()]
			}
			write("paper/"+p.Name(), writer, p)
		}
	}
	one := w.as(name(7), "s07", pki.PartPerson, "eve")
	for _, list := range []string{"offer/", "request/", "usage/"} {
		b.Run(list[:len(list)-1], func(b *testing.B) {
			for b.Loop() {
				all, err := one.ListPapers(ctx, list)
				if err != nil || len(all) == 0 {
					b.Fatalf("%d papers, %v", len(all), err)
				}
			}
		})
	}
	b.Run("find", func(b *testing.B) {
		for b.Loop() {
			if _, err := one.GetPaper(ctx, "offer/"+name(3)+"/disks-3"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
