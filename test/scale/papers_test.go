// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// What there is of the exchange of storage.
const (
	offersEach = 10  // offers of each organization, each of which has a site
	written    = 980 // agreements that have papers when the operator begins
	asked      = 20  // StorageRequests of people here, half of which are accepted
	lentStore  = "https://store." + here + ".example.org:7005"
)

// stages are in what states agreements are, by turns.
var stages = []paper.Phase{paper.Active, paper.Active, paper.Requested, paper.Active, paper.Agreed, paper.Ending, paper.Drained,
	paper.Ended, paper.Declined}

// bond is an agreement: of this organization in six of ten, as host and as guest by turns.
type bond struct {
	n           int
	guest, host int // organizations
	stage       paper.Phase
}

func bondOf(n int) bond {
	us, other, third := 0, 1+n%(sites-1), 1+(n+1+n/sites)%(sites-1)
	if n%10 >= 6 {
		us = third
	}
	b := bond{n: n, guest: us, host: other, stage: stages[(n/2)%len(stages)]}
	if n%2 == 0 {
		b.guest, b.host = other, us
	}
	return b
}

func bondID(n int) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "agreement %d", n)).String()
}

func (b bond) ours() bool { return b.guest == 0 || b.host == 0 }

// counted reports whether both sides have counted.
func (b bond) counted() bool {
	return b.stage == paper.Active || b.stage == paper.Ending || b.stage == paper.Drained || b.stage == paper.Ended
}

// shown is the state that this organization's operator brings it to: it says where the room is that
// it lends. What was drained it begins to delete, and the store, which is not there, does not end.
func (b bond) shown() paper.Phase {
	if b.stage == paper.Agreed && b.host == 0 {
		return paper.Active
	}
	return b.stage
}

func offerName(i int) string { return fmt.Sprintf("disks-%d", i%offersEach) }

// anOffer is an offer of a site's organization.
func anOffer(site, i int) *paper.Offer {
	return &paper.Offer{Organization: orgName(site), Name: offerName(i), Kind: paper.KindStore, Site: siteName(site), Amount: 100 << 40,
		Media: "HDD", Class: paper.ClassStandard, Price: "3 EUR per TiB and month", Terms: "best effort, in working hours",
		Notice: quantity.Duration(30 * 24 * time.Hour), Grace: quantity.Duration(7 * 24 * time.Hour), Given: map[string]quantity.Bytes{}}
}

// papers are what organizations have said in two months: all offers, and agreements with their
// rooms and counts.
func (g *gateways) papers() error {
	offers := map[string]*paper.Offer{}
	for i := range sites * offersEach {
		o := anOffer(i/offersEach, i)
		offers[paper.OfferName(o.Organization, o.Name)] = o
	}
	var all []paper.Paper
	for n := range written {
		b := bondOf(n)
		o := offers[paper.OfferName(orgName(b.host), offerName(n/offersEach))]
		all = append(all, b.papers(o, time.Now().UTC().Truncate(time.Second))...)
	}
	for o := range maps.Values(offers) {
		all = append(all, paper.Paper{Offer: o})
	}
	var out []put
	for _, p := range all {
		if err := p.Validate(); err != nil {
			return err
		}
		out = append(out, put{"paper/" + p.Name(), p})
	}
	return g.write(g.t.Context(), out...)
}

// papers are those of one agreement for an offer, as both sides' operators and gateways sign them.
func (b bond) papers(o *paper.Offer, now time.Time) []paper.Paper {
	day := 24 * time.Hour
	guest, host, id := orgName(b.guest), orgName(b.host), bondID(b.n)
	says := func(org int, ago time.Duration) *paper.Moment {
		return &paper.Moment{At: now.Add(-ago), By: "weir://" + federationName + "/" + siteName(org) + "-operator"}
	}
	r := &paper.Request{Terms: paper.Terms{ID: id, Guest: guest, Host: host, Offer: o.Name, Kind: o.Kind, Site: o.Site, Price: o.Price,
		Text: o.Terms, Amount: 1 << 40, Until: now.Add(300 * day), Notice: o.Notice, Grace: o.Grace, AnswerBy: now.Add(20 * day)},
		Purpose: "climate runs", Made: *says(b.guest, 60*day)}
	a := &paper.Answer{ID: id, Guest: guest, Host: host}
	switch b.stage {
	case paper.Requested:
		return []paper.Paper{{Request: r}}
	case paper.Declined:
		a.Declined = says(b.host, 59*day)
		return []paper.Paper{{Request: r}, {Answer: a}}
	}
	a.Accepted = &paper.Acceptance{Moment: *says(b.host, 59*day), Terms: r.Digest()}
	if b.stage != paper.Agreed {
		a.Ready = &paper.Place{Endpoint: "https://store." + o.Site + ".example.org:7005"}
	}
	if b.stage == paper.Ending || b.stage == paper.Drained || b.stage == paper.Ended {
		r.Noticed = says(b.guest, 5*day)
	}
	if b.stage == paper.Drained || b.stage == paper.Ended {
		r.Drained = says(b.guest, day)
	}
	if b.stage == paper.Ended { // if this organization is the guest, it has not confirmed it yet
		a.Deleting = says(b.host, 20*time.Hour)
		a.Deleted = &paper.Deletion{Moment: *says(b.host, 19*time.Hour), Objects: 1000, Bytes: 100 << 30}
		if b.guest != 0 {
			r.Confirmed = says(b.guest, 18*time.Hour)
		}
	} else {
		o.Given[id] = r.Amount
	}
	out := []paper.Paper{{Request: r}, {Answer: a}}
	if !b.counted() {
		return out
	}
	gw := siteName(b.guest) + "-0"
	room := quantity.Bytes(160 << 30)
	if b.n%3 == 0 {
		room = 110 << 30 // nearly full: the guest's operator gives more
	}
	count := paper.Counters{Puts: 3000, Gets: 500, Deletes: 2000, In: 300 << 30, Out: 50 << 30, Stored: 100 << 30, ByteHours: 1e13}
	if b.stage == paper.Drained || b.stage == paper.Ended {
		count.Stored, count.Deletes = 0, 3000
	}
	told := count
	if b.n%40 == 0 {
		told.Out *= 2
	}
	of := func(c paper.Counters) map[string]paper.Counters { return map[string]paper.Counters{gw: c} }
	at := now.Add(-30 * time.Minute)
	return append(out, paper.Paper{Room: &paper.Room{ID: id, Guest: guest, Host: host, Gateway: gw, Bytes: room}},
		paper.Paper{Usage: &paper.Usage{ID: id, Guest: guest, Host: host, By: gw, Organization: guest, At: at, Of: of(count)}},
		paper.Paper{Usage: &paper.Usage{ID: id, Guest: guest, Host: host, By: o.Site, Organization: host, At: at, Of: of(told)}})
}

// ask makes what people here say: half of this site's offers, and requests. Hosts accept every
// second one.
func (w *world) ask() {
	ctx := w.rig.t.Context()
	for i := range offersEach / 2 {
		o := anOffer(0, i)
		w.ok(w.api.Create(ctx, &v1alpha1.StorageOffer{ObjectMeta: metav1.ObjectMeta{Name: o.Name}, Spec: v1alpha1.StorageOfferSpec{
			Kind: v1alpha1.RoomStore, Amount: resource.MustParse("100Ti"), Media: o.Media, Class: v1alpha1.RoomClass(o.Class),
			Price: o.Price, Terms: o.Terms, Notice: metav1.Duration{Duration: time.Duration(o.Notice)},
			Grace: metav1.Duration{Duration: time.Duration(o.Grace)}}}))
	}
	for i := range asked {
		host := 1 + i
		q := &v1alpha1.StorageRequest{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("climate-%02d", i)},
			Spec: v1alpha1.StorageRequestSpec{Offer: siteName(host) + "." + offerName(i), Amount: resource.MustParse("10Ti"),
				Until: metav1.NewTime(time.Now().AddDate(1, 0, 0)), Purpose: "climate runs"}}
		w.ok(w.api.Create(ctx, q))
		if i%2 > 0 {
			continue
		}
		id := string(q.UID)
		w.until("wait until the operator has asked", func() (bool, string) {
			_, err := w.reg.GetPaper(ctx, paper.RequestName(id))
			return err == nil, fmt.Sprint(err)
		})
		d := &exchange.Desk{Book: w.reg, Organization: orgName(host), By: "weir://" + federationName + "/" + siteName(host) + "-operator",
			Now: time.Now}
		w.ok(cmp.Or(d.Accept(ctx, id, false), d.Ready(ctx, id, paper.Place{Endpoint: "https://store.example.org:7005"})))
	}
}

// papersShown is how many objects the papers are, by kind and by what a column has.
func papersShown() (agreements map[string]int, usages map[string]int, all map[string]int) {
	agreements = map[string]int{string(paper.Requested): asked / 2, string(paper.Active): asked - asked/2}
	usages, all = map[string]int{}, map[string]int{"storageoffer": sites * offersEach, "storageagreement": asked, "storagerequest": asked}
	for n := range written {
		b := bondOf(n)
		if !b.ours() {
			continue
		}
		agreements[string(b.shown())]++
		all["storageagreement"]++
		if b.counted() {
			all["storageusage"]++
			agree := "True"
			if n%40 == 0 {
				agree = "False"
			}
			usages[agree]++
		}
	}
	return agreements, usages, all
}

// papersSettled tells whether the cluster shows all papers that concern it, as they are.
func (r *rig) papersSettled() (bool, string) {
	agreements, usages, all := papersShown()
	for _, x := range []struct {
		kind, column string
		want         map[string]int
	}{
		{"storageoffers", "Ready", map[string]int{"True": all["storageoffer"]}}, {"storageagreements", "Phase", agreements},
		{"storageusages", "Ready", usages},
		{"storagerequests", "Phase", map[string]int{string(paper.Requested): asked / 2, string(paper.Active): asked - asked/2}},
	} {
		is, err := r.rowsBy(x.kind, x.column)
		if err != nil || !maps.Equal(is, x.want) {
			return false, fmt.Sprintf("%s by %s are %v (%v), want %v", x.kind, x.column, is, err, x.want)
		}
	}
	return true, ""
}

// say has a host here count more of what a guest has, and a host elsewhere lend more: the operator
// writes the one StorageUsage, and the one StorageOffer.
func (w *world) say() {
	ctx := w.rig.t.Context()
	n := 0
	for b := bondOf(n); b.host != 0 || b.stage != paper.Active || n%40 == 0; b = bondOf(n) {
		n++
	}
	p, err := w.reg.GetPaper(ctx, paper.UsageName(bondID(n), paper.Host, here))
	w.ok(err)
	for g, c := range p.Usage.Of {
		c.Gets++
		p.Usage.Of[g] = c
	}
	p.Usage.At = p.Usage.At.Add(time.Minute)
	w.writes.Add(1)
	w.ok(w.reg.PutPapers(ctx, p))
	u := &v1alpha1.StorageUsage{ObjectMeta: metav1.ObjectMeta{Name: bondID(n)}}
	w.until("wait for a count", func() (bool, string) {
		w.ok(w.api.Get(ctx, client.ObjectKeyFromObject(u), u))
		return u.Status.ByHost.Reads == 501, fmt.Sprintf("it is %+v", u.Status.ByHost)
	})
	w.op.idle(pulse{}, nil)
	w.onlyWritten("a store has counted", 0, 0, "StorageUsage /"+u.Name)

	o, err := w.reg.GetPaper(ctx, paper.OfferName(orgName(7), offerName(7)))
	w.ok(err)
	o.Offer.Amount *= 2
	w.writes.Add(1)
	w.ok(w.reg.PutPapers(ctx, o))
	shown := &v1alpha1.StorageOffer{ObjectMeta: metav1.ObjectMeta{Name: siteName(7) + "." + offerName(7)}}
	w.until("wait for an offer", func() (bool, string) {
		w.ok(w.api.Get(ctx, client.ObjectKeyFromObject(shown), shown))
		return shown.Spec.Amount.Value() == 200<<40 && shown.Status.ObservedGeneration == shown.Generation,
			fmt.Sprintf("it is %+v", shown.Spec)
	})
	w.op.idle(pulse{}, nil)
	w.onlyWritten("a host elsewhere lends more", 0, 0, "StorageOffer /"+shown.Name)
}
