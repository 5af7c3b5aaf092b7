// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/upkeep"
)

// upkeepOf sets the quota, and how copies are read again and packed.
func upkeepOf(m v1alpha1.VolumePolicySpec, s *federation.VolumeSpec) {
	if m.Quota.Files != nil {
		s.Quota.Files = *m.Quota.Files
	}
	s.Scrub = upkeep.Scrub{Every: span(m.Scrub.Every), Rate: amount(m.Scrub.Rate)}
	s.Compaction = upkeep.Compaction{Rate: amount(m.Compaction.Rate), Hours: m.Compaction.Hours}
}

// describeUpkeep is the inverse of upkeepOf.
func describeUpkeep(s federation.VolumeSpec, d *v1alpha1.VolumePolicySpec) {
	if s.Quota.Files > 0 {
		d.Quota.Files = ptr(s.Quota.Files)
	}
	if s.Scrub.Every > 0 {
		d.Scrub.Every = &metav1.Duration{Duration: time.Duration(s.Scrub.Every)}
	}
	if s.Scrub.Rate > 0 {
		d.Scrub.Rate = Quantity(s.Scrub.Rate)
	}
	if s.Compaction.Rate > 0 {
		d.Compaction.Rate = Quantity(s.Compaction.Rate)
	}
	d.Compaction.Hours = s.Compaction.Hours
}

// files is how many files there are, rounded up so that the status is not written all the time, and
// how many there may be.
func files(n uint64, q upkeep.Quota) string {
	if n == 0 {
		return ""
	}
	step := uint64(1)
	for n/step >= 1000 {
		step *= 10
	}
	shown := (n + step - 1) / step * step
	if q.Files == 0 {
		return fmt.Sprint(shown)
	}
	if n <= q.Inodes() {
		shown = min(shown, q.Inodes())
	}
	return fmt.Sprintf("%d/%d", shown, q.Files)
}

// scrubbed sets what a copy's gateway says of it.
func (s Seen) scrubbed(r *v1alpha1.Replica) {
	is := s.Scrubs[r.Gateway]
	if is == nil || r.Gateway == "" {
		return
	}
	if !is.Ended.IsZero() {
		r.Scrubbed = ptr(metav1.NewTime(is.Ended.Truncate(time.Second)))
	}
	if is.Bad() {
		r.Damaged = ptr(int32(is.Damaged + is.Findings))
	}
}

// Scrubbed sums up what is known of the copies: when each had been read again, nil if one was not
// yet, and how much is damaged, nil if nothing is.
func Scrubbed(copies []v1alpha1.Replica) (at *metav1.Time, damaged *int32) {
	all := true
	for _, r := range copies {
		if r.Damaged != nil {
			if damaged == nil {
				damaged = new(int32)
			}
			*damaged += *r.Damaged
		}
		all = all && r.Scrubbed != nil
		if all && (at == nil || r.Scrubbed.Before(at)) {
			at = r.Scrubbed
		}
	}
	if !all {
		at = nil
	}
	return at, damaged
}
