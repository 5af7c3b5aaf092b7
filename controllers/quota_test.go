// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/mirror"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/federation"
)

func aQuota(name, amount string, change func(*v1alpha1.PlacementQuotaSpec)) *v1alpha1.PlacementQuota {
	q := &v1alpha1.PlacementQuota{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PlacementQuotaSpec{Per: v1alpha1.PerAll, Amount: resource.MustParse(amount)}}
	if change != nil {
		change(&q.Spec)
	}
	return q
}

func amount(text string) func(*v1alpha1.PlacementQuota) {
	return func(q *v1alpha1.PlacementQuota) { q.Spec.Amount = resource.MustParse(text) }
}

// shows checks what a quota's status says.
func (c *cluster) shows(q *v1alpha1.PlacementQuota, used, reason string, exceeded bool, namespaces string) {
	c.t.Helper()
	c.get(q)
	var by []string
	for _, n := range q.Status.Namespaces {
		by = append(by, fmt.Sprintf("%s %s", n.Name, n.Used.String()))
	}
	s := q.Status
	if is := object.Ready(s.Conditions); s.Used == nil || s.Used.String() != used || is.Reason != reason ||
		meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionExceeded) != exceeded || strings.Join(by, ", ") != namespaces ||
		int(s.Using) != len(by) || s.ObservedGeneration != q.Generation {
		c.t.Errorf("quota %s: %v are used by %q (%d), and %+v", q.Name, s.Used, by, s.Using, s.Conditions)
	}
}

// stirs counts how often volumes that wait are looked at again because of f.
func (c *cluster) stirs(f func()) (n int) {
	var told atomic.Int32
	c.op.mirror.OnNews(func(news mirror.News) {
		if news.Site == c.op.Site {
			told.Add(1)
		}
	})
	f()
	return int(told.Load())
}

func (c *cluster) volume(namespace, name string, change func(*v1alpha1.GeoVolumeSpec)) *v1alpha1.GeoVolume {
	g := gv(namespace, name, change)
	c.create(g)
	settleAll(c)
	c.get(g)
	return g
}

func (c *cluster) uuid(g *v1alpha1.GeoVolume) string {
	return v1alpha1.VolumeUUID("uid-"+c.name, string(g.UID))
}

// TestQuota: volumes are placed as far as a quota allows, at other sites if there are any, and else
// they wait until it is raised, or something of it is given back. What is placed stays.
func TestQuota(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	f.site("gro", "rug")
	f.site("utr", "uva")
	ams := f.cluster("ams")
	q := aQuota("others", "1Gi", func(s *v1alpha1.PlacementQuotaSpec) { s.Where.Organizations = []v1alpha1.OrganizationName{"rug"} })
	ams.create(q)
	three := func(s *v1alpha1.GeoVolumeSpec) { s.Replication = &v1alpha1.Replication{Copies: int32p(3)} }
	a := ams.volume("ns", "a", three)
	ams.shows(q, "1Gi", v1alpha1.ReasonExhausted, false, "ns 1Gi")
	b := ams.volume("ns", "b", three)
	ams.ready(b, metav1.ConditionFalse, v1alpha1.ReasonUnplaceable, "3 copies are wanted, but only 2 of 3 sites",
		"gro: PlacementQuota others is used up: of the 1Gi that all namespaces together may place there, other volumes have 1Gi, and "+
			"this one would have 1Gi", "have an administrator raise spec.amount of the PlacementQuota")
	c := ams.volume("ns", "c", nil)
	if v := f.record(ams.uuid(c)); slices.Contains(v.Sites, "gro") {
		t.Errorf("it is at %q", v.Sites)
	}

	edit(ams, q, amount("2Gi"))
	if ams.stirs(func() { ams.reconcile("PlacementQuota", "others") }) == 0 {
		t.Error("the quota was raised, and the volume that waits is not looked at again")
	}
	settleAll(ams)
	if v := f.record(ams.uuid(b)); !slices.Contains(v.Sites, "gro") {
		t.Errorf("the quota was raised, and it is at %q", v.Sites)
	}
	ams.shows(q, "2Gi", v1alpha1.ReasonExhausted, false, "ns 2Gi")
	f.serve(ams.uuid(a), 0)
	edit(ams, a, func(g *v1alpha1.GeoVolume) { g.Spec.Size = ptrTo(resource.MustParse("2Gi")) })
	settleAll(ams)
	ams.get(a)
	ams.ready(a, metav1.ConditionFalse, v1alpha1.ReasonUnplaceable, "and this one would have 2Gi")
	if v := f.record(ams.uuid(a)); v.Spec.Size != 1<<30 || len(v.Sites) != 3 {
		t.Errorf("it grew beyond the quota: %+v", v)
	}

	edit(ams, q, amount("512Mi"))
	settleAll(ams)
	ams.shows(q, "2Gi", v1alpha1.ReasonExceeded, true, "ns 2Gi")
	ams.ready(q, metav1.ConditionTrue, v1alpha1.ReasonExceeded, "2Gi of 512Mi are used: what is placed stays, and nothing is added")
	if v := f.record(ams.uuid(b)); !slices.Contains(v.Sites, "gro") {
		t.Errorf("the quota was lowered, and it is at %q", v.Sites)
	}
	edit(ams, b, func(g *v1alpha1.GeoVolume) { g.Spec.ReclaimPolicy = v1alpha1.Delete })
	ams.delete(b)
	settleAll(ams)
	if v := f.record(ams.uuid(b)); !v.Deleted {
		t.Fatalf("it is not in the trash: %+v", v)
	}
	ams.shows(q, "1Gi", v1alpha1.ReasonExceeded, true, "ns 1Gi")
	ams.delete(q)
	if ams.stirs(func() { ams.reconcile("PlacementQuota", "others") }) == 0 {
		t.Error("the quota is gone, and the volume that waits is not looked at again")
	}
	settleAll(ams)
	if v := f.record(ams.uuid(a)); v.Spec.Size != 2<<30 {
		t.Errorf("the quota is gone, and it has %v", v.Spec.Size)
	}
}

// TestQuotaOfNamespaces: which namespaces count, by name and by label, each alone or all together.
func TestQuotaOfNamespaces(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	ams := f.cluster("ams")
	one := func(s *v1alpha1.GeoVolumeSpec) { s.Replication = &v1alpha1.Replication{Copies: int32p(1)} }
	for name, team := range map[string]string{"lab": "research", "climate": "research", "shop": "sales"} {
		ams.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}})
	}
	each := aQuota("each", "1Gi", func(s *v1alpha1.PlacementQuotaSpec) {
		s.Per = v1alpha1.PerNamespace
		s.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "research"}}
	})
	shops := aQuota("shops", "2Gi", func(s *v1alpha1.PlacementQuotaSpec) {
		s.Namespaces.Names = []v1alpha1.NamespaceName{"shop", "market"}
	})
	ams.create(each)
	ams.create(shops)
	for _, v := range []struct{ namespace, name, refused string }{
		{"lab", "a", ""}, {"climate", "a", ""}, {"lab", "b", "of the 1Gi that namespace lab may place there, other volumes have 1Gi"},
		{"shop", "a", ""}, {"market", "a", ""},
		{"shop", "b", "of the 2Gi that the namespaces that it selects together may place there, other volumes have 2Gi"},
		{"home", "a", ""}, {"home", "b", ""},
	} {
		g := ams.volume(v.namespace, v.name, one)
		if v.refused == "" {
			ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonCreating)
		} else {
			ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonUnplaceable, v.refused)
		}
	}
	ams.shows(each, "1Gi", v1alpha1.ReasonExhausted, false, "climate 1Gi, lab 1Gi")
	ams.shows(shops, "2Gi", v1alpha1.ReasonExhausted, false, "market 1Gi, shop 1Gi")

	// A claim's volume is of the claim's namespace.
	pvc := contentOf("0a6b4c1e-7a0b-5a42-9a2e-1f6d0c8a9b10")
	pvc.Spec = v1alpha1.GeoVolumeContentSpec{FederationName: "pvc-1", Owner: "ams", Size: resource.MustParse("1Gi"),
		Overrides: &v1alpha1.VolumePolicySpec{Replication: v1alpha1.Replication{Copies: int32p(1)}},
		Claims:    []v1alpha1.ClaimReference{{Kind: string(federation.ClaimPVC), Namespace: "climate", Name: "data"}}}
	ams.create(pvc)
	settleAll(ams)
	ams.get(pvc)
	ams.ready(pvc, metav1.ConditionFalse, v1alpha1.ReasonUnplaceable, "of the 1Gi that namespace climate may place there")

	// The quota selects more: what is there stays. What it selects no more may be placed again.
	edit(ams, each, func(q *v1alpha1.PlacementQuota) { q.Spec.Namespaces = v1alpha1.QuotaNamespaces{} })
	settleAll(ams)
	ams.shows(each, "2Gi", v1alpha1.ReasonExceeded, true, "home 2Gi, climate 1Gi, lab 1Gi, market 1Gi, shop 1Gi")
	ams.ready(each, metav1.ConditionTrue, v1alpha1.ReasonExceeded, "more than 1Gi is used by home (2Gi): what is placed stays")
	edit(ams, each, func(q *v1alpha1.PlacementQuota) { q.Spec.Namespaces.Names = []v1alpha1.NamespaceName{"home"} })
	settleAll(ams)
	if v := f.record(pvc.Name); len(v.Sites) != 1 {
		t.Errorf("the quota is not about it, and it is at %q", v.Sites)
	}

	// What cannot be read selects all, and says so.
	edit(ams, shops, func(q *v1alpha1.PlacementQuota) {
		q.Spec.Namespaces = v1alpha1.QuotaNamespaces{Selector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Is"}}}}
	})
	settleAll(ams)
	ams.get(shops)
	ams.ready(shops, metav1.ConditionFalse, v1alpha1.ReasonInvalid, `spec.namespaces.selector: "Is" is not a valid label selector operator`)
	ams.ready(ams.volume("away", "a", one), metav1.ConditionFalse, v1alpha1.ReasonUnplaceable, "PlacementQuota shops is used up")
}

// TestQuotaOfAgreements: lent stores and copies by agreement count, and volumes of another cluster
// do not.
func TestQuotaOfAgreements(t *testing.T) {
	f, host, guest := lenders(t)
	host.create(anOffer("disks", func(s *v1alpha1.StorageOfferSpec) { s.Automatic = new(resource.MustParse("50Ti")) }))
	settleAll(host, guest)
	guest.create(f.aRequest(anID, "ams.disks", "10Ti"))
	settleAll(host, guest)
	lent := aQuota("lent", "1Ti", func(s *v1alpha1.PlacementQuotaSpec) {
		s.Per, s.Where.Agreements, s.Where.Whose = v1alpha1.PerNamespace, []v1alpha1.AgreementName{anID}, v1alpha1.RoomOthers
	})
	own := aQuota("own", "0", func(s *v1alpha1.PlacementQuotaSpec) { s.Where.Whose = v1alpha1.RoomOwn })
	guest.create(lent)
	host.create(own) // is about the host's volumes only
	large := func(s *v1alpha1.GeoVolumeSpec) { s.Size = new(resource.MustParse("1Ti")) }
	a := guest.volume("lab", "a", large)
	if v := f.record(guest.uuid(a)); !slices.Equal(v.Sites, []string{"gro"}) || !slices.Equal(v.Stores, []string{anID}) {
		t.Fatalf("it is at %q and in stores %q", v.Sites, v.Stores)
	}
	guest.shows(lent, "1Ti", v1alpha1.ReasonExhausted, false, "lab 1Ti")
	b := guest.volume("lab", "b", large)
	guest.ready(b, metav1.ConditionFalse, v1alpha1.ReasonUnplaceable,
		"store of agreement "+anID+" at ams: PlacementQuota lent is used up: of the 1Ti that namespace lab may place there")
	if v := f.record(guest.uuid(guest.volume("climate", "a", large))); !slices.Equal(v.Stores, []string{anID}) {
		t.Errorf("another namespace's volume is in stores %q", v.Stores)
	}
	settleAll(host, guest)
	host.shows(own, "0", v1alpha1.ReasonReady, false, "")
}

// TestQuotaRace: volumes that are placed at the same time do not use more than there is, and what
// one of them gives back another finds.
func TestQuotaRace(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	f.site("utr", "uva")
	ams := f.cluster("ams")
	ams.create(aQuota("all", "10Gi", nil))
	settleAll(ams) // registers the cluster
	const volumes = 12
	var all []*v1alpha1.GeoVolume
	for i := range volumes {
		g := gv("ns", fmt.Sprintf("v%d", i), nil)
		ams.create(g)
		ams.synced()
		ams.reconcile("GeoVolume", "ns/"+g.Name)
		all = append(all, g)
	}
	// None is created before all have found room or not.
	var decided sync.Map
	var left atomic.Int32
	left.Store(volumes)
	ready := make(chan struct{})
	decides := func(uuid string) {
		if _, has := decided.LoadOrStore(uuid, true); !has && left.Add(-1) == 0 {
			close(ready)
		}
	}
	ams.reg.before = func(uuid string) { decides(uuid); <-ready }
	var wg sync.WaitGroup
	for _, g := range all {
		wg.Go(func() {
			defer decides(ams.uuid(g))
			for range 5 { // another writer of the object may be faster
				_, err := ams.recs["GeoVolumeContent"].Reconcile(t.Context(),
					ctrl.Request{NamespacedName: types.NamespacedName{Name: ams.uuid(g)}})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	ams.reg.before = nil
	settleAll(ams)
	made := 0
	for _, g := range all {
		if e := ams.op.mirror.Volume(ams.uuid(g)); e != nil && e.Record != nil {
			made++
		}
	}
	if made != 5 {
		t.Errorf("%d volumes of two copies of 1Gi were made in 10Gi", made)
	}
}

// TestQuotaReservations: what is reserved for a volume counts for others, and what it gives up has
// them looked at again.
func TestQuotaReservations(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	ams := f.cluster("ams")
	ams.create(aQuota("all", "1Gi", nil))
	ams.synced()
	used := func(id string) string {
		t.Helper()
		c := contentOf(id)
		c.Spec.FederationName = "ns." + id
		q, err := ams.op.quotas.Of(t.Context(), c)
		f.ok(err)
		return fmt.Sprint(q[0].Used, " ", q[0].Has)
	}
	a := contentOf("a")
	a.Spec.FederationName = "ns.a"
	ams.op.quotas.Reserve(a, []string{"ams"}, nil, nil, 1<<30)
	if is, own := used("b"), used("a"); is != "1Gi 0" || own != "0 0" {
		t.Errorf("others find %s used, and it finds %s", is, own)
	}
	if ams.stirs(func() { ams.op.quotas.Release("a") }) != 1 || used("b") != "0 0" {
		t.Errorf("it gave up, and others find %s used", used("b"))
	}
}

// TestQuotaSteadyState: nothing is written while nothing changes.
func TestQuotaSteadyState(t *testing.T) {
	f, ams, utr, _, uuid := two(t, nil)
	ams.create(aQuota("tight", "1Gi", nil))
	ams.create(aQuota("wide", "10Ti", func(s *v1alpha1.PlacementQuotaSpec) { s.Per = v1alpha1.PerNamespace }))
	settleAll(ams, utr)
	ams.create(gv("ns", "waits", nil))
	settleAll(ams, utr)
	before := ams.count()
	n := ams.stirs(func() {
		for range 3 {
			f.serve(uuid, 0)
			ams.round()
		}
	})
	if w := ams.count() - before; w != 0 || n != 0 {
		t.Errorf("%d writes, and volumes that wait are looked at %d times: %v", w, n, last(ams.writes, w))
	}
}

// TestQuotaOnARealServer: volumes that wait for a quota go on by themselves when it is raised, when
// a volume is deleted, and when their namespace gets other labels.
func TestQuotaOnARealServer(t *testing.T) {
	if testing.Short() {
		t.Skip("an API server takes some seconds")
	}
	log.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	f := newFed(t)
	f.site("ams", "uva")
	ams := f.real("ams")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab", Labels: map[string]string{"team": "research"}}}
	f.ok(ams.api.Create(t.Context(), ns))
	q := aQuota("lab", "1Gi", func(s *v1alpha1.PlacementQuotaSpec) {
		s.Per = v1alpha1.PerNamespace
		s.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "research"}}
	})
	f.ok(ams.api.Create(t.Context(), q))
	shown := func(reason, used string) {
		t.Helper()
		await(ams, q, reason, func(q *v1alpha1.PlacementQuota) bool {
			return object.Ready(q.Status.Conditions).Reason == reason && q.Status.Used.String() == used
		})
	}
	shown(v1alpha1.ReasonReady, "0")
	var all []*v1alpha1.GeoVolume
	for i := range 4 {
		g := gv("lab", fmt.Sprint("v", i), func(s *v1alpha1.GeoVolumeSpec) {
			s.Replication, s.ReclaimPolicy = &v1alpha1.Replication{Copies: int32p(1)}, v1alpha1.Delete
		})
		f.ok(ams.api.Create(t.Context(), g))
		await(ams, g, "decided", func(g *v1alpha1.GeoVolume) bool {
			return is(v1alpha1.ReasonUnplaceable)(g) || is(v1alpha1.ReasonCreating)(g) && g.Status.Volume != ""
		})
		if want := i > 0; is(v1alpha1.ReasonUnplaceable)(g) != want {
			t.Fatalf("volume %d: %+v", i, g.Status)
		}
		all = append(all, g)
	}
	shown(v1alpha1.ReasonExhausted, "1Gi")
	placed := func(want int, why string) {
		t.Helper()
		for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			n := 0
			for _, g := range all {
				if v, _, err := f.reg.GetVolume(t.Context(), v1alpha1.VolumeUUID(ams.cluster(), string(g.UID))); err == nil && !v.Deleted {
					n++
				}
			}
			if n == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d volumes are placed, want %d", why, n, want)
			}
		}
	}
	f.ok(ams.api.Get(t.Context(), client.ObjectKeyFromObject(q), q))
	q.Spec.Amount = resource.MustParse("2Gi")
	f.ok(ams.api.Update(t.Context(), q))
	placed(2, "the quota was raised")
	f.ok(ams.api.Delete(t.Context(), all[0]))
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "v0"}}
	await(ams, pvc, "going", func(p *corev1.PersistentVolumeClaim) bool { return p.DeletionTimestamp != nil })
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvc.Spec.VolumeName}}
	ams.unprotect(pvc, pv)
	ams.awaitGone(all[0])
	placed(2, "a volume was deleted")
	shown(v1alpha1.ReasonExhausted, "2Gi")
	f.ok(ams.api.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	ns.Labels["team"] = "sales"
	f.ok(ams.api.Update(t.Context(), ns))
	placed(3, "the namespace has another label")
	shown(v1alpha1.ReasonReady, "0")
}

// cluster is the cluster's UID.
func (r *real) cluster() string {
	r.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
	r.ok(r.api.Get(r.t.Context(), client.ObjectKeyFromObject(ns), ns))
	return string(ns.UID)
}
