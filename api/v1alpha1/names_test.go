// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "testing"

// The UUIDs are in registries and volume handles: they must never come out differently.
func TestVolumeUUIDIsForEver(t *testing.T) {
	const cluster, claim = "4b1f7a3e-0c7e-4a57-9d42-6f4a52d1a001", "4b1f7a3e-0c7e-4a57-9d42-6f4a52d1a002"
	if got, want := VolumeUUID(cluster, claim), "dfd87122-3b24-57d3-b7b5-3cef574c7448"; got != want {
		t.Errorf("VolumeUUID = %s, want %s", got, want)
	}
	if VolumeUUID(claim, cluster) == VolumeUUID(cluster, claim) {
		t.Error("cluster and claim can be exchanged")
	}
}

// The handle is in PersistentVolumes: it must never come out differently either.
func TestVolumeHandle(t *testing.T) {
	const id = "4b1f7a3e-0c7e-4a57-9d42-6f4a52d1a001"
	if got, want := VolumeHandle("demo", id), "demo/"+id; got != want {
		t.Errorf("VolumeHandle = %s, want %s", got, want)
	}
}
