// SPDX-License-Identifier: Apache-2.0

package checking

import (
	"github.com/weir-storage/weir/engine/fsck"
)

// Place is where something is damaged.
type Place string

// The places.
const (
	Pool     Place = "pool"     // a segment's file on the gateway's pool
	Store    Place = "store"    // an object in the site's store
	Metadata Place = "metadata" // the copy's metadata on the pool
	Nowhere  Place = "nowhere"  // no place that was asked has it whole: it is lost
)

// Kinds of damage besides those of package engine/fsck: of a segment as a whole, of a pack, and of
// a checkpoint in a store.
const (
	KindSegment    fsck.Kind = "Segment"
	KindPack       fsck.Kind = "Pack"
	KindCheckpoint fsck.Kind = "Checkpoint"
)

// Damage is one thing that is wrong.
type Damage struct {
	Where Place     `json:"where"`
	Kind  fsck.Kind `json:"kind"`
	// Path is where users see it, from the volume's root on; empty: nowhere, or it is not known.
	Path  string `json:"path,omitempty"`
	Inode uint64 `json:"inode,omitempty"`
	// From and To are the bytes of the file [From, To) that it is about; To is 0: none.
	From    uint64 `json:"from,omitempty"`
	To      uint64 `json:"to,omitempty"`
	Segment uint64 `json:"segment,omitempty"` // number of the segment; 0: it is about none
	Detail  string `json:"detail"`
	Advice  string `json:"advice,omitempty"` // what to do about it; empty: it is repaired
	// Repaired: it is right again.
	Repaired bool `json:"repaired"`
}

// Report is what a check of one copy found.
type Report struct {
	Volume  string `json:"volume"`
	UUID    string `json:"uuid"`
	Gateway string `json:"gateway,omitempty"` // empty: no gateway had the copy open
	Site    string `json:"site,omitempty"`
	Home    bool   `json:"home"`            // the gateway was the volume's home
	Blind   bool   `json:"blind,omitempty"` // the copy holds ciphertext only: no metadata were checked
	Data    bool   `json:"data"`            // all data were read
	Repair  bool   `json:"repair"`

	Damage []Damage `json:"damage"`
	More   int      `json:"more,omitempty"` // of the metadata, that are not listed
	// Complete: everything was looked at that was to be.
	Complete bool `json:"complete"`

	Segments int    `json:"segments"`        // closed ones that were looked at
	Bytes    uint64 `json:"bytes"`           // that were read of them, and of packs
	Objects  int    `json:"objects"`         // segments that are to be in the store
	Packs    int    `json:"packs,omitempty"` // those that count, which were looked at in the store
	Unopened int    `json:"unopened"`        // segments whose key is not known here: they were hashed only
	Lacking  int    `json:"lacking"`         // segments that the copy lacks, and that are fetched from others
	// Metadata has the counts of their check, and no findings; nil: they were not checked.
	Metadata *fsck.Report `json:"metadata,omitempty"`
}

// Left returns how many things are wrong still.
func (r *Report) Left() int {
	n := r.More
	for i := range r.Damage {
		if !r.Damage[i].Repaired {
			n++
		}
	}
	return n
}

// Repaired returns how many things were wrong and are right again.
func (r *Report) Repaired() int { return len(r.Damage) + r.More - r.Left() }

// Lost returns how many bytes of files, snapshots included, no place that was asked has.
func (r *Report) Lost() (n uint64) {
	for i := range r.Damage {
		if d := &r.Damage[i]; d.Where == Nowhere && !d.Repaired {
			n += d.To - d.From
		}
	}
	return n
}

// add notes what is wrong. Bytes of a file that follow on those before are one thing with them.
func (r *Report) add(d Damage) {
	if n := len(r.Damage); n > 0 && d.To > 0 {
		last := &r.Damage[n-1]
		if last.Where == d.Where && last.Kind == d.Kind && last.Path == d.Path && last.Inode == d.Inode && last.Segment == d.Segment &&
			last.Repaired == d.Repaired && last.To == d.From {
			last.To = d.To
			return
		}
	}
	r.Damage = append(r.Damage, d)
}

// Progress is how far a check is.
type Progress struct {
	Step  string // what is being done
	Done  uint64
	Total uint64 // about how much there is; 0: not known
	Bytes bool   // Done and Total are bytes
}
