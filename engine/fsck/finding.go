// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"fmt"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
)

// Kind is what is wrong, in one word.
type Kind string

// The kinds of findings.
const (
	Unreadable Kind = "Unreadable" // metadata or data cannot be read
	Malformed  Kind = "Malformed"  // a key or value is not what this release writes (fsck-1)
	Number     Kind = "Number"     // a number may be used again (fsck-2)
	Result     Kind = "Result"     // a result without its slot (fsck-3)
	Name       Kind = "Name"       // a name leads to nothing, or to something else (fsck-4)
	Links      Kind = "Links"      // a link count (fsck-4, fsck-5)
	Parent     Kind = "Parent"     // a directory is not where its parent is (fsck-4)
	Cycle      Kind = "Cycle"      // a directory does not lead up to the root (fsck-4)
	Entries    Kind = "Entries"    // entries by name and by cookie differ, or their number (fsck-5)
	Belongings Kind = "Belongings" // something without its inode, or missing at it (fsck-6)
	Orphan     Kind = "Orphan"     // an inode is lost, or is an orphan and has names (fsck-6)
	Extents    Kind = "Extents"    // a file's extents (fsck-7)
	Block      Kind = "Block"      // an extent's block is not in the log (fsck-8)
	Quota      Kind = "Quota"      // what is used was counted wrongly (fsck-9)
	Content    Kind = "Content"    // a content of two files, or of none (fsck-10)
	Snapshot   Kind = "Snapshot"   // snapshots and what they have in common (fsck-11)
	History    Kind = "History"    // an entry of the history (fsck-12)
	Leftover   Kind = "Leftover"   // nothing needs it, and it takes room only (fsck-12)
)

// What to do about a finding.
const (
	adviceRebuild = "the metadata on this pool are damaged: have them made again from the log, or from another copy"
	adviceReport  = "all copies have this alike, since it is in the log: copy the files away that matter, and report it"
	adviceRecount = "the home can set it right by counting again, once nothing else is wrong"
	adviceHeal    = "bring back a copy or store that has the segment, or restore the file from a snapshot or another copy"
	adviceClean   = "nothing is lost: it takes some room"
)

var advice = map[Kind]string{
	Unreadable: adviceRebuild, Malformed: adviceRebuild, Quota: adviceRecount, Block: adviceHeal, Leftover: adviceClean,
}

// Advice says what to do about findings of a kind.
func (k Kind) Advice() string {
	if a := advice[k]; a != "" {
		return a
	}
	return adviceReport
}

// Finding is one thing that is wrong.
type Finding struct {
	Kind Kind `json:"kind"`
	// Path is where users see it, from the volume's root on; empty: nowhere, or it is not known.
	Path   string `json:"path,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`  // 0: it is about no inode, or not known
	Detail string `json:"detail,omitempty"` // what is there and what should be
	Advice string `json:"advice"`
	// From and To are the bytes of the file that it is about, and Block is where they are. Zero: it
	// is about no data.
	From  uint64           `json:"from,omitempty"`
	To    uint64           `json:"to,omitempty"`
	Block segment.BlockRef `json:"-"`

	snap    uint32 // the snapshot in which it is; 0: the present
	content uint64 // instead of an inode; 0: none
	below   string // a name in the directory Inode
}

// Report is what a check found.
type Report struct {
	Findings []Finding `json:"findings"`
	More     int       `json:"more"` // findings that are not listed
	// Complete: everything was looked at. What is not is told in the findings.
	Complete bool `json:"complete"`
	// Rolling: the volume is being made what it was in a snapshot.
	Rolling bool `json:"rolling"`

	Pairs     uint64 `json:"pairs"`     // keys with values, of all tables
	Inodes    uint64 `json:"inodes"`    // of the present
	Names     uint64 `json:"names"`     // of the present
	Orphans   uint64 `json:"orphans"`   // files without a name that clients may hold
	Extents   uint64 `json:"extents"`   // of the present
	Snapshots int    `json:"snapshots"` // with names; all were looked into
	Blocks    uint64 `json:"blocks"`    // that were read

	// Stored is the accounting, Recount what it should be. Counted: the recount says so for
	// certain.
	Stored  meta.Accounting `json:"stored"`
	Recount meta.Accounting `json:"recount"`
	Counted bool            `json:"counted"`
}

// Count returns how many findings there are, listed or not.
func (r *Report) Count() int { return len(r.Findings) + r.More }

// Progress is how far a check is.
type Progress struct {
	Step  string // what is being read
	Done  uint64 // how much of it
	Total uint64 // about how much there is; 0: not known
}

func (p Progress) String() string {
	if p.Total == 0 {
		return fmt.Sprintf("%s: %d", p.Step, p.Done)
	}
	return fmt.Sprintf("%s: %d of %d (%d %%)", p.Step, p.Done, p.Total, min(100, p.Done*100/p.Total))
}
