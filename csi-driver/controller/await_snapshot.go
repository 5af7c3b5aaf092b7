// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// awaitSnapshot is await for a GeoVolumeSnapshot.
func (s *service) awaitSnapshot(ctx context.Context, x *v1alpha1.GeoVolumeSnapshot, goal string,
	look func(*v1alpha1.GeoVolumeSnapshot) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WaitLimit)
	defer cancel()
	id := snapshotID(x)
	w, err := s.cfg.Client.Watch(ctx, &v1alpha1.GeoVolumeSnapshotList{}, client.InNamespace(x.Namespace),
		client.MatchingFields{"metadata.name": x.Name})
	if err != nil {
		return fromAPI(err, "watch GeoVolumeSnapshot %s", id)
	}
	defer w.Stop()
	now := new(v1alpha1.GeoVolumeSnapshot)
	err = s.cfg.Client.Get(ctx, client.ObjectKeyFromObject(x), now)
	switch {
	case apierrors.IsNotFound(err):
		now = nil
	case err != nil:
		return fromAPI(err, "get GeoVolumeSnapshot %s", id)
	}
	last := "the operator has said nothing yet"
	for {
		if done, err := look(now); done || err != nil {
			return err
		}
		if now != nil {
			if r := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady); r != nil {
				last = r.Reason + ": " + r.Message
			}
		}
		select {
		case <-ctx.Done():
			return status.Errorf(codes.DeadlineExceeded, "snapshot %s is not %s yet: %s", id, goal, last)
		case e := <-w.ResultChan():
			n, ok := e.Object.(*v1alpha1.GeoVolumeSnapshot)
			switch {
			case !ok:
				return status.Errorf(codes.Unavailable, "the API server ended the watch of GeoVolumeSnapshot %s: ask again", id)
			case n.Name != x.Name || n.Namespace != x.Namespace: // not every server knows the field
			case e.Type == watch.Deleted:
				now = nil
			default:
				now = n
			}
		}
	}
}
