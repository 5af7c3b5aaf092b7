// SPDX-License-Identifier: Apache-2.0

// Package scale has no code: its test runs the operator of a large cluster. What is real in it: the
// program (`weir operator`, built here, without the race detector), kube-apiserver, and etcd as the
// registry, over mutual TLS. What the test plays: the gateways of 100 sites, which have heartbeats,
// take up volumes and report on them; the CSI controller, which makes GeoVolumeContents; and what
// binds claims.
//
// # What is there
//
// 2 000 GeoVolumeContents at site ams, and 10 000 in the long form (WEIR_SOAK=1, or -volumes
// 10000), in these parts; and some volumes that do not concern it and have no object:
//
//	86 %  volumes of other sites with a copy at ams
//	10 %  volumes of ams that the CSI controller asked for, half of them with a VolumePolicy
//	 2 %  GeoVolumes of ams, with PersistentVolume and PersistentVolumeClaim
//	 2 %  imports: GeoVolumes of ams for volumes of other sites, without a copy at ams
//
// # What is seen
//
// The operator makes all of it, and is ended. Another is started, behind a gate that counts its
// requests. It reads everything, and writes nothing: neither at its start, nor when every home
// reports, nor when the API server makes it list everything again, nor when it looks at every
// object and site of itself. The counts are three: the gate's, the API server's own metrics, and
// the registry's revision, which every write raises. Then two volumes are changed, one by its owner
// elsewhere and one by a person here; just these two are written.
//
// The test logs how long the operator takes, its memory, and its requests (go test -v). Nothing
// depends on time. Making the objects is nearly all of the work, and nearly all of that is the API
// server's: about 20 ms of a core for each volume.
package scale
