// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// final maps the reasons of Ready that do not pass by themselves to codes. A call waits while Ready
// has any other reason.
var final = map[string]codes.Code{
	v1alpha1.ReasonUnplaceable:    codes.ResourceExhausted,
	v1alpha1.ReasonPolicyNotFound: codes.InvalidArgument,
	v1alpha1.ReasonInvalid:        codes.InvalidArgument,
	v1alpha1.ReasonNameTaken:      codes.AlreadyExists,
	v1alpha1.ReasonConflict:       codes.AlreadyExists,
	v1alpha1.ReasonNotOwner:       codes.FailedPrecondition,
	v1alpha1.ReasonSuperseded:     codes.FailedPrecondition,
	v1alpha1.ReasonDeleted:        codes.FailedPrecondition,
}

// settled reports whether the operator has done what the Content's spec says. The error is final:
// the operator will not do it.
func settled(v *v1alpha1.GeoVolumeContent) (bool, error) {
	r := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
	if r == nil || r.ObservedGeneration < v.Generation {
		return false, nil
	}
	if r.Status == metav1.ConditionTrue {
		return r.Reason != v1alpha1.ReasonUpdating, nil
	}
	if code, ok := final[r.Reason]; ok {
		return false, status.Errorf(code, "volume %s (%s): %s: %s", v.Spec.FederationName, v.Name, r.Reason, r.Message)
	}
	return false, nil
}

// await calls look with the Content (nil when it is gone) now and after each change, until look
// returns true or an error. It waits at most WaitLimit. The error then names the goal and says how
// far the operator came.
func (s *service) await(ctx context.Context, id, goal string, look func(*v1alpha1.GeoVolumeContent) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WaitLimit)
	defer cancel()
	// The watch begins before the Get, so that no change between them is missed.
	w, err := s.cfg.Client.Watch(ctx, &v1alpha1.GeoVolumeContentList{}, client.MatchingFields{"metadata.name": id})
	if err != nil {
		return fromAPI(err, "watch GeoVolumeContent %s", id)
	}
	defer w.Stop()
	v := new(v1alpha1.GeoVolumeContent)
	err = s.cfg.Client.Get(ctx, client.ObjectKey{Name: id}, v)
	switch {
	case apierrors.IsNotFound(err):
		v = nil
	case err != nil:
		return fromAPI(err, "get GeoVolumeContent %s", id)
	}
	last := "the operator has said nothing yet"
	for {
		if done, err := look(v); done || err != nil {
			return err
		}
		if v != nil {
			if r := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady); r != nil {
				last = r.Reason + ": " + r.Message
			}
		}
		v, err = next(ctx, w, id)
		switch {
		case ctx.Err() != nil:
			return status.Errorf(codes.DeadlineExceeded, "volume %s is not %s yet: %s", id, goal, last)
		case err != nil:
			return err
		}
	}
}

// next waits for the Content's next change. It returns nil when the Content is gone.
func next(ctx context.Context, w watch.Interface, id string) (*v1alpha1.GeoVolumeContent, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case e := <-w.ResultChan():
			v, ok := e.Object.(*v1alpha1.GeoVolumeContent)
			switch {
			case !ok: // a closed channel or an error: a server ends a watch at times
				return nil, status.Errorf(codes.Unavailable, "the API server ended the watch of GeoVolumeContent %s: ask again", id)
			case v.Name == id && e.Type == watch.Deleted:
				return nil, nil
			case v.Name == id:
				return v, nil
			}
		}
	}
}
