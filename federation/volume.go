// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/users"
)

// Volume is a volume's desired state. Only its owner writes it.
type Volume struct {
	UUID string `json:"uuid"`
	// Name is unique in the federation (CheckVolumeName) and never changes. A deleted volume keeps
	// it until it is purged.
	Name string `json:"name"`
	// Owner is the organization that may change this record.
	Owner string `json:"owner"`
	// OwnerSite and OwnerCluster (its UID) are the cluster of Owner whose operator alone writes
	// this record; both empty for a volume of the command line, whose writer is a person of Owner.
	OwnerSite    string `json:"ownerSite,omitempty"`
	OwnerCluster string `json:"ownerCluster,omitempty"`
	// Grants let others claim it.
	Grants []Grant `json:"grants,omitempty"`
	// Clients says, by site, who the users of clients there are; of other sites Spec.Clients does.
	Clients map[string]users.Policy `json:"clients,omitempty"`
	// Generation grows with every change of Spec, Sites, Stores or Agreed. Observed state refers to
	// it.
	Generation uint64     `json:"generation"`
	Spec       VolumeSpec `json:"spec"`
	// Sites were chosen to have a copy (spec.Place); the first, not blind, is where it starts.
	Sites []string `json:"sites"`
	// Blind are those of Sites whose copies hold ciphertext only, and get no key (protocol-28).
	Blind []string `json:"blind,omitempty"`
	// Stores are the agreements in whose lent stores its sealed segments are (protocol-10).
	Stores []string `json:"stores,omitempty"`
	// Agreed are the agreements by which sites of others have copies, which do not lend otherwise.
	Agreed []string `json:"agreed,omitempty"`
	// Former had copies and are to have none: they go on being shown the volume, to see that.
	// UpdateVolume writes it.
	Former []string `json:"former,omitempty"`
	// Snapshots were asked for, or are to be dropped. They do not count for Generation.
	Snapshots []snapshots.Wish `json:"snapshots,omitempty"`
	// Rollback is asked for; nil: none is. It does not count for Generation either.
	Rollback *snapshots.Rollback `json:"rollback,omitempty"`
	// Source is what it is made of; nil: nothing. It does not count for Generation either.
	Source    *snapshots.Source `json:"source,omitempty"`
	CreatedAt time.Time         `json:"createdAt,omitzero"`
	// Closing: the owner wants to delete it, and lists the claims after it has written this.
	// Whoever adds a claim reads this record afterwards.
	Closing bool `json:"closing,omitempty"`
	// Deleted: in the trash since DeletedAt. Gateways stop serving it; data stays until it is
	// purged, which gateways do after PurgeAfter (zero: see PurgeAt).
	Deleted    bool      `json:"deleted,omitempty"`
	DeletedAt  time.Time `json:"deletedAt,omitzero"`
	PurgeAfter time.Time `json:"purgeAfter,omitzero"`
}

// Validate checks the record on its own; errors wrap ErrInvalid.
func (v Volume) Validate() error {
	if err := CheckName("volume", v.UUID); err != nil {
		return err
	}
	if err := CheckVolumeName(v.Name); err != nil {
		return err
	}
	if (v.OwnerSite == "") != (v.OwnerCluster == "") {
		return invalid("check", "volume", v.Name, fmt.Sprintf("ownerSite is %q and ownerCluster %q: give both or none", v.OwnerSite,
			v.OwnerCluster))
	}
	for _, g := range v.Grants {
		if err := g.Validate(); err != nil {
			return err
		}
	}
	if wrong := cmp.Or(users.Wrong(v.Spec.Clients, v.Clients), snapshots.Wrong(v.Snapshots), v.Rollback.Wrong(),
		v.Source.Wrong()); wrong != "" {
		return invalid("check", "volume", v.Name, wrong)
	}
	for _, s := range slices.AppendSeq(slices.Clone(v.Sites), maps.Keys(v.Clients)) {
		if err := CheckLabel("site", s); err != nil {
			return err
		}
	}
	all := slices.Concat(v.Stores, v.Agreed)
	for i, id := range all {
		if err := CheckName("agreement", id); err != nil || slices.Contains(all[:i], id) {
			return cmp.Or(err, invalid("check", "volume", v.Name, "agreement "+id+" is there twice: name each once"))
		}
	}
	return v.checkBlind()
}

// checkBlind: the first copy has the key, and a site whose copy has none serves no client.
func (v Volume) checkBlind() error {
	for i, s := range v.Blind {
		switch {
		case slices.Index(v.Sites, s) < 1 || slices.Contains(v.Blind[:i], s): // none, or the first, which has the key
			return invalid("check", "volume", v.Name, "blind: "+s+" is none of its sites after the first, or is there twice")
		case slices.ContainsFunc(v.Grants, func(g Grant) bool { return g.Site == s }):
			return invalid("check", "volume", v.Name, "grants: the copy at site "+s+" is blind and serves nobody: take the grant back")
		}
	}
	return nil
}

// IsBlind reports whether a site's copy is to hold ciphertext only.
func (v Volume) IsBlind(site string) bool { return slices.Contains(v.Blind, site) }

// CheckUpdate checks that next may replace prev; errors wrap ErrInvalid.
func CheckUpdate(prev, next Volume) error {
	if err := next.Validate(); err != nil {
		return err
	}
	bad := func(format string, a ...any) error {
		return invalid("update", "volume", prev.Name, fmt.Sprintf(format, a...))
	}
	changed := !reflect.DeepEqual([]any{prev.Spec, prev.Sites, prev.Blind, prev.Stores, prev.Agreed},
		[]any{next.Spec, next.Sites, next.Blind, next.Stores, next.Agreed})
	switch {
	case next.UUID != prev.UUID:
		return bad("uuid changes from %s to %s: it is the volume's identity", prev.UUID, next.UUID)
	case next.Name != prev.Name:
		return bad("name changes to %s: a volume keeps its name; clone it to have another", next.Name)
	case next.Source.Replaces(prev.Source) != "":
		return bad("%s", next.Source.Replaces(prev.Source))
	case next.Generation < prev.Generation:
		return bad("generation goes back from %d to %d: read the record again", prev.Generation, next.Generation)
	case changed && next.Generation == prev.Generation:
		return bad("spec, sites or stores change in generation %d: raise the generation", prev.Generation)
	}
	return nil
}

// ClientsAt says who the users of a site's clients are to the volume.
func (v Volume) ClientsAt(site string) users.Policy {
	if c, ok := v.Clients[site]; ok {
		return c
	}
	return v.Spec.Clients
}
