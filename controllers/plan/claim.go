// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

// FederationName is the name in the federation of a GeoVolume's volume.
func FederationName(namespace, name string) string { return namespace + "." + name }

// ClaimName is how messages and status name a claim: SITE/NAMESPACE/NAME.
func ClaimName(c federation.Claim) string { return c.Site + "/" + c.Namespace + "/" + c.Name }

// Admit says why a claim of namespace in this cluster may not use the volume; nil: it may. The
// owner of a volume has to grant it to each namespace. One needs no grant: the namespace that made
// the volume, in the owner's cluster. So the same people find a volume again that was kept when
// their namespace was deleted.
func Admit(v federation.Volume, self Self, namespace string, access v1alpha1.Access) *Verdict {
	switch {
	case v.Deleted:
		return verdict(v1alpha1.ReasonDeleted, "volume %s was deleted by its owner %s at %s and is in the trash: "+
			"it cannot be imported; delete this GeoVolume, or ask the owner", v.Name, owner(v), stamp(v.DeletedAt))
	case v.Closing:
		return verdict(v1alpha1.ReasonDeleting, "volume %s is being deleted by its owner %s: "+
			"no new import begins; delete this GeoVolume, or ask the owner", v.Name, owner(v))
	}
	if v.IsBlind(self.Site) {
		return verdict(v1alpha1.ReasonNotGranted,
			"the copy of volume %s at site %s is blind: nobody can use it there; its owner %s has to let "+
				"it have the key first (replication.otherOrganizations, sites.blind)", v.Name, self.Site, owner(v))
	}
	made, _, _ := strings.Cut(v.Name, ".")
	own := self.Owns(v)
	if own && made == namespace && made != v.Name {
		return nil
	}
	i := slices.IndexFunc(v.Grants, func(g federation.Grant) bool { return g.Site == self.Site && g.Namespace == namespace })
	grant := fmt.Sprintf("{site: %s, namespace: %s}", self.Site, namespace)
	switch {
	case i >= 0 && (v.Grants[i].Access == federation.ReadWrite || access == v1alpha1.ReadOnly):
		return nil
	case i >= 0:
		return verdict(v1alpha1.ReasonNotGranted, "volume %s is granted to namespace %s of site %s as ReadOnly: "+
			"make this GeoVolume anew with access: ReadOnly, or ask its owner %s for ReadWrite",
			v.Name, namespace, self.Site, owner(v))
	case own:
		return verdict(v1alpha1.ReasonNotGranted, "volume %s is of this cluster, but was not made by namespace %s: "+
			"add %s to spec.grants of the GeoVolume that made it, or of GeoVolumeContent %s if that is gone",
			v.Name, namespace, grant, v.UUID)
	}
	return verdict(v1alpha1.ReasonNotGranted, "volume %s is not granted to namespace %s of site %s: "+
		"its owner %s has to add %s to spec.grants of its GeoVolume, or of GeoVolumeContent %s if that is gone",
		v.Name, namespace, self.Site, owner(v), grant, v.UUID)
}

// Named refuses a new volume because old has its name, and says what to do. claims are those on
// old.
func Named(old federation.Volume, self Self, claims []federation.Claim) *Verdict {
	say := func(format string, a ...any) *Verdict {
		return verdict(v1alpha1.ReasonNameTaken, "the name %s is taken: %s", old.Name, fmt.Sprintf(format, a...))
	}
	switch {
	case old.Deleted:
		return say("volume %s, which had it, was deleted at %s and is in the trash until it is purged, after %s: "+
			"choose another name, or wait", old.UUID, stamp(old.DeletedAt), stamp(old.PurgeAt()))
	case self.Owns(old) && len(claims) == 0:
		return say("volume %s was kept when its claim was deleted (reclaimPolicy: Retain), and no second one is made: "+
			"to use it again, delete this GeoVolume and make one with spec.import.volume: %s; "+
			"for a new volume choose another name", old.UUID, old.Name)
	}
	return say("it is volume %s of %s, and no second one is made: choose another name; or if you mean that volume, "+
		"have it granted there, delete this GeoVolume and make one with spec.import.volume: %s",
		old.UUID, owner(old), old.Name)
}

// Superseded says that another cluster became the owner, and what to do.
func Superseded(v federation.Volume) *Verdict {
	return verdict(v1alpha1.ReasonSuperseded, "volume %s now belongs to %s: nothing is written or deleted here any more; "+
		"to go on using it, delete this object, which deletes no data, "+
		"and import the volume (spec.import.volume: %s) once its owner grants it", v.Name, owner(v), v.Name)
}

// InUse names the claims that keep a volume from being deleted; nil when there are none.
func InUse(v string, claims []federation.Claim) *Verdict {
	if len(claims) == 0 {
		return nil
	}
	var list []string
	for i, c := range claims {
		if i == shownRefusals {
			list = append(list, fmt.Sprintf("and %d more", len(claims)-i))
			break
		}
		list = append(list, ClaimName(c))
	}
	return verdict(v1alpha1.ReasonInUse, "volume %s is deleted when nobody uses it, and is used by %s: "+
		"delete those GeoVolumes; or set reclaimPolicy: Retain here to keep the volume and let go of it now",
		v, strings.Join(list, ", "))
}

// Disposal is what becomes of a volume when its owner's object is deleted.
type Disposal int

// Disposals.
const (
	// LetGo: the object goes, and nothing else happens.
	LetGo Disposal = iota
	// Keep: the volume stays, without this object. A deletion that has begun is undone.
	Keep
	// Trash: the volume is deleted once nobody else claims it.
	Trash
	// Undecided: the object stays until a person decides.
	Undecided
)

// Dispose decides what becomes of a volume. v is nil when the registry does not know it. known says
// that the registry knew it once, and forget that a person wants the object to go all the same.
func Dispose(v *federation.Volume, self Self, reclaim v1alpha1.ReclaimPolicy, known, forget bool) Disposal {
	switch {
	case v == nil && known && !forget:
		// The registry may have been restored from a backup that is older than the volume. Without
		// this object nobody would know any more that there is data.
		return Undecided
	case v == nil, v.Deleted, !self.Owns(*v):
		return LetGo
	case reclaim == v1alpha1.Delete:
		return Trash
	}
	return Keep
}

// Forgotten says what to do about a volume that the registry knew once and does not know now.
func Forgotten(volume string) *Verdict {
	return verdict(v1alpha1.ReasonNotFound, "the registry has no volume %s any more, though it had: nothing is created in its place; "+
		"if the registry was restored from a backup, restore a later one; "+
		"if the volume is to be forgotten, annotate this object with %s=%s and delete it", volume, v1alpha1.ForceAnnotation, volume)
}

// Purged says that a volume is gone for good.
func Purged(p federation.Purge) *Verdict {
	return verdict(v1alpha1.ReasonDeleted, "volume %s was deleted, and purged at %s: its data is gone; delete this object",
		cmp.Or(p.Name, p.Volume), stamp(p.At))
}

func owner(v federation.Volume) string {
	if v.OwnerSite == "" {
		return "organization " + v.Owner
	}
	return "site " + v.OwnerSite
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
