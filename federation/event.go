// SPDX-License-Identifier: Apache-2.0

package federation

import "github.com/weir-storage/weir/federation/paper"

// Kind is a kind of record.
type Kind string

// Kinds, as in the keys of the package comment.
const (
	KindControl    Kind = "control"
	KindVolume     Kind = "volume"
	KindSite       Kind = "site"
	KindAlive      Kind = "alive"
	KindAdmission  Kind = "admission"
	KindKeyring    Kind = "keyring"
	KindObserved   Kind = "observed"
	KindClaim      Kind = "claim"
	KindAttachment Kind = "attachment"
	KindLost       Kind = "lost"
	KindPurged     Kind = "purged"
	KindCharter    Kind = "charter"
	KindPaper      Kind = "paper"
	// KindSynced is no record: the watch has listed all that existed.
	KindSynced Kind = "synced"
)

// Event is one change. Exactly one of the record pointers is set, that of Kind; none when Deleted,
// with KindSynced, and when Err is set.
type Event struct {
	Kind Kind
	// Name is the key behind the kind: a volume, site or gateway; "site/volume/client" for
	// admissions, "volume/gateway" for observed states, "volume/site/namespace/name" for claims,
	// "site/volume/node" for attachments, that of a paper. Empty for the charter.
	Name    string
	Deleted bool
	// Revision is the record's; of a deletion, the one that removed it, or after a compaction of
	// the new list.
	Revision Revision
	// Cluster is the registry's identity.
	Cluster uint64
	// Err: there is a record that cannot be read, for instance a newer one (ErrVersion). Treat it
	// as "unknown", never as deleted.
	Err error

	Control    *Control
	Volume     *Volume
	Site       *Site
	Alive      *Alive
	Admission  *Admission
	Keyring    *Keyring
	Observed   *Observed
	Claim      *Claim
	Attachment *Attachment
	Lost       *Lost
	Purged     *Purge
	Charter    *Charter
	Paper      *paper.Paper
	// Elsewhere is set of a volume that is there and does not concern this organization, which is
	// not shown it: Deleted is set too, and Volume is not.
	Elsewhere *Elsewhere
}

// Elsewhere is what is shown to all of a volume: what was promised for it.
type Elsewhere struct {
	Sites []string `json:"sites,omitempty"`
	Size  Bytes    `json:"size,omitempty"`
}

// Head is how far a registry is.
type Head struct {
	Cluster  uint64
	Revision Revision
}
