// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/federation"
)

// Pool is what a gateway says of its pool. Amounts are in bytes.
type Pool struct {
	Incarnation       string
	Labels            map[string]string
	Limit, Used, Kept int64
	Report            cachepool.Report
	Volumes           []PoolVolume
}

// PoolVolume is what a volume takes of a pool.
type PoolVolume struct {
	Name                 string
	Log, Metadata, Cache int64
	// Reserve is what others cannot push out, of what its policy asks for.
	Reserve, Asked int64
}

const (
	// poolVolumes is how many volumes a pool's status has.
	poolVolumes = 32
	// amountsEvery is how often amounts are written that are all that changes.
	amountsEvery = 30 * time.Second
)

// ShowPool sets what a pool's status says of p, but for the condition Ready, which it returns.
func ShowPool(obj *v1alpha1.CachePool, p Pool, now time.Time) State {
	before := obj.Status.DeepCopy()
	s, r := &obj.Status, p.Report
	s.State, s.Devices = r.State, nil
	for _, d := range r.Devices {
		s.Devices = append(s.Devices, v1alpha1.CachePoolDevice{Name: d.Name, Class: string(d.Class), Group: d.Group, State: d.State,
			Errors: d.Read + d.Write + d.Checksum, Note: d.Note})
	}
	known := map[string]bool{}
	for _, c := range r.Conditions {
		known[c.Type] = true
		SetCondition(&s.Conditions, obj.Generation, now, c.Type, State{c.Is, c.Reason, c.Message})
	}
	for _, kind := range poolConditions {
		if !known[kind] { // it is not known any more
			s.Conditions = slices.DeleteFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
		}
	}
	kept := reserves(p)
	SetCondition(&s.Conditions, obj.Generation, now, v1alpha1.ConditionReservesKept, kept)
	news := !apiequality.Semantic.DeepEqual(uncounted(before), uncounted(s))
	if before.AsOf == nil || news || now.Sub(before.AsOf.Time) >= amountsEvery || now.Before(before.AsOf.Time) {
		amounts(s, p)
		s.AsOf = before.AsOf
		if !apiequality.Semantic.DeepEqual(before, s) || s.AsOf == nil {
			s.AsOf = new(metav1.NewTime(now.Truncate(time.Second)))
		}
	} else {
		s.Devices = before.Devices
		for i, c := range s.Conditions {
			if was := meta.FindStatusCondition(before.Conditions, c.Type); was != nil {
				s.Conditions[i].Message = was.Message
			}
		}
	}
	out := health(r)
	if differs := compare(obj, p); out.True && len(differs) > 0 {
		if out.Message != "" {
			differs = append([]string{out.Message}, differs...)
		}
		return State{Reason: v1alpha1.ReasonDiffers, Message: strings.Join(differs, "; ")}
	}
	return out
}

// reserves tells whether the pool can keep what policies reserve. Its message does not tell how
// much it keeps, which changes all the time.
func reserves(p Pool) State {
	var short []string
	for _, v := range p.Volumes {
		if v.Reserve < v.Asked {
			short = append(short, fmt.Sprintf("%s (%s)", v.Name, Quantity(federation.Bytes(v.Asked))))
		}
	}
	if len(short) == 0 {
		return State{True: true, Reason: v1alpha1.ReasonKept, Message: "what volumes reserve is kept for them"}
	}
	slices.Sort(short)
	return State{Reason: v1alpha1.ReasonTooMuch, Message: fmt.Sprintf("spec.cache.reserve of %s is more than can be kept of a pool of %s "+
		"beside logs and pins: lower it, or give the pool more room (spec.size, by the chart's gateway.pool.size)",
		strings.Join(short[:min(len(short), 8)], ", "), Quantity(federation.Bytes(p.Limit)))}
}

// uncounted is a status without what devices count, and without what is said of what is well.
func uncounted(s *v1alpha1.CachePoolStatus) *v1alpha1.CachePoolStatus {
	s = s.DeepCopy()
	for i := range s.Devices {
		s.Devices[i].Errors = 0
	}
	for i, c := range s.Conditions {
		if (c.Status == metav1.ConditionTrue) == (c.Type == v1alpha1.ConditionHealthy) {
			s.Conditions[i].Message = ""
		}
	}
	return s
}

// poolConditions are the types of conditions that a gateway tells.
var poolConditions = []string{v1alpha1.ConditionHealthy, v1alpha1.ConditionPoolDegraded, v1alpha1.ConditionSlogMissing,
	v1alpha1.ConditionNearlyFull, v1alpha1.ConditionNotDurable, v1alpha1.ConditionRewound}

// amounts sets what is counted.
func amounts(s *v1alpha1.CachePoolStatus, p Pool) {
	r := p.Report
	s.Limit, s.Used, s.Kept = Quantity(federation.Bytes(p.Limit)), rounded(p.Used), rounded(p.Kept)
	s.Classes, s.ARC, s.L2ARC, s.Volumes = nil, tier(r.ARC), tier(r.L2ARC), nil
	for _, u := range r.Classes {
		c := v1alpha1.CachePoolClass{Class: string(u.Class), Size: *rounded(u.Size), Used: *rounded(u.Used), Read: *rounded(int64(u.Read)),
			Written: *rounded(int64(u.Written))}
		for _, d := range s.Devices {
			if d.Class == c.Class {
				c.Devices++
				c.Errors += d.Errors
			}
		}
		s.Classes = append(s.Classes, c)
	}
	all := slices.Clone(p.Volumes)
	size := func(v PoolVolume) int64 { return v.Log + v.Metadata + v.Cache }
	slices.SortFunc(all, func(a, b PoolVolume) int { return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(a.Name, b.Name)) })
	for _, v := range all[:min(len(all), poolVolumes)] {
		s.Volumes = append(s.Volumes, v1alpha1.CachePoolVolume{Name: v.Name, Log: *rounded(v.Log), Metadata: *rounded(v.Metadata),
			Cache: *rounded(v.Cache)})
	}
}

// rounded is an amount of bytes with at least two digits, so that it says something and changes
// seldom.
func rounded(n int64) *resource.Quantity {
	unit := int64(1)
	for n >= 10<<10*unit && unit < 1<<40 {
		unit <<= 10
	}
	return Quantity(federation.Bytes((n + unit/2) / unit * unit))
}

func tier(t *cachepool.Tier) *v1alpha1.CachePoolTier {
	if t == nil {
		return nil
	}
	out := &v1alpha1.CachePoolTier{Size: *rounded(t.Size), HitRate: "-"}
	if all := t.Hits + t.Misses; all > 0 {
		out.HitRate = fmt.Sprintf("%.1f%%", 100*float64(t.Hits)/float64(all))
	}
	return out
}

// compare returns what a gateway's pool is not as its spec says: field, values and remedy.
func compare(obj *v1alpha1.CachePool, p Pool) (out []string) {
	spec := obj.Spec
	const remedy = "correct it, or upgrade the chart with the values that you want"
	if size := spec.Size.Value(); size != p.Limit {
		out = append(out, fmt.Sprintf("spec.size is %s, and the gateway keeps to %s: %s", spec.Size.String(),
			Quantity(federation.Bytes(p.Limit)), remedy))
	}
	if spec.Directory != p.Report.Path {
		out = append(out, fmt.Sprintf("spec.directory is %s, and the gateway's pool is %s: %s", spec.Directory, p.Report.Path, remedy))
	}
	for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
		if v, ok := obj.Labels[k]; !ok || v != p.Labels[k] {
			out = append(out, fmt.Sprintf("the label %s is %q here, and the gateway, which policies go by, has %q: %s", k, v, p.Labels[k],
				remedy))
		}
	}
	want := ""
	if spec.ZFS != nil {
		want = spec.ZFS.Dataset
	}
	if has := p.Report.Dataset; want != has {
		text := func(s string) string {
			if s == "" {
				return "none"
			}
			return s
		}
		out = append(out, fmt.Sprintf("spec.zfs.dataset is %s, and the gateway's is %s: %s", text(want), text(has), remedy))
	}
	if spec.ZFS == nil || spec.ZFS.Devices == nil || len(p.Report.Devices) == 0 {
		return out
	}
	return append(out, compareDevices(want, spec.ZFS.Devices, p.Report.Devices)...)
}

// compareDevices compares the devices that a spec names with those that a ZFS pool has.
func compareDevices(dataset string, d *v1alpha1.CachePoolDevices, has []cachepool.Device) (out []string) {
	pool, _, _ := strings.Cut(dataset, "/")
	layout, replaced, last := v1alpha1.LayoutStripe, false, ""
	there := map[cachepool.Class][]string{}
	for _, v := range has {
		same := v.Group == last
		last = v.Group
		if strings.HasPrefix(v.Group, "spare-") || strings.HasPrefix(v.Group, "replacing-") { // several in one place
			replaced = true
			if same {
				continue
			}
		}
		there[v.Class] = append(there[v.Class], v.Name)
		if l, ok := layoutOf(v.Group); ok && v.Class == cachepool.Data {
			layout = l
		}
	}
	for _, c := range []struct {
		field string
		class cachepool.Class
		want  []v1alpha1.DevicePath
		add   string
	}{{"data", cachepool.Data, d.Data, ""}, {"log", cachepool.Log, d.Log, "log "}, {"cache", cachepool.Cache, d.Cache, "cache "}} {
		if len(c.want) == len(there[c.class]) {
			continue
		}
		names := "none"
		if list := there[c.class]; len(list) > 0 {
			names = strings.Join(list, ", ")
		}
		remedy := "correct it, or take one out by `zpool remove`"
		if len(c.want) > len(there[c.class]) {
			remedy = fmt.Sprintf("correct it, or add what is missing by `zpool add %s %sDEVICE`", pool, c.add)
		}
		out = append(out, fmt.Sprintf("spec.zfs.devices.%s has %d, and ZFS pool %s has %d (%s): %s", c.field, len(c.want), pool,
			len(there[c.class]), names, remedy))
	}
	want := cmp.Or(d.Layout, v1alpha1.LayoutStripe)
	if want != layout && (layout != v1alpha1.LayoutStripe || !replaced) {
		out = append(out, fmt.Sprintf("spec.zfs.devices.layout is %s, and ZFS pool %s is a %s, which does not change: correct it, or make "+
			"another pool", want, pool, layout))
	}
	return out
}

// layoutOf returns the layout of a group of devices, such as mirror-0, raidz1 or raidz2-0; false:
// the group has none.
func layoutOf(group string) (v1alpha1.Layout, bool) {
	for _, l := range []struct {
		prefix string
		layout v1alpha1.Layout
	}{{"mirror", v1alpha1.LayoutMirror}, {"raidz3", v1alpha1.LayoutRaidz3}, {"raidz2", v1alpha1.LayoutRaidz2},
		{"raidz", v1alpha1.LayoutRaidz}} {
		if strings.HasPrefix(group, l.prefix) {
			return l.layout, true
		}
	}
	return "", false
}

// health sums a report up. What Healthy says is in the other conditions too, if there are any.
func health(r cachepool.Report) State {
	out := State{True: true, Reason: v1alpha1.ReasonReady}
	said := ""
	for _, c := range r.Conditions {
		switch {
		case c.Well():
			continue
		case c.Type == cachepool.NotDurable: // worse than all else
			return State{Reason: v1alpha1.ReasonNotDurable, Message: c.Message}
		case c.Reason == v1alpha1.ReasonNoAnswer:
			out = State{Reason: v1alpha1.ReasonNoAnswer, Message: c.Message}
		case out.True && (said == "" || said == cachepool.Healthy):
			out = State{True: true, Reason: v1alpha1.ReasonDegraded, Message: c.Message}
			said = c.Type
		}
	}
	return out
}
