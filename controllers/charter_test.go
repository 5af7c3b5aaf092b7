// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

// Copies at the sites of an organization that is expelled do not count: they are placed elsewhere.
// A charter that nobody signed changes nothing.
func TestAnExpelledOrganizationIsReplaced(t *testing.T) {
	f := newFed(t)
	founding, err := pki.NewAuthority("demo", time.Now(), time.Hour)
	f.ok(err)
	other, err := pki.NewAuthority("demo", time.Now(), time.Hour)
	f.ok(err)
	root, err := founding.Pair()
	f.ok(err)
	pair, err := founding.Issue(pki.Identity{Federation: "demo", Organization: "uva", Site: "ams", Gateway: "ams-operator",
		Part: pki.PartOperator}, nil, time.Now(), time.Hour)
	f.ok(err)
	creds, err := pki.Load(root.Cert, pair, time.Now)
	f.ok(err)
	f.charter = creds
	sign := func(by *pki.Authority, serial uint64, out ...string) federation.Charter {
		c := pki.Charter{Federation: "demo", Serial: serial}
		for _, name := range []string{"rug", "uva", "uu"} {
			o := pki.Organization{Name: name, Authorities: []string{string(root.Cert)}}
			if slices.Contains(out, name) {
				o.Expelled = &pki.Expulsion{At: f.clock(), Why: "a test"}
			}
			c.Set(o)
		}
		signed, err := by.SignCharter(c)
		f.ok(err)
		return federation.Charter{Serial: serial, Signed: signed}
	}
	f.site("ams", "uva")
	f.site("gro", "rug")
	ams := f.cluster("ams")
	g := gv("ns", "data", nil)
	ams.create(g)
	settleAll(ams)
	uuid := v1alpha1.VolumeUUID("uid-ams", string(g.UID))
	f.serve(uuid, 0)
	f.site("utr", "uu")
	settleAll(ams)
	is := func(when, want string) {
		t.Helper()
		if got := strings.Join(f.record(uuid).Sites, " "); got != want {
			t.Errorf("%s: sites %s, want %s", when, got, want)
		}
	}
	is("at first", "ams gro")
	rev, err := f.reg.PutCharter(t.Context(), 0, sign(founding, 1))
	f.ok(err)
	settleAll(ams)
	is("with a charter", "ams gro")
	rev, err = f.reg.PutCharter(t.Context(), rev, sign(other, 2, "rug"))
	f.ok(err)
	settleAll(ams)
	is("a forged one", "ams gro")
	rev, err = f.reg.PutCharter(t.Context(), rev, sign(founding, 3, "rug"))
	f.ok(err)
	settleAll(ams)
	is("expelled", "ams utr")
	gro := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "gro"}}
	ams.get(gro)
	if c := gro.Status.Conditions; len(c) == 0 || !strings.Contains(c[0].Message, `"rug" is not of the federation`) {
		t.Errorf("the site says %+v", c)
	}
	_, err = f.reg.PutCharter(t.Context(), rev, sign(founding, 4))
	f.ok(err)
	f.serve(uuid, 0)
	settleAll(ams)
	is("back", "ams utr") // what is placed stays
}

// TestALabelThatLies: once the federation's authority says a label of any site, what sites say of
// themselves by that name does not choose them; other labels still do.
func TestALabelThatLies(t *testing.T) {
	f := newFed(t)
	founding, err := pki.NewAuthority("demo", time.Now(), time.Hour)
	f.ok(err)
	root, err := founding.Pair()
	f.ok(err)
	pair, err := founding.Issue(pki.Identity{Federation: "demo", Organization: "uva", Site: "ams", Gateway: "ams-operator",
		Part: pki.PartOperator}, nil, time.Now(), time.Hour)
	f.ok(err)
	creds, err := pki.Load(root.Cert, pair, time.Now)
	f.ok(err)
	f.charter = creds
	charter := pki.Charter{Federation: "demo", Serial: 1}
	for _, name := range []string{"rug", "uva", "uu"} {
		charter.Set(pki.Organization{Name: name, Authorities: []string{string(root.Cert)}})
	}
	charter.Say("ams", "jurisdiction", "nl")
	charter.Say("utr", "jurisdiction", "nl")
	signed, err := founding.SignCharter(charter)
	f.ok(err)
	for site, organization := range map[string]string{"ams": "uva", "gro": "rug", "utr": "uu"} {
		f.site(site, organization)
	}
	f.ok(f.reg.Register(t.Context(), federation.Site{Name: "gro", Organization: "rug", Cluster: "uid-gro",
		Labels: map[string]string{"jurisdiction": "nl", "disks": "fast"}}))
	_, err = f.reg.PutCharter(t.Context(), 0, federation.Charter{Serial: 1, Signed: signed})
	f.ok(err)
	ams := f.cluster("ams")
	settleAll(ams)
	for want, labels := range map[string]map[string]string{"ams utr": {"jurisdiction": "nl"}, "gro": {"disks": "fast"}} {
		g := gv("ns", strings.ReplaceAll(want, " ", "-"), func(s *v1alpha1.GeoVolumeSpec) {
			s.Replication = &v1alpha1.Replication{Copies: ptrTo(int32(len(strings.Fields(want)))),
				Sites: v1alpha1.SiteRules{Selector: &metav1.LabelSelector{MatchLabels: labels}}}
		})
		ams.create(g)
		settleAll(ams)
		if got := strings.Join(f.record(v1alpha1.VolumeUUID("uid-ams", string(g.UID))).Sites, " "); got != want {
			t.Errorf("with %v: sites %s, want %s", labels, got, want)
		}
	}
	gro := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "gro"}}
	ams.get(gro)
	if gro.Labels["jurisdiction"] != "" || gro.Labels["disks"] != "fast" {
		t.Errorf("the site is shown with %v", gro.Labels)
	}
	// It is told, and counted.
	if got := gro.Annotations[refusedAnnotation]; got != "jurisdiction=nl" {
		t.Errorf("it is told that %q is refused", got)
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(NewCollector(ams.api))
	all, err := metrics.Gather()
	f.ok(err)
	counted := 0.0
	for _, m := range all {
		if m.GetName() == "weir_site_labels_refused" && len(m.GetMetric()) == 1 {
			counted = m.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if counted != 1 {
		t.Errorf("%v labels are counted", counted)
	}
}
