// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
)

func snapshotsOf(s v1alpha1.Snapshots) snapshots.Policy {
	out := snapshots.Policy{Window: span(s.Window), Directory: snapshots.Directory(s.Directory)}
	for _, x := range s.Schedule {
		out.Schedule = append(out.Schedule, snapshots.Schedule{Every: snapshots.Every(x.Every), Keep: int(x.Keep)})
	}
	return out
}

// describeSnapshots is the inverse of snapshotsOf.
func describeSnapshots(s snapshots.Policy) v1alpha1.Snapshots {
	out := v1alpha1.Snapshots{Directory: v1alpha1.SnapshotDirectory(s.Directory)}
	if s.Window > 0 {
		out.Window = &metav1.Duration{Duration: time.Duration(s.Window)}
	}
	for _, x := range s.Schedule {
		out.Schedule = append(out.Schedule, v1alpha1.SnapshotSchedule{Every: v1alpha1.SnapshotEvery(x.Every), Keep: int32(x.Keep)})
	}
	return out
}

// Snapshots is what status shows of a home's report.
func Snapshots(r *snapshots.Report) *v1alpha1.VolumeSnapshots {
	out := &v1alpha1.VolumeSnapshots{Count: int32(r.Count()), Problem: r.Failing()}
	for _, s := range slices.Backward(r.All) {
		if !s.Time.IsZero() {
			out.Newest = append(out.Newest, v1alpha1.VolumeSnapshot{Name: s.Name, Time: metav1.NewTime(s.Time.Truncate(time.Second)),
				Size: Quantity(federation.Bytes(s.Bytes))})
		}
	}
	return out
}
