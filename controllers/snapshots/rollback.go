// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/view"
)

// rollTime is how long a rollback may wait for a home that begins it.
const rollTime = 10 * time.Minute

// rollback has the volume rolled back to the snapshot, once for each value of spec.rollback
// (gvs-4). What became of it is in the status: the snapshot itself is as ready as before.
func (r *Controller) rollback(ctx context.Context, s *snapshot, seen *view.Volume) error {
	value := s.Spec.Rollback
	is := s.Status.Rollback
	switch {
	case value == "":
		s.Status.Rollback = nil
		return nil
	case s.Status.Time == nil:
		return nil // another home has not told of the snapshot yet
	case is != nil && is.Value == value && is.State != string(snapshots.StatePending):
		return nil
	}
	v, told := *seen.Record, reported(seen)
	id := rollbackID(s.uid(), value)
	s.Status.Rollback = &v1alpha1.SnapshotRollback{Value: value, State: string(snapshots.StatePending)}
	is = s.Status.Rollback
	switch {
	case v.Rollback != nil && !told.Settled(*v.Rollback):
		if is.Message = "the volume's home does it"; v.Rollback.ID != id {
			is.Message = fmt.Sprintf("the volume is being rolled back to %s: this waits for that", v.Rollback.To)
		} else if told != nil && told.Rolled != nil && told.Rolled.ID == id && told.Rolled.Message != "" {
			is.Message = "the volume's home tries again: " + told.Rolled.Message
		}
		return nil
	case v.Rollback != nil && v.Rollback.ID == id:
		is.State, is.Message = string(told.Rolled.State), told.Rolled.Message
		if told.Rolled.State == snapshots.StateDone {
			is.Before = v.Rollback.Before()
		}
		v.Rollback = nil
	default:
		is.Message = "the volume's home is asked to do it"
		v.Rollback = &snapshots.Rollback{ID: id, To: s.name(), Until: r.Now().Add(rollTime).UTC()}
	}
	return r.update(ctx, seen.Revision, v)
}

// rollbackID is the same for the same object and value, and for no other.
func rollbackID(uid, value string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(uid+"/"+value)).String()
}
