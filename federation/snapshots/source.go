// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"fmt"
	"time"
)

// Source says of which snapshot of another volume a volume is made (ADR 53). The volume's home
// copies the snapshot, and nobody is served before it has all.
type Source struct {
	// Volume is the other volume's UUID, and Snapshot the name of its snapshot.
	Volume   string `json:"volume"`
	Snapshot string `json:"snapshot"`
	// Snap is the snapshot's number in handles. No other snapshot of the volume ever gets it.
	Snap uint32 `json:"snap"`
	// Time is when it was taken. Bytes and Inodes are what the volume used then.
	Time   time.Time `json:"time"`
	Bytes  uint64    `json:"bytes,omitempty"`
	Inodes uint64    `json:"inodes,omitempty"`
	// Done: the home has reported that the volume has all. Only the owner writes it.
	Done bool `json:"done,omitempty"`
}

// CloneName is the name of the snapshot that is taken for a volume which is made of another volume.
// The wish for it has the UUID of the new volume as its UID.
func CloneName(uuid string) string { return "clone-" + uuid }

// Filled is how far a volume is with what it is made of.
type Filled struct {
	// Done: the log says that the volume has all of its Source.
	Done bool `json:"done,omitempty"`
	// Bytes and Inodes are how much of it the home knows to be there.
	Bytes  uint64 `json:"bytes,omitempty"`
	Inodes uint64 `json:"inodes,omitempty"`
	// Message says why it does not go on; it is tried again.
	Message string `json:"message,omitempty"`
}

// Wrong returns what is wrong with a source; empty: nothing. A volume without one has nil.
func (s *Source) Wrong() string {
	switch {
	case s == nil:
		return ""
	case !idForm.MatchString(s.Volume):
		return fmt.Sprintf("source: volume %q is no UUID: write that of the volume that has the snapshot", s.Volume)
	case checkAny(s.Snapshot) != "":
		return fmt.Sprintf("source: snapshot %q: %s: name one of the volume", s.Snapshot, checkAny(s.Snapshot))
	case s.Snap == 0 || s.Time.IsZero():
		return "source: snap or time is missing: write what the home of the volume reports of the snapshot"
	}
	return ""
}

// Unfinished reports whether a volume with this source is still to be filled, as far as its record
// says.
func (s *Source) Unfinished() bool { return s != nil && !s.Done }

// Replaces returns why a record with the source s must not replace one with old; empty: it may.
// What a volume is made of is decided when it is made.
func (s *Source) Replaces(old *Source) string {
	if s == nil || old == nil {
		if s != old {
			return "source is put in or taken out: a volume keeps what it was made of"
		}
		return ""
	}
	is, was := *s, *old
	if was.Time.Equal(is.Time) {
		is.Time = was.Time
	}
	if is.Done = was.Done; is != was {
		return "source changes: a volume keeps what it was made of"
	}
	if old.Done && !s.Done {
		return "source is not done any more: read the record again"
	}
	return ""
}
