// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "github.com/google/uuid"

// volumeNamespace is the name space (RFC 9562, section 5.5) of the UUIDs of volumes that clusters
// make. It never changes: a volume whose creation was interrupted is found by it.
var volumeNamespace = uuid.MustParse("6f1d0c0e-8a52-5f0b-9d0e-77656972766f")

// VolumeUUID is the UUID of the volume that a claim (a GeoVolume or a PersistentVolumeClaim) makes,
// from the UID of its cluster's namespace kube-system and its own: who creates it again finds the
// same volume.
func VolumeUUID(cluster, claim string) string {
	return uuid.NewSHA1(volumeNamespace, []byte(cluster+"/"+claim)).String()
}

// VolumeHandle is spec.csi.volumeHandle of a volume's PersistentVolumes: equal at all sites.
func VolumeHandle(federation, volume string) string { return federation + "/" + volume }
