// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

// FederationName is the name in the federation of a GeoVolume's volume.
func FederationName(namespace, name string) string { return namespace + "." + name }

// ClaimName names a claim to people, and in status: SITE/NAMESPACE/NAME.
func ClaimName(c federation.Claim) string { return c.Site + "/" + c.Namespace + "/" + c.Name }

// Admit tells why a claim of namespace in this cluster may not use the volume; nil: it may. Who owns a volume has to grant it, and none
// is granted by itself, with one exception: a volume that a namespace made may be used again by that namespace of its owner's cluster, so
// that what was kept when a namespace was deleted is found by the same people.
func Admit(v federation.Volume, self Self, namespace string, access v1alpha1.Access) *Verdict {
	switch {
	case v.Deleted:
		return &Verdict{v1alpha1.ReasonDeleted, fmt.Sprintf("volume %s was deleted by its owner %s at %s and is in the trash: it cannot be imported; delete this GeoVolume, or ask the owner",
			v.Name, owner(v), stamp(v.DeletedAt))}
	case v.Closing:
		return &Verdict{v1alpha1.ReasonDeleting, fmt.Sprintf("volume %s is being deleted by its owner %s: no new import begins; delete this GeoVolume, or ask the owner", v.Name, owner(v))}
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
		return &Verdict{v1alpha1.ReasonNotGranted, fmt.Sprintf("volume %s is granted to namespace %s of site %s as ReadOnly: make this GeoVolume anew with access: ReadOnly, or ask its owner %s for ReadWrite",
			v.Name, namespace, self.Site, owner(v))}
	case own:
		return &Verdict{v1alpha1.ReasonNotGranted, fmt.Sprintf("volume %s is of this cluster, but was not made by namespace %s: add %s to spec.grants of the GeoVolume that made it, or of GeoVolumeContent %s if that is gone",
			v.Name, namespace, grant, v.UUID)}
	}
	return &Verdict{v1alpha1.ReasonNotGranted, fmt.Sprintf("volume %s is not granted to namespace %s of site %s: its owner %s has to add %s to spec.grants of its GeoVolume, or of GeoVolumeContent %s if that is gone",
		v.Name, namespace, self.Site, owner(v), grant, v.UUID)}
}

// Named says what to do to who creates a volume of a name that old has. claims are those on old.
func Named(old federation.Volume, self Self, claims []federation.Claim) *Verdict {
	say := func(format string, a ...any) *Verdict {
		return &Verdict{v1alpha1.ReasonNameTaken, fmt.Sprintf("the name %s is taken: ", old.Name) + fmt.Sprintf(format, a...)}
	}
	switch {
	case old.Deleted:
		return say("volume %s, which had it, was deleted at %s and is in the trash until it is purged: choose another name", old.UUID, stamp(old.DeletedAt))
	case self.Owns(old) && len(claims) == 0:
		return say("volume %s was kept when its claim was deleted (reclaimPolicy: Retain), and no second one is made: to use it again, delete this GeoVolume and make one with spec.import.volume: %s; "+
			"for a new volume choose another name", old.UUID, old.Name)
	}
	return say("it is volume %s of %s, and no second one is made: choose another name; or if you mean that volume, have it granted there, delete this GeoVolume and make one with spec.import.volume: %s",
		old.UUID, owner(old), old.Name)
}

// Superseded says that the ownership went elsewhere.
func Superseded(v federation.Volume) *Verdict {
	return &Verdict{v1alpha1.ReasonSuperseded, fmt.Sprintf("volume %s now belongs to %s: nothing is written or deleted here any more; to go on using it, delete this object, "+
		"which deletes no data, and import the volume (spec.import.volume: %s) once its owner grants it", v.Name, owner(v), v.Name)}
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
	return &Verdict{v1alpha1.ReasonInUse, fmt.Sprintf("volume %s is deleted when nobody uses it, and is used by %s: delete those GeoVolumes; or set reclaimPolicy: Retain here to keep the volume and let go of it now",
		v, strings.Join(list, ", "))}
}

// Disposal is what becomes of a volume when its owner's object is deleted.
type Disposal int

// Disposals.
const (
	// LetGo: the object goes, and nothing else is done.
	LetGo Disposal = iota
	// Keep: the volume stays, without this object; a deletion that had begun is called off.
	Keep
	// Trash: the volume is deleted once nobody else claims it.
	Trash
	// Hold: the object stays, until a person decides.
	Hold
)

// Dispose decides what becomes of a volume. v is nil when the registry does not know it; known tells that it did once, and forget that a
// person wants the object to go all the same.
func Dispose(v *federation.Volume, self Self, reclaim v1alpha1.ReclaimPolicy, known, forget bool) Disposal {
	switch {
	case v == nil && known && !forget:
		// A registry that was restored from a backup may not know it. Without the object nobody would remember that there is data.
		return Hold
	case v == nil, v.Deleted, !self.Owns(*v):
		return LetGo
	case reclaim == v1alpha1.Delete:
		return Trash
	}
	return Keep
}

// Forgotten says what to do about a volume that the registry knew and does not know any more.
func Forgotten(volume string) *Verdict {
	return &Verdict{v1alpha1.ReasonNotFound, fmt.Sprintf("the registry has no volume %s any more, though it had: nothing is created in its place; if the registry was restored from a backup, restore a later one; "+
		"if the volume is to be forgotten, annotate this object with %s=%s and delete it", volume, v1alpha1.ForceAnnotation, volume)}
}

func owner(v federation.Volume) string {
	if v.OwnerSite == "" {
		return "organization " + v.Owner
	}
	return "site " + v.OwnerSite
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
