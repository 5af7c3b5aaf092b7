// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"fmt"
	"time"
)

// TrashTime is how long a deleted volume stays, if who deletes it does not say otherwise.
const TrashTime = 7 * 24 * time.Hour

// PurgeKept is how long it is remembered that a volume was purged. A gateway that slept for less
// deletes what it has of the volume when it wakes, and a registry that goes back does not bring the
// volume back.
const PurgeKept = 400 * 24 * time.Hour

// Purge says that a volume was purged: its records are gone, its data keys too, and gateways delete
// what they have of it.
type Purge struct {
	Volume string    `json:"volume"` // UUID
	Name   string    `json:"name"`   // which it had, if an earlier release wrote this: all are shown it
	At     time.Time `json:"at"`
	// Size and Sites are what was promised for it.
	Size  Bytes    `json:"size"`
	Sites []string `json:"sites"`
	// Generation of the volume's record, and Change of its control record (0: it had none), that
	// were purged. Who knows later ones knows that the volume was taken out of the trash since.
	Generation uint64 `json:"generation"`
	Change     uint64 `json:"change,omitempty"`
	// Pending are the gateways that may still have some of it. Each takes itself away, nobody adds.
	Pending []string `json:"pending,omitempty"`
}

// Validate checks the record on its own; errors wrap ErrInvalid.
func (p Purge) Validate() error {
	if err := CheckName("volume", p.Volume); err != nil {
		return err
	}
	for _, g := range p.Pending {
		if err := CheckLabel("gateway", g); err != nil {
			return err
		}
	}
	if p.At.IsZero() {
		return invalid("check", "purge", p.Volume, fmt.Sprintf("at is %v: give the time of the purge", p.At))
	}
	return nil
}

// overruled reports whether a record of the volume, either nil, shows that it is in use although p
// says that it was purged: the registry went back to when it was in the trash.
func (p Purge) overruled(v *Volume, c *Control) bool {
	return v != nil && !v.Deleted && v.Generation > p.Generation || c != nil && c.Change > p.Change
}

// PurgeAt is when gateways purge a deleted volume. If nobody said when, which older releases did
// not, it is only when a gateway first looks: that one gives the volume TrashTime from then on.
func (v Volume) PurgeAt() time.Time {
	if v.PurgeAfter.IsZero() {
		return v.DeletedAt.Add(TrashTime)
	}
	return v.PurgeAfter
}
