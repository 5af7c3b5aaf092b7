// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// How much there is in a crowd's cluster. Each organization has a site, and the first is at home.
const (
	organizations = 100
	offersOfEach  = 10
	manyTogether  = 1000 // agreements of org-000, and volumes
)

func orgName(i int) string  { return fmt.Sprintf("org-%03d", i%organizations) }
func siteName(i int) string { return fmt.Sprintf("site-%03d", i%organizations) }
func crowdID(i int) string  { return fmt.Sprintf("%08x-7a0b-4a42-9a2e-%012d", uint32(i)*2654435761, i) }

// crowd is a cluster whose organization has 1 000 agreements with 99 others, which make 990 offers,
// and knows 1 000 volumes. There is no operator: the objects are as it writes them.
func crowd(tb testing.TB) *house {
	tb.Helper()
	h := (&fed{t: tb}).cluster()
	h.organization, h.site = orgName(0), siteName(0)
	var all []client.Object
	for i := range organizations {
		all = append(all, crowdSite(i))
		for n := range offersOfEach {
			all = append(all, crowdOffer(i, n))
		}
	}
	for i := range manyTogether {
		all = append(all, crowdVolume(i), crowdAgreement(i), crowdUsage(i))
	}
	ctx, stop := context.WithCancelCause(tb.Context())
	defer stop(nil)
	var next atomic.Int64
	var work sync.WaitGroup
	for range 16 {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				full := all[i].DeepCopyObject().(client.Object)
				err := h.api.Create(ctx, all[i]) // without a status
				if err == nil {
					full.SetResourceVersion(all[i].GetResourceVersion())
					err = h.api.Status().Update(ctx, full, client.FieldOwner("weir-operator"))
				}
				if err != nil {
					stop(err)
				}
			}
		})
	}
	work.Wait()
	h.ok(context.Cause(ctx))
	h.open()
	return h
}

func crowdReady(reason, message string) []metav1.Condition {
	status := metav1.ConditionTrue
	if tone(reason) == "bad" {
		status = metav1.ConditionFalse
	}
	var out []metav1.Condition
	for _, kind := range []string{v1alpha1.ConditionReady, "Reconciling", "Stalled"} {
		out = append(out, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: 1,
			LastTransitionTime: metav1.Now()})
	}
	return out
}

func crowdSite(i int) *v1alpha1.Site {
	s := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: siteName(i)}, Spec: v1alpha1.SiteSpec{Organization: orgName(i),
		Federation: "demo", Region: "region"}}
	s.Status = v1alpha1.SiteStatus{Local: i == 0, Alive: "2/2", Capacity: new(resource.MustParse("100Ti")),
		Promised: new(resource.MustParse("37Ti")), Volumes: 30,
		Conditions: crowdReady(pick(i, "Ready", "Ready", "Degraded"), "2 of 2 gateways live")}
	for g := range 2 {
		s.Status.Gateways = append(s.Status.Gateways, v1alpha1.SiteGateway{Name: fmt.Sprintf("%s-%d", s.Name, g),
			Address: fmt.Sprintf("%s-%d.example.org:7440", s.Name, g), Alive: true})
	}
	return s
}

// crowdText is as long as people write, and for every fiftieth as long as they may, of what is
// longest in a page.
func crowdText(i int, usual string) string {
	if i%50 == 7 {
		return strings.Repeat(`"`, 1024)
	}
	return usual
}

var usualTerms = strings.Repeat("No warranty, best effort in working hours. ", 5)

func pick[T any](i int, of ...T) T { return of[i%len(of)] }

func crowdOffer(i, n int) *v1alpha1.StorageOffer {
	name := fmt.Sprintf("disks-%d", n)
	o := &v1alpha1.StorageOffer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.StorageOfferSpec{
		Kind: v1alpha1.RoomStore, Amount: resource.MustParse("100Ti"), Media: pick(n, "HDD", "NVMe", "tape"),
		Class: pick(n, v1alpha1.RoomClass("Standard"), "Fast", "Archive"), Price: crowdText(i*offersOfEach+n, "3 EUR per TiB and month"),
		Terms:  crowdText(i*offersOfEach+n, usualTerms),
		Notice: metav1.Duration{Duration: 720 * time.Hour}, Grace: metav1.Duration{Duration: 168 * time.Hour}}}
	if i > 0 {
		o.Name, o.Annotations = siteName(i)+"."+name, map[string]string{v1alpha1.MirrorAnnotation: "demo"}
	}
	o.Status = v1alpha1.StorageOfferStatus{ObservedGeneration: 1, Host: orgName(i), Name: name, Site: siteName(i),
		Free: new(resource.MustParse(fmt.Sprintf("%dTi", (i+n)%100))), Agreements: 7, ForUs: i > 0,
		Conditions: crowdReady(pick(n, "Ready", "Ready", "Exhausted"), "93Ti of 100Ti can be asked for")}
	return o
}

// crowdAgreement is one of org-000, as its host or its guest, in each state.
func crowdAgreement(i int) *v1alpha1.StorageAgreement {
	a := &v1alpha1.StorageAgreement{ObjectMeta: metav1.ObjectMeta{Name: crowdID(i),
		Annotations: map[string]string{v1alpha1.MirrorAnnotation: "demo"}}}
	s, now := &a.Status, metav1.Now()
	other := 1 + i%(organizations-1)
	*s = v1alpha1.StorageAgreementStatus{ObservedGeneration: 1, Role: v1alpha1.AgreementHost, Guest: orgName(other), Host: orgName(0),
		With: orgName(other), Site: siteName(0), Offer: "disks-1", Kind: "Store", Amount: new(resource.MustParse("10Ti")),
		Price: crowdText(i, "3 EUR per TiB and month"), Terms: crowdText(i, usualTerms),
		Purpose: "climate runs of group " + orgName(i), Until: &now, Notice: metav1.Duration{Duration: 720 * time.Hour},
		Phase: pick(i, v1alpha1.AgreementPhase("Active"), "Active", "Active", "Active", "Requested", "Ending", "Drained", "Ended",
			"Declined", "Agreed"), Ends: &now, GraceEnds: &now, Endpoint: "https://store.site.example.org:7005"}
	if i%2 == 1 {
		s.Role, s.Guest, s.Host, s.Site = v1alpha1.AgreementGuest, s.Host, s.Guest, siteName(other)
		s.Rooms = []v1alpha1.AgreementRoom{{Gateway: siteName(0) + "-0", Amount: resource.MustParse("640Gi")}}
	}
	if s.Phase == "Requested" || s.Phase == "Agreed" || s.Phase == "Drained" {
		s.Move = v1alpha1.AgreementHost
	} else if s.Phase == "Ending" {
		s.Move = v1alpha1.AgreementGuest
	}
	for _, what := range []string{"asked", "accepted", "notice by the guest"} {
		s.Said = append(s.Said, v1alpha1.AgreementStatement{At: now, Side: s.Role, What: what, Why: crowdText(i, "as agreed on"),
			By: "weir://demo/" + siteName(other) + "-operator"})
	}
	s.Conditions = append(crowdReady(string(s.Phase), crowdText(i, "until 2028-12-31 00:00 UTC")),
		metav1.Condition{Type: v1alpha1.ConditionUsable, Status: "True", Reason: string(s.Phase), Message: "until 2028-12-31 00:00 UTC",
			LastTransitionTime: now},
		metav1.Condition{Type: v1alpha1.ConditionMoveNeeded, Status: "False", Reason: string(s.Phase),
			Message: "until 2028-12-31 00:00 UTC", LastTransitionTime: now})
	for _, side := range []string{"answer/", "request/"} { // a record and its signature are as long
		s.Papers = append(s.Papers, v1alpha1.SignedPaper{Name: side + a.Name, Revision: int64(i),
			Value: strings.Repeat(`{"version":1,"record":"`+a.Name+`"}`, 25)})
	}
	return a
}

// crowdUsage has all samples that are kept.
func crowdUsage(i int) *v1alpha1.StorageUsage {
	now := time.Now()
	u := &v1alpha1.StorageUsage{ObjectMeta: metav1.ObjectMeta{Name: crowdID(i)}, Spec: v1alpha1.StorageUsageSpec{Agreement: crowdID(i)}}
	a := crowdAgreement(i).Status
	by := v1alpha1.UsageCounters{At: metav1.NewTime(now), Stored: 1 << 40, GibibyteHours: "123456.789", Written: 1 << 41, Read: 1 << 39,
		Writes: 1 << 18, Reads: 1 << 16, Deletions: 1 << 17}
	u.Status = v1alpha1.StorageUsageStatus{Guest: a.Guest, Host: a.Host, Kind: a.Kind, ByGuest: &by, ByHost: &by,
		Conditions: crowdReady("Ready", "both sides counted the same")}
	if i%20 == 0 {
		u.Status.Differs = "bytes stored: the guest counted 1099511627776, the host 1209462790553 (9.09 %)"
	}
	const days, hours = 90, 48
	for n := range days + hours {
		back := time.Duration(days+2-n)*24*time.Hour - time.Hour
		if n >= days {
			back = time.Duration(days+hours-n) * time.Hour
		}
		u.Status.History = append(u.Status.History, v1alpha1.UsageSample{At: metav1.NewTime(now.Add(-back)), Stored: int64(n) << 33,
			GibibyteHours: fmt.Sprintf("%d.125", 1000*n)})
	}
	return u
}

// crowdVolume has three copies, and a home at each site by turns.
func crowdVolume(i int) *v1alpha1.GeoVolumeContent {
	v := &v1alpha1.GeoVolumeContent{ObjectMeta: metav1.ObjectMeta{Name: crowdID(i)}, Spec: v1alpha1.GeoVolumeContentSpec{
		FederationName: fmt.Sprintf("team.data-%04d", i), Owner: v1alpha1.SiteName(siteName(i)), Size: resource.MustParse("100Gi"),
		ReclaimPolicy: v1alpha1.Retain}}
	s := &v.Status
	*s = v1alpha1.GeoVolumeContentStatus{ObservedGeneration: 1, VolumeGeneration: 1, Capacity: new(resource.MustParse("100Gi")),
		Home: v1alpha1.VolumeHome{Site: siteName(i), Gateway: siteName(i) + "-0", Epoch: 1}, Copies: "3/3", Lag: "<1s",
		Conditions: crowdReady(pick(i, "Ready", "Ready", "Ready", "Degraded"), "3 of 3 copies, at most <1s behind")}
	for n, state := range []string{"Home", "Follower", "Follower"} {
		at := siteName(i + n*(1+i/organizations))
		s.Sites = append(s.Sites, v1alpha1.SiteName(at))
		s.Replicas = append(s.Replicas, v1alpha1.Replica{Site: v1alpha1.SiteName(at), Gateway: at + "-0", State: state, Lag: "<1s"})
	}
	return v
}
