// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/controllers/plan"
)

// says is what a gateway says of a pool of ZFS that is well.
func says() plan.Pool {
	return plan.Pool{Incarnation: "1", Limit: 1 << 30, Used: 300<<20 + 17, Kept: 100 << 20,
		Report: cachepool.Report{Path: "/pool", Dataset: "tank/weir", State: "ONLINE",
			Devices: []cachepool.Device{{Name: "sda", Class: cachepool.Data, Group: "mirror-0", State: "ONLINE"},
				{Name: "sdb", Class: cachepool.Data, Group: "mirror-0", State: "ONLINE"},
				{Name: "nvme0n1", Class: cachepool.Log, State: "ONLINE"},
				{Name: "nvme1n1", Class: cachepool.Cache, State: "ONLINE", Read: 2}},
			Classes: []cachepool.ClassUse{{Class: cachepool.Data, Size: 4 << 30, Used: 400 << 20, Read: 5 << 20, Written: 6 << 30},
				{Class: cachepool.Log, Size: 1 << 30, Used: 1 << 20, Written: 77 << 20},
				{Class: cachepool.Cache, Size: 2 << 30, Used: 1 << 30}},
			ARC: &cachepool.Tier{Size: 64 << 20, Hits: 975, Misses: 25}, L2ARC: &cachepool.Tier{Size: 1 << 30},
			Conditions: []cachepool.Condition{{Type: cachepool.Healthy, Is: true, Reason: "Online"},
				{Type: cachepool.SlogMissing, Reason: "Well"}, {Type: cachepool.Degraded, Reason: "Well"}}},
		Volumes: []plan.PoolVolume{{Name: "small", Log: 1 << 20}, {Name: "large", Log: 100 << 20, Metadata: 2 << 20, Cache: 100 << 20}}}
}

func zfsPool(name string) *v1alpha1.CachePool {
	return &v1alpha1.CachePool{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.CachePoolSpec{Size: resource.MustParse("1Gi"), Directory: "/pool", Gateway: "weir/ams-1",
			ZFS: &v1alpha1.CachePoolZFS{Dataset: "tank/weir", Devices: &v1alpha1.CachePoolDevices{Layout: v1alpha1.LayoutMirror,
				Data: []v1alpha1.DevicePath{"/dev/a", "/dev/b"}, Log: []v1alpha1.DevicePath{"/dev/c"},
				Cache: []v1alpha1.DevicePath{"/dev/d"}}}}}
}

// A pool's status is what its gateway says, as long as it says something.
func TestCachePool(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	ams := f.cluster("ams")
	p, wrong := zfsPool("pool"), zfsPool("wrong")
	wrong.Spec.Gateway = "weir/utr-1"
	ams.create(p)
	ams.create(wrong)
	settleAll(ams)
	ams.get(wrong)
	ams.ready(wrong, metav1.ConditionFalse, v1alpha1.ReasonNoGateway, "gateway utr-1 has not registered at site ams")
	ams.get(p)
	ams.ready(p, metav1.ConditionFalse, v1alpha1.ReasonNoAnswer, "gateway ams-1 is alive, and does not say", "no answer")

	ams.pools = map[string]plan.Pool{"ams-1": says()}
	settleAll(ams)
	ams.get(p)
	ams.ready(p, metav1.ConditionTrue, v1alpha1.ReasonReady, "gateway ams-1 is alive on it")
	s := p.Status
	if s.State != "ONLINE" || s.Limit.String() != "1Gi" || s.Used.String() != "300Mi" || len(s.Devices) != 4 || len(s.Classes) != 3 ||
		s.Classes[0].Devices != 2 || s.Classes[1].Written.String() != "77Mi" || s.Classes[2].Errors != 2 || s.ARC.HitRate != "97.5%" ||
		s.L2ARC.HitRate != "-" || len(s.Volumes) != 2 || s.Volumes[0].Name != "large" || s.Incarnation != "1" || s.AsOf == nil {
		t.Errorf("status %+v", s)
	}

	// Amounts alone are written seldom. What is wrong is written at once.
	writes := func() int { return strings.Count(strings.Join(ams.writes, " "), "CachePool") }
	busy := says()
	busy.Used += 200 << 20
	ams.pools["ams-1"] = busy
	busy.Report.Devices[3].Write = 1000
	before := writes()
	settleAll(ams)
	if n := writes(); n != before {
		t.Errorf("%d writes for amounts: %v", n-before, ams.writes)
	}
	f.advance(31 * time.Second)
	settleAll(ams)
	ams.get(p)
	if p.Status.Used.String() != "500Mi" || writes() != before+1 {
		t.Errorf("half a minute later %s are used, after %d writes", p.Status.Used, writes()-before)
	}
	ill := busy
	ill.Used += 100 << 20
	ill.Report.Conditions = []cachepool.Condition{{Type: cachepool.Healthy, Reason: "NotWell", Message: "see `zpool status`"},
		{Type: cachepool.SlogMissing, Is: true, Reason: "LogLost", Message: "nvme0n1 is gone"}}
	ams.pools["ams-1"] = ill
	settleAll(ams)
	ams.get(p)
	ams.ready(p, metav1.ConditionTrue, v1alpha1.ReasonDegraded, "nvme0n1 is gone")
	if c := conditionOf(p.Status.Conditions, v1alpha1.ConditionSlogMissing); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("SlogMissing is %+v", c)
	}
	if c := conditionOf(p.Status.Conditions, v1alpha1.ConditionPoolDegraded); c != nil {
		t.Errorf("what is not known any more is %+v", c)
	}
	if p.Status.Used.String() != "600Mi" {
		t.Errorf("with the news %s are used", p.Status.Used)
	}

	// Another pool of the same gateway is its own.
	fast := zfsPool("fast")
	fast.Spec.Name, fast.Labels = "fast", map[string]string{"tier": "nvme"}
	ams.create(fast)
	settleAll(ams)
	ams.get(fast)
	ams.ready(fast, metav1.ConditionFalse, v1alpha1.ReasonNoAnswer, "no answer")
	other := says()
	other.Incarnation, other.Labels, other.Used = "2", map[string]string{"tier": "nvme"}, 0
	ams.pools["ams-1/fast"] = other
	settleAll(ams)
	ams.get(fast)
	ams.ready(fast, metav1.ConditionTrue, v1alpha1.ReasonReady, "gateway ams-1 is alive on it")
	if fast.Status.Incarnation != "2" || fast.Status.Used.Value() != 0 {
		t.Errorf("status of the other pool %+v", fast.Status)
	}

	// A gateway that is slow to answer once is no news. One that gives no answer is.
	delete(ams.pools, "ams-1")
	settleAll(ams)
	ams.get(p)
	ams.ready(p, metav1.ConditionTrue, v1alpha1.ReasonDegraded, "nvme0n1 is gone")
	f.advance(silentFor)
	settleAll(ams)
	ams.get(p)
	ams.ready(p, metav1.ConditionFalse, v1alpha1.ReasonNoAnswer)
	f.server.Expire("ams-1")
	settleAll(ams)
	ams.get(p)
	ams.ready(p, metav1.ConditionFalse, v1alpha1.ReasonNoGateway)
}

// A gateway that is not reached is written down once, however each try ends, also by an operator
// that has started anew. What a gateway says is shown.
func TestCachePoolSilent(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	ams := f.cluster("ams")
	n := 0
	ams.deaf = func() error {
		n++
		return fmt.Errorf("%w: read udp 10.0.0.1:%d->10.0.0.10:53: i/o timeout", ErrSilent, 40000+n)
	}
	p := zfsPool("pool")
	ams.create(p)
	writes := func() int { return strings.Count(strings.Join(ams.writes, " "), "CachePool") }
	for round := range 4 {
		if round == 2 { // what an operator that is started anew knows
			ams.recs["CachePool"] = &pools{operator: ams.op}
		}
		settleAll(ams)
		f.advance(silentFor)
	}
	ams.get(p)
	ams.ready(p, metav1.ConditionFalse, v1alpha1.ReasonNoAnswer,
		"gateway ams-1 is alive, and does not say how its pool is: "+ErrSilent.Error()+":")
	if writes() != 1 || n < 4 {
		t.Errorf("%d writes after %d tries: %v", writes(), n, ams.writes)
	}
	ams.deaf = func() error { return errors.New("you are of another organization") }
	settleAll(ams)
	ams.get(p)
	ams.ready(p, metav1.ConditionFalse, v1alpha1.ReasonNoAnswer, "you are of another organization")

	// So it is once a pool was known.
	ams.pools = map[string]plan.Pool{"ams-1": says()}
	settleAll(ams)
	ams.get(p)
	ams.ready(p, metav1.ConditionTrue, v1alpha1.ReasonReady)
	delete(ams.pools, "ams-1")
	before := writes()
	ams.deaf = func() error { n++; return fmt.Errorf("%w: try %d", ErrSilent, n) }
	for range 8 {
		f.advance(askEvery)
		settleAll(ams)
	}
	ams.get(p)
	ams.ready(p, metav1.ConditionFalse, v1alpha1.ReasonNoAnswer, ErrSilent.Error())
	if writes() != before+1 {
		t.Errorf("%d writes since: %v", writes()-before, ams.writes)
	}
}
