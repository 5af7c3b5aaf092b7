// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// TestPagesOfKinds: pages say of which kind room is, and what that means for each side, and have
// nothing that there is not of that kind.
func TestPagesOfKinds(t *testing.T) {
	now := metav1.NewTime(time.Date(2027, 3, 1, 10, 0, 0, 0, time.UTC))
	counted := &v1alpha1.UsageCounters{At: now, Stored: 3 << 40, GibibyteHours: "17.000", Written: 5 << 40, Read: 7 << 40}
	history := []v1alpha1.UsageSample{{At: metav1.NewTime(now.Add(-time.Hour))}, {At: now, Stored: 3 << 40}}
	stored := []string{"https://store.ams", "gro-1 640 GiB", "Written", "5 TiB", "7 TiB", "GiB stored over time",
		"the guest can write no more"}
	for _, x := range []struct {
		kind        v1alpha1.RoomKind
		both        []string // what the pages of an offer and of an agreement say
		of, without []string // what that of an agreement says and does not say
		usage, csv  string
	}{
		{v1alpha1.RoomStore, []string{"Store: Room for objects", "It runs a store"}, append(stored, `data-is="Stored"`), nil,
			"3 TiB stored at others", ",17.000,5497558138880,7696581394432,0,0,0,Store"},
		{v1alpha1.RoomCopy, []string{"Copy: Copies of the guest", "There is no store to run"},
			[]string{"Volumes&#39; sizes", "GiB of volumes over time", "no other copies can be placed there",
				"the host may say that it deletes"},
			stored, "3 TiB of volumes copied at others", ",17.000,,,,,,Copy"},
		{v1alpha1.RoomCache, []string{"Cache: Room in the cache pools", "Nothing has to be deleted then"},
			[]string{`data-is="Reserved"`, "GiB reserved over time", "the room is not kept any more"},
			append(stored, "can read no more", "may delete", "may say that it deletes"),
			"3 TiB of cache reserved at others", ",17.000,,,,,,Cache"},
	} {
		t.Run(string(x.kind), func(t *testing.T) {
			c, s, _ := before(t)
			in := signIn(t, c)
			api := v1alpha1.GroupVersion.String()
			o := v1alpha1.StorageOffer{TypeMeta: metav1.TypeMeta{Kind: "StorageOffer", APIVersion: api},
				ObjectMeta: metav1.ObjectMeta{Name: "ams.room"},
				Spec:       v1alpha1.StorageOfferSpec{Kind: x.kind, Amount: resource.MustParse("20Ti")},
				Status:     v1alpha1.StorageOfferStatus{Host: "SURF", Site: "ams", Free: new(resource.MustParse("20Ti"))}}
			a := v1alpha1.StorageAgreement{TypeMeta: metav1.TypeMeta{Kind: "StorageAgreement", APIVersion: api},
				ObjectMeta: metav1.ObjectMeta{Name: anID},
				Status: v1alpha1.StorageAgreementStatus{Phase: "Active", Role: "Guest", Guest: "RUG", Host: "SURF", With: "SURF",
					Site: "ams", Kind: string(x.kind), Amount: new(resource.MustParse("10Ti")), Ends: &now, GraceEnds: &now}}
			u := v1alpha1.StorageUsage{TypeMeta: metav1.TypeMeta{Kind: "StorageUsage", APIVersion: api}, ObjectMeta: a.ObjectMeta,
				Status: v1alpha1.StorageUsageStatus{Guest: "RUG", Host: "SURF", Kind: string(x.kind), ByGuest: counted, ByHost: counted,
					History: history}}
			if x.kind == v1alpha1.RoomStore {
				a.Status.Endpoint = "https://store.ams:7005"
				a.Status.Rooms = []v1alpha1.AgreementRoom{{Gateway: "gro-1", Amount: resource.MustParse("640Gi")}}
			}
			s.objects[kindsPath+"storageoffers/ams.room"], s.objects[kindsPath+"storageagreements/"+anID] = o, a
			s.objects[kindsPath+"storageusages/"+anID] = u
			s.objects[kindsPath+"storageoffers"] = v1alpha1.StorageOfferList{Items: []v1alpha1.StorageOffer{o}}
			s.objects[kindsPath+"storageagreements"] = v1alpha1.StorageAgreementList{Items: []v1alpha1.StorageAgreement{a}}
			s.objects[kindsPath+"storageusages"] = v1alpha1.StorageUsageList{Items: []v1alpha1.StorageUsage{u}}
			says := func(at string, with, without []string) {
				t.Helper()
				w := asks(t, c, "GET", at, "", in)
				text := w.Body.String()
				if w.Code != http.StatusOK {
					t.Fatalf("%s: %d: %s", at, w.Code, text)
				}
				for _, want := range with {
					if !strings.Contains(text, want) {
						t.Errorf("%s does not say %q: %s", at, want, text)
					}
				}
				for _, no := range without {
					if strings.Contains(text, no) {
						t.Errorf("%s says %q: %s", at, no, text)
					}
				}
			}
			named := `<td data-is="Kind">` + string(x.kind) + "</td>"
			says("/offers/ams.room", x.both, nil)
			says("/agreements/"+anID, append(x.both, x.of...), x.without)
			says("/offers?kind="+string(x.kind), []string{named, "ams.room"}, nil)
			for _, k := range allKinds {
				if k.Name != x.kind {
					says("/offers?kind="+string(k.Name), []string{"There are none."}, []string{"ams.room"})
				}
			}
			says("/agreements?q="+string(x.kind), []string{named}, nil)
			says("/usage", []string{named, x.usage, "nothing"}, nil)
			says("/usage.csv", []string{x.csv}, nil)
		})
	}
	c, _, _ := before(t)
	if w := asks(t, c, "GET", "/offers?kind=Tape", "", signIn(t, c)); w.Code != http.StatusBadRequest ||
		!strings.Contains(w.Body.String(), "choose Store, Copy or Cache") {
		t.Errorf("a kind that there is not: %d: %s", w.Code, w.Body)
	}
}

const anID = "0a6b4c1e-7a0b-4a42-9a2e-0000000000aa"

// lodges has two people make an agreement about copies, see what is used of it, and end it.
func lodges(t *testing.T, f *fed, lender, borrower *person) {
	t.Helper()
	lender.goes("/lend")
	lender.types("input[name=kind]", kb.ArrowDown)
	lender.types("input[name=name]", "copies")
	lender.types("input[name=amount]", "20Ti")
	lender.presses("main button")
	lender.waits("/offers/copies", "20 TiB of 20 TiB")
	if text := lender.reads(); !strings.Contains(text, "Copy: Copies of the guest's volumes") {
		t.Errorf("who offers copies reads %q", text)
	}
	borrower.waits("/offers?kind=Copy", "ams.copies")
	if text := borrower.reads(); strings.Contains(text, "ams.disks") {
		t.Errorf("offers of copies are %q", text)
	}
	borrower.presses("tbody a")
	borrower.types("input[name=amount]", "10Ti")
	borrower.presses("main form button")
	path := borrower.at()
	id := strings.TrimPrefix(path, "/agreements/")
	lender.waits(path, "the host accepts or declines")
	lender.presses("main form button")
	for _, p := range []*person{lender, borrower} {
		p.waits(path, "Active")
		if text := p.reads(); !strings.Contains(text, "Copies of the guest's volumes") || strings.Contains(text, "Where") ||
			strings.Contains(text, "Room\n") {
			t.Errorf("%s reads %q of copies", p.name, text)
		}
	}

	f.advance(time.Hour)
	f.lodged(id, paper.Usage{Of: map[string]paper.Counters{"ams": {Stored: 2 << 40, ByteHours: 1 << 40}}})
	lender.waits(path, "2 TiB")
	if text := lender.reads(); !strings.Contains(text, "Volumes' sizes") || strings.Contains(text, "Written") {
		t.Errorf("what is used of copies is %q", text)
	}
	borrower.waits("/usage", "2 TiB of volumes copied at others")

	borrower.goes(path)
	borrower.opens("Nothing is needed there any more")
	borrower.types("details[open] input[name=sure]", " ")
	borrower.presses("details[open] button")
	lender.waits(path, "the host deletes")
	f.lodged(id, paper.Usage{Erased: &paper.Deletion{Moment: paper.Moment{At: f.now().UTC().Truncate(time.Second), By: "ams-1"},
		Objects: 2, Bytes: 2 << 40}})
	lender.waits(path, "deleted, copies of 2 volumes, of "+quantity.Bytes(2<<40).String())
	borrower.waits(path, "Ended")
}

// lodged is what the host's gateway says of copies.
func (f *fed) lodged(id string, u paper.Usage) {
	f.t.Helper()
	u.ID, u.Guest, u.Host, u.By, u.Organization, u.At = id, "RUG", "SURF", "ams-1", "SURF", f.now().UTC().Truncate(time.Second)
	p := paper.At{Paper: paper.Paper{Usage: &u}}
	if is, err := f.reg.GetPaper(f.t.Context(), p.Name()); err == nil {
		p.Revision = is.Revision
	}
	f.ok(f.reg.PutPapers(f.t.Context(), p))
}
