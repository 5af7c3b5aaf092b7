// SPDX-License-Identifier: Apache-2.0

// Package quota counts what the namespaces of a cluster have placed where, and compares it with
// PlacementQuotas (ADR 40). The planner refuses what a quota does not allow; this package tells it
// what is used, and writes the quotas' status.
//
// # Rules
//
//   - quota-1: A copy at a site and a lent store each count with the volume's size, once, by the
//     volume's record in the registry. Volumes that this cluster owns count, but for those that are
//     deleted.
//   - quota-2: What is reserved for a volume counts until its record says so, or it gives it up. Of
//     what is there and what is reserved, the larger counts.
//   - quota-3: A quota takes nothing away. It is looked at when something is placed, or grows.
//   - quota-4: When a quota may have become larger or less used, volumes that wait are looked at
//     again.
//   - quota-5: Nothing is written while nothing changes.
package quota

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/mirror"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

// Book has what volumes take, by namespace and spot. Its methods may be called from many
// goroutines.
type Book struct {
	from   *object.Writer // to read from
	mirror *mirror.Mirror
	self   plan.Self

	mu       sync.Mutex
	volumes  map[string]entry // by UUID, as they are
	reserved map[string]entry // by UUID, as they are being made
	loads    map[string]map[spot]load
	quotas   int // how many there were when somebody asked last

	// stale are volumes that may be other than in volumes. It has a lock of its own: news must not
	// wait for what mu is held for.
	news  sync.Mutex
	stale map[string]bool
}

// entry is what one volume takes.
type entry struct {
	namespace string // empty: not known
	size      federation.Bytes
	at        []spot
}

// spot names a plan.Spot. What its site is may change.
type spot struct {
	kind            v1alpha1.PlacementKind
	site, agreement string
}

// load is what the volumes of a namespace take of a spot.
type load struct {
	bytes  federation.Bytes
	copies int32
}

// NewBook makes a book of a cluster's volumes. Call it before the mirror is filled.
func NewBook(self plan.Self, m *mirror.Mirror, from *object.Writer) *Book {
	b := &Book{from: from, mirror: m, self: self, volumes: map[string]entry{}, reserved: map[string]entry{},
		loads: map[string]map[spot]load{}, stale: map[string]bool{}}
	m.OnNews(func(n mirror.News) {
		if n.Volume != "" && n.Record {
			b.Changed(n.Volume)
		}
	})
	return b
}

// Changed says that a volume's record or namespace may be another.
func (b *Book) Changed(uuid string) {
	b.news.Lock()
	defer b.news.Unlock()
	b.stale[uuid] = true
}

// Reserve keeps what a volume of a content is to take, until Release.
func (b *Book) Reserve(c *v1alpha1.GeoVolumeContent, sites, stores, agreed []string, size federation.Bytes) {
	v := federation.Volume{Sites: sites, Stores: stores, Agreed: agreed, Spec: federation.VolumeSpec{Size: size}}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserved[c.Name] = b.entry(namespaceOf(c), v)
}

// Release ends a volume's reservation, if there is one. What the mirror has of it counts. If that
// is something else, others may have waited for nothing.
func (b *Book) Release(uuid string) {
	b.Changed(uuid)
	b.mu.Lock()
	e, kept := b.reserved[uuid]
	delete(b.reserved, uuid)
	counts := kept && b.quotas > 0
	b.mu.Unlock()
	if !counts {
		return
	}
	if v := b.mirror.Volume(uuid); v == nil || v.Record == nil || !reflect.DeepEqual(e, b.entry(e.namespace, *v.Record)) {
		b.mirror.StirUnplaced()
	}
}

// Of returns the quotas that are about a content's volume, by name.
func (b *Book) Of(ctx context.Context, c *v1alpha1.GeoVolumeContent) ([]plan.Quota, error) {
	var all v1alpha1.PlacementQuotaList
	if err := b.from.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	b.Changed(c.Name) // its namespace is known by now
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.quotas = len(all.Items); b.quotas == 0 {
		return nil, nil
	}
	if err := b.freshen(ctx); err != nil {
		return nil, err
	}
	var out []plan.Quota
	namespace := namespaceOf(c)
	for i := range all.Items {
		q, err := b.read(ctx, &all.Items[i], namespace)
		if err != nil {
			return nil, err
		}
		if q.counted[namespace] {
			out = append(out, plan.Quota{Name: all.Items[i].Name, Who: q.who(namespace), Where: q.where, Amount: q.amount,
				Used: q.used(namespace, c.Name), Has: q.takes(b.volumes[c.Name])})
		}
	}
	slices.SortFunc(out, func(a, b plan.Quota) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// freshen takes in what changed. mu is held.
func (b *Book) freshen(ctx context.Context) error {
	b.news.Lock()
	stale := b.stale
	b.stale = map[string]bool{}
	b.news.Unlock()
	for uuid := range stale {
		next, err := b.look(ctx, uuid)
		if err != nil {
			b.news.Lock()
			for id := range stale { // those that were looked at are looked at again
				b.stale[id] = true
			}
			b.news.Unlock()
			return err
		}
		b.count(b.volumes[uuid], -1)
		delete(b.volumes, uuid)
		if len(next.at) > 0 {
			b.volumes[uuid] = next
			b.count(next, 1)
		}
	}
	return nil
}

// look returns what a volume takes now; without spots: it does not count (quota-1).
func (b *Book) look(ctx context.Context, uuid string) (entry, error) {
	v := b.mirror.Volume(uuid)
	if v == nil || v.Record == nil || v.Record.Deleted || !b.self.Owns(*v.Record) {
		return entry{}, nil
	}
	var c v1alpha1.GeoVolumeContent
	if err := client.IgnoreNotFound(b.from.Get(ctx, client.ObjectKey{Name: uuid}, &c)); err != nil {
		return entry{}, err
	}
	c.Spec.FederationName = v.Record.Name
	return b.entry(namespaceOf(&c), *v.Record), nil
}

// namespaceOf is the namespace of the claim that made a content's volume: of a
// PersistentVolumeClaim the CSI controller says it, and of a GeoVolume the volume's name does.
// Empty: it is not known.
func namespaceOf(c *v1alpha1.GeoVolumeContent) string {
	for _, claim := range c.Spec.Claims {
		if claim.Kind == string(federation.ClaimPVC) {
			return claim.Namespace
		}
	}
	namespace, _, made := strings.Cut(c.Spec.FederationName, ".")
	if !made {
		return ""
	}
	return namespace
}

// entry is what a volume of a namespace takes.
func (b *Book) entry(namespace string, v federation.Volume) entry {
	e := entry{namespace: namespace, size: v.Spec.Size}
	by := map[string]string{} // agreements of sites
	for _, id := range v.Agreed {
		by[b.siteOf(id)] = id
	}
	for _, s := range v.Sites {
		e.at = append(e.at, spot{v1alpha1.PlacedCopy, s, by[s]})
	}
	for _, id := range v.Stores {
		e.at = append(e.at, spot{v1alpha1.PlacedStore, b.siteOf(id), id})
	}
	return e
}

// siteOf is the site where an agreement's room is; empty: it is not known any more.
func (b *Book) siteOf(agreement string) string {
	if p, _ := b.mirror.Paper(paper.RequestName(agreement)); p.Request != nil {
		return p.Request.Site
	}
	return ""
}

// count adds an entry to the loads, or takes it away. mu is held.
func (b *Book) count(e entry, sign int32) {
	for _, s := range e.at {
		of := b.loads[e.namespace]
		if of == nil {
			of = map[spot]load{}
			b.loads[e.namespace] = of
		}
		l := of[s]
		l.bytes, l.copies = l.bytes+e.size*federation.Bytes(sign), l.copies+sign
		if of[s] = l; l.copies == 0 {
			delete(of, s)
		}
		if len(of) == 0 {
			delete(b.loads, e.namespace)
		}
	}
}

// reading is a PlacementQuota that is being compared with the book, whose lock is held.
type reading struct {
	*Book
	spec   *v1alpha1.PlacementQuotaSpec
	amount federation.Bytes
	where  plan.Where
	// counted are the namespaces whose volumes count.
	counted map[string]bool
	// problems say which fields cannot be read. They select all.
	problems []error
	// selects is what was found out of spots.
	selects map[spot]bool
}

// read reads a quota. With a namespace that is asked for, only what is about its volumes is read.
func (b *Book) read(ctx context.Context, q *v1alpha1.PlacementQuota, asked ...string) (*reading, error) {
	r := &reading{Book: b, spec: &q.Spec, amount: federation.Bytes(q.Spec.Amount.Value()), counted: map[string]bool{},
		selects: map[spot]bool{}}
	var err error
	if r.where, err = plan.NewWhere(q.Spec.Where, b.self.Organization); err != nil {
		r.problems = append(r.problems, err)
	}
	var from labels.Selector // nil: any
	if s := q.Spec.Namespaces.Selector; s != nil {
		if from, err = metav1.LabelSelectorAsSelector(s); err != nil {
			from, r.problems = nil, append(r.problems, fmt.Errorf("spec.namespaces.selector: %w: correct it", err))
		}
	}
	for _, namespace := range asked {
		if r.counted[namespace], err = r.counts(ctx, namespace, from, true); err != nil {
			return nil, err
		}
	}
	if len(asked) > 0 && (q.Spec.Per == v1alpha1.PerNamespace || !r.counted[asked[0]]) {
		return r, nil
	}
	for namespace := range b.namespaces() {
		if _, known := r.counted[namespace]; known {
			continue
		}
		if r.counted[namespace], err = r.counts(ctx, namespace, from, false); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// namespaces are those with volumes.
func (b *Book) namespaces() map[string]bool {
	out := map[string]bool{}
	for namespace := range b.loads {
		out[namespace] = true
	}
	for _, e := range b.reserved {
		out[e.namespace] = true
	}
	return out
}

// counts reports whether the volumes of a namespace count. Those whose namespace is not known count
// where all do. A namespace that is new may not be in the cache yet.
func (r *reading) counts(ctx context.Context, namespace string, from labels.Selector, isNew bool) (bool, error) {
	names := r.spec.Namespaces.Names
	switch {
	case namespace == "":
		return len(names) == 0 && r.spec.Namespaces.Selector == nil && r.spec.Per == v1alpha1.PerAll, nil
	case len(names) > 0 && !slices.Contains(names, v1alpha1.NamespaceName(namespace)):
		return false, nil
	case from == nil:
		return true, nil
	}
	var n corev1.Namespace
	err := r.from.Get(ctx, client.ObjectKey{Name: namespace}, &n)
	if isNew && apierrors.IsNotFound(err) {
		err = r.from.Reader.Get(ctx, client.ObjectKey{Name: namespace}, &n)
	}
	return from.Matches(labels.Set(n.Labels)), client.IgnoreNotFound(err)
}

// selected reports whether a spot is one where the quota counts.
func (r *reading) selected(s spot) bool {
	is, known := r.selects[s]
	if !known {
		at, _ := r.mirror.Site(s.site)
		is = r.where.Has(plan.Spot{Kind: s.kind, Agreement: s.agreement, Site: s.site, Organization: at.Organization, Region: at.Region,
			Labels: r.mirror.Labels(at)})
		r.selects[s] = is
	}
	return is
}

// takes is how much of a volume counts.
func (r *reading) takes(e entry) (sum federation.Bytes) {
	if !r.counted[e.namespace] {
		return 0
	}
	for _, s := range e.at {
		if r.selected(s) {
			sum += e.size
		}
	}
	return sum
}

// used is what volumes that count together with those of a namespace use, but for one of them, with
// what is reserved for them (quota-2).
func (r *reading) used(namespace, but string) (sum federation.Bytes) {
	together := func(other string) bool {
		return r.counted[other] && (other == namespace || r.spec.Per == v1alpha1.PerAll)
	}
	for other := range r.loads {
		if together(other) {
			sum += r.load(other).bytes
		}
	}
	sum -= r.takes(r.volumes[but])
	for uuid, e := range r.reserved {
		if uuid != but && together(e.namespace) {
			sum += max(r.takes(e)-r.takes(r.volumes[uuid]), 0)
		}
	}
	return sum
}

// load is what a namespace uses.
func (r *reading) load(namespace string) (sum load) {
	for s, l := range r.loads[namespace] {
		if r.selected(s) {
			sum.bytes, sum.copies = sum.bytes+l.bytes, sum.copies+l.copies
		}
	}
	return sum
}

// who says whose volumes count together with those of a namespace.
func (r *reading) who(namespace string) string {
	switch n := r.spec.Namespaces; {
	case r.spec.Per == v1alpha1.PerNamespace:
		return "namespace " + namespace
	case len(n.Names) == 0 && n.Selector == nil:
		return "all namespaces together"
	}
	return "the namespaces that it selects together"
}
