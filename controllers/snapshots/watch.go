// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"k8s.io/client-go/util/workqueue"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/mirror"
)

// Indexes that the cache of the controller's Writer has.
const (
	// ClaimIndex finds GeoVolumeContents by the claims of this cluster on them.
	ClaimIndex = "spec.claims"
	// VolumeIndex finds GeoVolumeSnapshots by their volume's UUID once that is known, else by their
	// source.
	VolumeIndex = "snapshot.volume"
)

func claimKey(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// Claims is the function of ClaimIndex.
func Claims(obj client.Object) (out []string) {
	for _, c := range obj.(*v1alpha1.GeoVolumeContent).Spec.Claims {
		out = append(out, claimKey(c.Kind, c.Namespace, c.Name))
	}
	return out
}

// Volume is the function of VolumeIndex.
func Volume(obj client.Object) []string {
	s := obj.(*v1alpha1.GeoVolumeSnapshot)
	if s.Status.Volume != "" {
		return []string{s.Status.Volume}
	}
	return []string{claimKey(string(s.Spec.Source.Kind), s.Namespace, s.Spec.Source.Name)}
}

// ofContents has GeoVolumeSnapshots reconciled that wait for a claim.
func (r *Controller) ofContents() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return r.of(ctx, Claims(obj)...)
	})
}

// ofNews has GeoVolumeSnapshots reconciled when the registry reports a change of their volumes.
func (r *Controller) ofNews() source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		news := make(chan struct{}, 1)
		var backlog mirror.Backlog
		r.Mirror.OnNews(func(n mirror.News) {
			if n.Volume == "" {
				return
			}
			backlog.Add(n)
			select {
			case news <- struct{}{}:
			default: // it is awake already
			}
		})
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-news:
				}
				for _, n := range backlog.Take() {
					for _, req := range r.of(ctx, n.Volume) {
						q.Add(req)
					}
				}
			}
		}()
		return nil
	})
}

func (r *Controller) of(ctx context.Context, keys ...string) (out []reconcile.Request) {
	for _, k := range keys {
		var list v1alpha1.GeoVolumeSnapshotList
		if r.List(ctx, &list, client.MatchingFields{VolumeIndex: k}, client.UnsafeDisableDeepCopy) != nil {
			continue // of a cache that is being stopped
		}
		for i := range list.Items {
			out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}
