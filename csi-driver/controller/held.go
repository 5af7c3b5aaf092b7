// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// groupTokens is an annotation on the first object of a group whose volumes' changes are held: the
// tokens by which the snapshots are taken, in the order of the volumes, with commas between. It is
// written once, before anything is taken. So nothing is taken by a token of later, whoever goes on
// with the group (protocol-29).
const groupTokens = v1alpha1.Group + "/csi-group-tokens"

// missed reports whether a snapshot was not taken because changes were not held any more.
func missed(err error) bool {
	return status.Code(err) == codes.Aborted && strings.Contains(err.Error(), v1alpha1.ReasonMissed+": ")
}

// takeHeld waits until the changes of all volumes of a group are held, and then has the snapshots
// taken.
func (s *service) takeHeld(ctx context.Context, members []v1alpha1.GeoVolumeSnapshot) error {
	first := &members[0]
	if first.Annotations[groupTokens] == "" {
		var tokens []string
		for i := range members {
			token, err := s.heldBy(ctx, &members[i])
			if err != nil {
				return err
			}
			tokens = append(tokens, token)
		}
		if err := s.settle(ctx, first, strings.Join(tokens, ",")); err != nil {
			return err
		}
	}
	tokens := strings.Split(first.Annotations[groupTokens], ",")
	if len(tokens) != len(members) {
		return status.Errorf(codes.Internal, "GeoVolumeSnapshot %s names %d tokens for %d volumes: delete the group", snapshotID(first),
			len(tokens), len(members))
	}
	for i := range members {
		x := &members[i]
		if x.Spec.Take == tokens[i] {
			continue
		}
		was := x.DeepCopy()
		x.Spec.Take = tokens[i]
		if err := s.cfg.Client.Patch(ctx, x, client.MergeFrom(was)); err != nil {
			return fromAPI(err, "have GeoVolumeSnapshot %s taken", snapshotID(x))
		}
	}
	return nil
}

// alone lets in one call on groups of the given volumes. Of two groups with two volumes in common
// each could hold one of them, and wait for the other until both holds are over. Nothing depends on
// that but time: another process does not see it.
func (s *service) alone(volumes []string) (done func(), err error) {
	done = func() {}
	for _, v := range volumes {
		if _, there := s.groups.LoadOrStore(v, true); there {
			done()
			return nil, status.Errorf(codes.Aborted, "changes of volume %s are held for another group, or soon will be: ask again", v)
		}
		before := done
		done = func() { s.groups.Delete(v); before() }
	}
	return done, nil
}

// settle writes the tokens of a group, unless another call has. The operator may write the object's
// status at the same time.
func (s *service) settle(ctx context.Context, first *v1alpha1.GeoVolumeSnapshot, tokens string) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now := new(v1alpha1.GeoVolumeSnapshot)
		if err := s.cfg.Client.Get(ctx, client.ObjectKeyFromObject(first), now); err != nil {
			return err
		}
		if now.UID != first.UID || now.Annotations[groupTokens] != "" {
			return status.Errorf(codes.Aborted, "another call is at work on the group of snapshot %s: ask again", snapshotID(first))
		}
		was := now.DeepCopy()
		now.Annotations[groupTokens] = tokens
		err := s.cfg.Client.Patch(ctx, now, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			*first = *now
		}
		return err
	})
	if status.Code(err) == codes.Aborted {
		return err
	}
	if err != nil {
		return fromAPI(err, "write the tokens of the group of GeoVolumeSnapshot %s", snapshotID(first))
	}
	return nil
}

// heldBy waits until changes are held for a snapshot, and returns the token.
func (s *service) heldBy(ctx context.Context, x *v1alpha1.GeoVolumeSnapshot) (token string, err error) {
	err = s.awaitSnapshot(ctx, x, "ready to be taken", func(now *v1alpha1.GeoVolumeSnapshot) (bool, error) {
		if now == nil || now.UID != x.UID || now.DeletionTimestamp != nil {
			return false, status.Errorf(codes.Aborted, "snapshot %s is being deleted: ask again when it is gone", snapshotID(x))
		}
		if err := refused(now); err != nil {
			return false, err
		}
		token = now.Status.Hold
		return token != "" && now.Status.Volume == x.Labels[v1alpha1.VolumeLabel], nil
	})
	return token, err
}
