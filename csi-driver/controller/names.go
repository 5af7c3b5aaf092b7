// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"regexp"

	"github.com/google/uuid"
)

// volumeUUID derives a volume's UUID from the cluster that makes it and the name that Kubernetes
// chose for it.
func volumeUUID(cluster uuid.UUID, name string) string {
	return uuid.NewSHA1(cluster, []byte(name)).String()
}

// nameForm is what the federation accepts as a volume's name (federation.CheckVolumeName).
var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$`)

// federationName is the volume's name in the federation: the one that Kubernetes chose, pvc-UID.
// Another program than the provisioner may choose names that the federation does not accept; the
// volume is then csi-UUID.
func federationName(name, id string) string {
	if nameForm.MatchString(name) {
		return name
	}
	return "csi-" + id
}
