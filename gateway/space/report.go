// SPDX-License-Identifier: Apache-2.0

package space

// Kind is what bytes in a store are for.
type Kind string

// The kinds, in the order of reports.
const (
	Live        Kind = "live"        // blocks of the present
	Snapshots   Kind = "snapshots"   // blocks of the history only
	Dead        Kind = "dead"        // the rest of segments before the newest checkpoint
	Log         Kind = "log"         // the rest of segments after it, and pieces of the last one
	Moved       Kind = "moved"       // segments whose live blocks are in packs, and that are to be dropped
	Condemned   Kind = "condemned"   // other segments, and packs, that are to be dropped
	Checkpoints Kind = "checkpoints" // objects of the two newest, and of one that is being made
	Uncounted   Kind = "uncounted"   // segments, at a gateway that has no key: it can not tell
	Orphans     Kind = "orphans"     // what is in the volume's folder and nobody knows
)

var kinds = []Kind{Live, Snapshots, Dead, Log, Moved, Condemned, Checkpoints, Uncounted, Orphans}

// Report is what a volume takes, as one gateway counts it that has a copy. `weir df` shows it.
type Report struct {
	Volume  string `json:"volume"`
	UUID    string `json:"uuid"`
	Gateway string `json:"gateway"`
	Site    string `json:"site"`
	Blind   bool   `json:"blind,omitempty"` // the copy holds ciphertext only
	Store   *Store `json:"store,omitempty"` // nil: the site has none
	Pool    Pool   `json:"pool"`
	Held    *Held  `json:"held,omitempty"` // nil: nobody can tell here
	Keys    []Key  `json:"keys,omitempty"` // in order; none: nobody can tell here
}

// Key is what of files and snapshots a data key has sealed, but for what is in the last segment. A
// data key that seals nothing of them has none.
type Key struct {
	Number uint32 `json:"number"`
	Bytes  uint64 `json:"bytes"` // sealed
	Newest bool   `json:"newest,omitempty"`
}

// Held is what clients see of a volume's room, as df of files and inodes.
type Held struct {
	Bytes uint64 `json:"bytes"` // of files
	Size  uint64 `json:"size"`  // the most that they may be
	Files uint64 `json:"files"` // inodes, with the root
	// MaxFiles is the most that there may be.
	MaxFiles uint64 `json:"maxFiles"`
}

// Store is what the site's store has of a volume.
type Store struct {
	Amount        // all that it lists
	Parts  []Part `json:"parts"`          // one for each kind
	Packs  Amount `json:"packs,omitzero"` // packs, which are in the parts too
	// Waiting is of the log, and not in the store yet: sealed segments that wait, and the last one,
	// which still grows.
	Waiting Amount `json:"waiting"`
	// Checkpoint is the number of the newest checkpoint that is committed; 0: there is none, and
	// all segments are after it.
	Checkpoint uint64   `json:"checkpoint"`
	Strays     []string `json:"strays,omitempty"` // names of orphans, the first few
	// Differs says what is not as the volume's log says; empty: all is.
	Differs []string `json:"differs,omitempty"`
}

// Amount is an amount of objects.
type Amount struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// Part is the objects of a kind.
type Part struct {
	Kind Kind `json:"kind"`
	Amount
}

// Pool is what the volume takes of the gateway's pool, in bytes.
type Pool struct {
	Log      int64 `json:"log"`
	Metadata int64 `json:"metadata"`
	// Lacking is of the log's past, and neither on the pool nor in the store: it is being fetched.
	Lacking int64 `json:"lacking,omitempty"`
}

// Of returns the amount of a kind.
func (s *Store) Of(k Kind) (a Amount) {
	for _, p := range s.Parts {
		if p.Kind == k {
			a = p.Amount
		}
	}
	return a
}
