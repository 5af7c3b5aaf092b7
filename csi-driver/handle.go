// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// handleOf makes a volume's handle.
func handleOf(federation, id string) string { return federation + "/" + id }

// parseHandle splits FEDERATION/UUID. It is false for anything that cannot be a handle, which then names no volume.
func parseHandle(handle string) (federation, id string, ok bool) {
	federation, id, ok = strings.Cut(handle, "/")
	if !ok || federation == "" {
		return "", "", false
	}
	if u, err := uuid.Parse(id); err != nil || u.String() != id {
		return "", "", false
	}
	return federation, id, true
}

// volumeUUID derives a volume's UUID from the cluster that makes it and the name that Kubernetes gave it.
func volumeUUID(cluster uuid.UUID, name string) string {
	return uuid.NewSHA1(cluster, []byte(name)).String()
}

// nameForm is what the federation takes for a volume's name (federation.CheckVolumeName).
var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$`)

// federationName is the volume's name in the federation: the one that Kubernetes gave it, pvc-UID. Another program may use names that the federation
// does not take; then it is csi-UUID.
func federationName(name, id string) string {
	if nameForm.MatchString(name) {
		return name
	}
	return "csi-" + id
}
