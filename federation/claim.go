// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"fmt"
	"time"
)

// Grant lets a namespace of a site's cluster claim a volume.
type Grant struct {
	Site      string `json:"site"`
	Namespace string `json:"namespace"`
	Access    Access `json:"access"`
}

// Validate checks the record; errors wrap ErrInvalid.
func (g Grant) Validate() error {
	if err := CheckLabel("site", g.Site); err != nil {
		return err
	}
	if err := CheckLabel("namespace", g.Namespace); err != nil {
		return err
	}
	return checkAccess("grant", g.Site+"/"+g.Namespace, g.Access)
}

// ClaimKind is what kind of object claims.
type ClaimKind string

// Kinds of claims.
const (
	ClaimGeoVolume ClaimKind = "GeoVolume"
	ClaimPVC       ClaimKind = "PersistentVolumeClaim"
)

// Claim is that an object of a site's cluster uses a volume. Its one writer is that site's
// operator.
type Claim struct {
	Volume    string    `json:"volume"`
	Site      string    `json:"site"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Kind      ClaimKind `json:"kind"`
	UID       string    `json:"uid"`
	Access    Access    `json:"access"`
	At        time.Time `json:"at,omitzero"`
	// Cache is what that object says of the cache at its own site, instead of the volume's; nil:
	// nothing. See Cache.With.
	Cache *Cache `json:"cache,omitempty"`
}

// Validate checks the record; errors wrap ErrInvalid.
func (c Claim) Validate() error {
	if err := CheckName("volume", c.Volume); err != nil {
		return err
	}
	if err := CheckLabel("site", c.Site); err != nil {
		return err
	}
	if err := CheckLabel("namespace", c.Namespace); err != nil {
		return err
	}
	if err := checkSubdomain("claim", c.Name); err != nil {
		return err
	}
	if c.Kind != ClaimGeoVolume && c.Kind != ClaimPVC {
		return invalid("check", "claim", c.Name, fmt.Sprintf("kind is %q: write %s or %s", c.Kind, ClaimGeoVolume, ClaimPVC))
	}
	return checkAccess("claim", c.Name, c.Access)
}

// Attachment lets a node of a site use a volume. Its one writer is that site's CSI controller.
type Attachment struct {
	Volume string    `json:"volume"`
	Site   string    `json:"site"`
	Node   string    `json:"node"`
	Access Access    `json:"access"`
	At     time.Time `json:"at,omitzero"`
}

// Validate checks the record; errors wrap ErrInvalid.
func (a Attachment) Validate() error {
	if err := CheckName("volume", a.Volume); err != nil {
		return err
	}
	if err := CheckLabel("site", a.Site); err != nil {
		return err
	}
	if err := checkSubdomain("node", a.Node); err != nil {
		return err
	}
	return checkAccess("attachment", a.Volume, a.Access)
}

// Lost is the word of a person of a site's organization, or of an administrator, that the site does
// not come back soon. No volume gets a copy there meanwhile.
type Lost struct {
	Site string    `json:"site"`
	By   string    `json:"by"` // who said so, as in the certificate
	At   time.Time `json:"at"`
}

func checkAccess(kind, name string, a Access) error {
	if a != ReadOnly && a != ReadWrite {
		return invalid("check", kind, name, fmt.Sprintf("access is %q: write ro or rw", a))
	}
	return nil
}
