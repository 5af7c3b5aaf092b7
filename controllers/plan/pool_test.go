// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cachepool"
)

// TestPoolDiffers: what of a gateway's pool is not as its CachePool says is told, with the field,
// both values and a remedy.
func TestPoolDiffers(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*v1alpha1.CachePoolSpec, *Pool)
		says   []string
	}{
		{"nothing", func(*v1alpha1.CachePoolSpec, *Pool) {}, nil},
		{"a label", func(_ *v1alpha1.CachePoolSpec, p *Pool) { p.Labels = map[string]string{"tier": "nvme"} },
			[]string{`the label tier is "" here`, `has "nvme"`, "chart"}},
		{"the size", func(s *v1alpha1.CachePoolSpec, _ *Pool) { s.Size = resource.MustParse("2Gi") },
			[]string{"spec.size is 2Gi, and the gateway keeps to 1Gi", "chart"}},
		{"the directory", func(_ *v1alpha1.CachePoolSpec, p *Pool) { p.Report.Path = "/other" },
			[]string{"spec.directory is /pool", "/other"}},
		{"a dataset that is none", func(_ *v1alpha1.CachePoolSpec, p *Pool) { p.Report = cachepool.Report{Path: "/pool"} },
			[]string{"spec.zfs.dataset is tank/weir, and the gateway's is none"}},
		{"a directory that is a dataset", func(s *v1alpha1.CachePoolSpec, _ *Pool) { s.ZFS = nil },
			[]string{"spec.zfs.dataset is none, and the gateway's is tank/weir"}},
		{"no cache device", func(_ *v1alpha1.CachePoolSpec, p *Pool) { p.Report.Devices = p.Report.Devices[:3] },
			[]string{"spec.zfs.devices.cache has 1, and ZFS pool tank has 0 (none)", "zpool add tank cache DEVICE"}},
		{"a log device too many", func(s *v1alpha1.CachePoolSpec, _ *Pool) { s.ZFS.Devices.Log = nil },
			[]string{"spec.zfs.devices.log has 0, and ZFS pool tank has 1 (log0)", "zpool remove"}},
		{"the layout", func(s *v1alpha1.CachePoolSpec, _ *Pool) { s.ZFS.Devices.Layout = "" },
			[]string{"spec.zfs.devices.layout is Stripe", "is a Mirror"}},
		{"a disk that a spare stands in for", func(_ *v1alpha1.CachePoolSpec, p *Pool) {
			d := slices.Clone(p.Report.Devices)
			d[1].Group = "spare-1"
			p.Report.Devices = append(slices.Insert(d, 2, cachepool.Device{Name: "s", Class: cachepool.Data, Group: "spare-1"}),
				cachepool.Device{Name: "s", Class: cachepool.Spare},
				cachepool.Device{Name: "x", Class: cachepool.Special, Group: "mirror-3"})
		}, nil},
		{"devices that nobody names", func(s *v1alpha1.CachePoolSpec, _ *Pool) { s.ZFS.Devices = nil }, nil},
		{"zpool does not answer", func(_ *v1alpha1.CachePoolSpec, p *Pool) { p.Report.Devices = nil }, nil},
	} {
		t.Run(c.why, func(t *testing.T) {
			obj := &v1alpha1.CachePool{Spec: v1alpha1.CachePoolSpec{Size: resource.MustParse("1Gi"), Directory: "/pool", Gateway: "weir/a",
				ZFS: &v1alpha1.CachePoolZFS{Dataset: "tank/weir", Devices: &v1alpha1.CachePoolDevices{Layout: v1alpha1.LayoutMirror,
					Data: []v1alpha1.DevicePath{"/dev/a", "/dev/b"}, Log: []v1alpha1.DevicePath{"/dev/c"},
					Cache: []v1alpha1.DevicePath{"/dev/d"}}}}}
			p := Pool{Limit: 1 << 30, Report: cachepool.Report{Path: "/pool", Dataset: "tank/weir", Devices: []cachepool.Device{
				{Name: "a", Class: cachepool.Data, Group: "mirror-0"}, {Name: "b", Class: cachepool.Data, Group: "mirror-0"},
				{Name: "log0", Class: cachepool.Log}, {Name: "cache0", Class: cachepool.Cache}}}}
			c.change(&obj.Spec, &p)
			got := ShowPool(obj, p, time.Unix(1000, 0))
			if c.says == nil {
				if !got.True || got.Reason != v1alpha1.ReasonReady {
					t.Errorf("%+v", got)
				}
				return
			}
			if got.True || got.Reason != v1alpha1.ReasonDiffers {
				t.Errorf("%+v", got)
			}
			for _, want := range c.says {
				if !strings.Contains(got.Message, want) {
					t.Errorf("%q lacks %q", got.Message, want)
				}
			}
		})
	}
}

// TestReserves: volumes whose policies reserve more than a pool can keep are named, with the field
// and a remedy.
func TestReserves(t *testing.T) {
	obj := &v1alpha1.CachePool{Spec: v1alpha1.CachePoolSpec{Size: resource.MustParse("1Gi"), Directory: "/pool", Gateway: "weir/a"}}
	p := Pool{Limit: 1 << 30, Report: cachepool.Report{Path: "/pool"}, Volumes: []PoolVolume{{Name: "default.a", Reserve: 5, Asked: 5},
		{Name: "default.c", Reserve: 700 << 20, Asked: 2 << 30}, {Name: "default.b", Reserve: 0, Asked: 1 << 20}, {Name: "default.d"}}}
	told := func() *metav1.Condition {
		ShowPool(obj, p, time.Unix(1000, 0))
		return meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.ConditionReservesKept)
	}
	c := told()
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonTooMuch {
		t.Fatalf("%+v", c)
	}
	for _, want := range []string{"spec.cache.reserve of default.b (1Mi), default.c (2Gi) is more", "a pool of 1Gi", "lower it",
		"spec.size"} {
		if !strings.Contains(c.Message, want) {
			t.Errorf("%q lacks %q", c.Message, want)
		}
	}
	p.Volumes = p.Volumes[:1]
	if c = told(); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("%+v", c)
	}
}

// TestPoolHealth: Ready tells the most important of what is wrong.
func TestPoolHealth(t *testing.T) {
	well := cachepool.Condition{Type: cachepool.Healthy, Is: true}
	ill := cachepool.Condition{Type: cachepool.Healthy, Reason: "NotWell", Message: "see"}
	silent := cachepool.Condition{Type: cachepool.Healthy, Reason: "NoAnswer", Message: "it hangs"}
	full := cachepool.Condition{Type: cachepool.NearlyFull, Is: true, Message: "92%"}
	slog := cachepool.Condition{Type: cachepool.SlogMissing, Is: true, Message: "no log"}
	lossy := cachepool.Condition{Type: cachepool.NotDurable, Is: true, Message: "sync"}
	for _, c := range []struct {
		has  []cachepool.Condition
		want State
	}{
		{[]cachepool.Condition{well}, State{True: true, Reason: "Ready"}},
		{[]cachepool.Condition{well, full}, State{True: true, Reason: "Degraded", Message: "92%"}},
		{[]cachepool.Condition{ill, slog, full}, State{True: true, Reason: "Degraded", Message: "no log"}},
		{[]cachepool.Condition{ill}, State{True: true, Reason: "Degraded", Message: "see"}},
		{[]cachepool.Condition{silent, full}, State{Reason: "NoAnswer", Message: "it hangs"}},
		{[]cachepool.Condition{ill, slog, lossy}, State{Reason: "NotDurable", Message: "sync"}},
	} {
		if got := health(cachepool.Report{Conditions: c.has}); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.has, got, c.want)
		}
	}
}

// TestRounded: amounts keep at least two digits.
func TestRounded(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 10239: "10239", 10240: "10Ki", 53896806: "51Mi", 9 << 30: "9Gi",
		9<<30 + 100<<20: "9316Mi", 10<<30 + 1: "10Gi", 3 << 50: "3Pi"} {
		if got := rounded(n).String(); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
