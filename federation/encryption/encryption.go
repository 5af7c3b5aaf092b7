// SPDX-License-Identifier: Apache-2.0

// Package encryption says what a volume's owner wants of its data keys, and when another one is due
// (ADR 50).
package encryption

import (
	"fmt"
	"time"

	"github.com/weir-storage/weir/federation/quantity"
)

// Policy says when data keys are replaced. The zero value asks for nothing.
type Policy struct {
	// RotateEvery is how old the newest data key gets before another one follows; 0: any age.
	RotateEvery quantity.Duration `json:"rotateEvery,omitempty"`
	// Rotation is raised by a person who wants another data key. One follows for each value that is
	// greater than all before.
	Rotation int64 `json:"rotation,omitempty"`
	// Erase is when the keys are destroyed so that old backups of the registry do not have them
	// either. "": Never.
	Erase Erase `json:"erase,omitempty"`
	// Reseal is whether what older keys sealed is sealed anew. "": Never.
	Reseal Reseal `json:"reseal,omitempty"`
	// AcceptOneSite lets a volume with one copy that has the keys be lost with one pool.
	AcceptOneSite bool `json:"acceptOneSite,omitempty"`
}

// Erase is when data keys are destroyed.
type Erase string

// When data keys are destroyed.
const (
	EraseNever   Erase = "Never"
	EraseOnPurge Erase = "OnPurge" // when the volume is purged
)

// Erasable reports whether data keys are to be sealed under a secret that can be destroyed.
func (p Policy) Erasable() bool { return p.Erase == EraseOnPurge }

// Reseal is when what older data keys sealed is sealed anew.
type Reseal string

// When what older data keys sealed is sealed anew.
const (
	ResealNever    Reseal = "Never"
	ResealRotation Reseal = "OnRotation" // when another key followed
)

// Reseals reports whether what older keys sealed is to be sealed anew (ADR 67).
func (p Policy) Reseals() bool { return p.Reseal == ResealRotation }

// Bounds of Policy.RotateEvery, but for 0.
const (
	MinRotateEvery = quantity.Duration(time.Hour)
	MaxRotateEvery = quantity.Duration(10 * 366 * 24 * time.Hour)
)

// Problems returns what is wrong with p: field, value and what to do.
func (p Policy) Problems() (out [][3]string) {
	if e := p.RotateEvery; e != 0 && (e < MinRotateEvery || e > MaxRotateEvery) {
		out = append(out, [3]string{"rotateEvery", fmt.Sprint(e), fmt.Sprintf("not from %v to %v: write a time span such as 2160h, "+
			"or leave it out for no schedule", MinRotateEvery, MaxRotateEvery)})
	}
	if p.Rotation < 0 {
		out = append(out, [3]string{"rotation", fmt.Sprint(p.Rotation), "negative: raise it by one when another data key is to follow"})
	}
	if p.Erase != "" && p.Erase != EraseNever && p.Erase != EraseOnPurge {
		out = append(out, [3]string{"erase", string(p.Erase), "write Never or OnPurge"})
	}
	if p.Reseal != "" && p.Reseal != ResealNever && p.Reseal != ResealRotation {
		out = append(out, [3]string{"reseal", string(p.Reseal), "write Never or OnRotation"})
	}
	return out
}

// ProblemsWith is Problems of a volume that keeps, if keeps is true, what has no key of it: blind
// copies, or what is in lent stores.
func (p Policy) ProblemsWith(keeps bool) (out [][3]string) {
	if out = p.Problems(); keeps && p.Reseals() {
		out = append(out, [3]string{"reseal", string(p.Reseal), "blind copies and lent stores keep what was written as it was sealed, " +
			"and have no key to seal it anew: have none of them, or write Never"})
	}
	return out
}

// Newest is what is known of a volume's newest data key.
type Newest struct {
	Number int // how many there were before
	// Since is when it followed, by the clock of the home of then. Of the first it is when the
	// volume was made; zero: that is not known.
	Since time.Time
	// Rotation is the greatest Policy.Rotation that a data key followed for.
	Rotation int64
	// Erasable: it is sealed under a secret that can be destroyed.
	Erasable bool
}

// Due says why another data key is to follow now; "": none is. A key from the future, by more than
// a period, was drawn by a clock that was wrong, and counts as old.
func (p Policy) Due(is Newest, now time.Time) string {
	age := now.Sub(is.Since)
	switch every := time.Duration(p.RotateEvery); {
	case p.Rotation > is.Rotation:
		return "its owner asks for it"
	case p.Erasable() != is.Erasable:
		return "its owner has changed what a purge destroys"
	case every > 0 && (age >= every || age <= -every):
		return "the one before is as old as its owner lets it get"
	}
	return ""
}
