// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// parts is of what the volumes consist.
type parts struct {
	copies, class, made, imports int // which are this cluster's
	foreign                      int
}

func partsOf(n int) parts {
	p := parts{class: n / 10, made: n / 50, imports: n / 50, foreign: n / 20}
	p.copies = n - p.class - p.made - p.imports
	return p
}

func (p parts) contents() int { return p.copies + p.class + p.made + p.imports }

const policy = "standard"

func gigabytes(n int) resource.Quantity { return resource.MustParse(fmt.Sprintf("%dGi", n)) }

// classContent is the i-th volume that the CSI controller asks for, as it writes it. Every second
// one has a policy.
func classContent(i int) *v1alpha1.GeoVolumeContent {
	id := uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "claim %d", i)).String()
	c := &v1alpha1.GeoVolumeContent{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1alpha1.GeoVolumeContentSpec{
		FederationName: "pvc-" + id, Owner: here, Size: gigabytes(20), ReclaimPolicy: v1alpha1.Delete,
		Claims: []v1alpha1.ClaimReference{{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: fmt.Sprintf("claim-%05d", i),
			Access: v1alpha1.ReadWrite}},
	}}
	if i%2 == 0 {
		c.Spec.Policy = policy
	}
	return c
}

// objects creates what an administrator, people and the CSI controller create.
func (r *rig) objects(p parts) error {
	ctx, copies := r.t.Context(), int32(3)
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: here, Labels: map[string]string{"tier": "research"}},
			Spec: v1alpha1.SiteSpec{Organization: organization, Region: "region-0", Federation: federationName}},
		&v1alpha1.CachePool{ObjectMeta: metav1.ObjectMeta{Name: "pool"},
			Spec: v1alpha1.CachePoolSpec{Size: gigabytes(1000), Directory: "/var/lib/weir", Gateway: "weir/" + here + "-0"}},
		&v1alpha1.VolumePolicy{ObjectMeta: metav1.ObjectMeta{Name: policy},
			Spec: v1alpha1.VolumePolicySpec{Replication: v1alpha1.Replication{Copies: &copies, Spread: v1alpha1.SpreadRegion}}},
	} {
		if err := r.api.Create(ctx, obj); err != nil {
			return err
		}
	}
	return each(ctx, p.class+p.made+p.imports, func(ctx context.Context, i int) error {
		if i < p.class {
			return r.api.Create(ctx, classContent(i))
		}
		gv := &v1alpha1.GeoVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("data-%05d", i)}}
		if i -= p.class; i < p.made {
			size := gigabytes(50)
			gv.Spec = v1alpha1.GeoVolumeSpec{Size: &size, Policy: policy, Access: v1alpha1.ReadWrite, ReclaimPolicy: v1alpha1.Retain}
		} else {
			gv.Spec = v1alpha1.GeoVolumeSpec{Import: &v1alpha1.Import{Volume: importName(i - p.made)}, Access: v1alpha1.ReadWrite,
				ReclaimPolicy: v1alpha1.Retain}
		}
		return r.api.Create(ctx, gv)
	})
}

// bind plays the controller that binds claims, until ctx ends.
func (r *rig) bind(ctx context.Context) {
	bound := map[string]bool{}
	for {
		var list corev1.PersistentVolumeClaimList
		if err := r.api.List(ctx, &list); err != nil && ctx.Err() == nil {
			r.t.Errorf("list claims: %v", err)
		}
		var todo []*corev1.PersistentVolumeClaim
		for i := range list.Items {
			if pvc := &list.Items[i]; !bound[pvc.Name] {
				todo = append(todo, pvc)
				bound[pvc.Name] = true
			}
		}
		err := each(ctx, len(todo), func(ctx context.Context, i int) error {
			todo[i].Status.Phase = corev1.ClaimBound
			return r.api.Status().Update(ctx, todo[i])
		})
		if err != nil && ctx.Err() == nil {
			r.t.Errorf("bind claims: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// settled tells whether the cluster shows all there is, as it is.
func (r *rig) settled(p parts, loads func() (map[string]int32, error)) (bool, string) {
	ctx := r.t.Context()
	rows, err := r.rows("geovolumecontents")
	r.ok(err)
	if n := rows["True"]; n != p.contents() || len(rows) > 1 {
		return false, fmt.Sprintf("GeoVolumeContents by Ready: %v, want %d that are True", rows, p.contents())
	}
	if rows, err = r.rows("geovolumes"); err != nil || rows["True"] != p.made+p.imports || len(rows) > 1 {
		return false, fmt.Sprintf("GeoVolumes by Ready: %v (%v), want %d that are True", rows, err, p.made+p.imports)
	}
	var pol v1alpha1.VolumePolicy
	r.ok(r.api.Get(ctx, client.ObjectKey{Name: policy}, &pol))
	if want := int32(p.class+1)/2 + int32(p.made); pol.Status.Volumes != want || pol.Status.UpToDate != want {
		return false, fmt.Sprintf("VolumePolicy is in force in %d of %d volumes, want %d", pol.Status.UpToDate, pol.Status.Volumes, want)
	}
	var list v1alpha1.SiteList
	r.ok(r.api.List(ctx, &list))
	shown := map[string]int32{}
	for _, s := range list.Items {
		shown[s.Name] = s.Status.Volumes
	}
	want, err := loads()
	r.ok(err)
	if !maps.Equal(shown, want) {
		return false, fmt.Sprintf("Sites have %v copies, the registry has %v", shown, want)
	}
	return r.papersSettled()
}

// rows counts the objects of a kind by their column Ready.
func (r *rig) rows(kind string) (map[string]int, error) { return r.rowsBy(kind, "Ready") }

// rowsBy counts the objects of a kind by a column, which is less to read than the objects.
func (r *rig) rowsBy(kind, by string) (map[string]int, error) {
	table, err := r.table(kind)
	if err != nil {
		return nil, err
	}
	column := -1
	for i, c := range table.ColumnDefinitions {
		if c.Name == by {
			column = i
		}
	}
	out := map[string]int{}
	for _, row := range table.Rows {
		out[fmt.Sprint(row.Cells[column])]++
	}
	return out, nil
}

// versions are the resource versions of all that the operator writes, by kind, namespace and name.
func (r *rig) versions() map[string]string {
	r.t.Helper()
	out := map[string]string{}
	weir := v1alpha1.GroupVersion
	for _, kind := range []schema.GroupVersionKind{weir.WithKind("GeoVolumeContent"), weir.WithKind("GeoVolume"), weir.WithKind("Site"),
		weir.WithKind("VolumePolicy"), weir.WithKind("CachePool"),
		weir.WithKind("StorageOffer"), weir.WithKind("StorageRequest"), weir.WithKind("StorageAgreement"), weir.WithKind("StorageUsage"),
		{Version: "v1", Kind: "PersistentVolume"}, {Version: "v1", Kind: "PersistentVolumeClaim"}} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		r.ok(r.api.List(r.t.Context(), list))
		for _, item := range list.Items {
			out[kind.Kind+" "+item.Namespace+"/"+item.Name] = item.ResourceVersion
		}
	}
	return out
}

// changed are the objects that differ, or are in only one of the two.
func changed(before, after map[string]string) []string {
	var out []string
	for k, v := range after {
		if before[k] != v {
			out = append(out, k)
		}
	}
	for k := range before {
		if _, ok := after[k]; !ok {
			out = append(out, k)
		}
	}
	return out
}
