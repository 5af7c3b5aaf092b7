// SPDX-License-Identifier: Apache-2.0

// Package scale has no code. Its test runs the operator of a large cluster. The program (`weir
// operator`, built here, without the race detector), kube-apiserver, and etcd as the registry over
// mutual TLS are real. The test plays all else: the gateways of 100 sites, which send heartbeats,
// serve volumes and report on them; the CSI controller, which makes GeoVolumeContents; and the
// controller that binds claims.
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
// Each of the 100 sites has an organization. Each organization makes ten offers, which is 1 000,
// and there are 1 000 agreements in seven states. The organization of ams takes part in 608 of
// them, as host and as guest by turns: these are StorageAgreements, of which 392 have rooms and
// what both sides counted. Twenty are StorageRequests of people at ams.
//
// # What is seen
//
// The operator makes all objects, and the test ends it. A second operator starts behind a gate that
// counts its requests. It reads everything and writes nothing: not at its start, not when every
// home reports, not when the API server makes it list everything again, and not when it looks at
// every object and site by itself. That holds for papers as for volumes. Three counts show this:
// the gate's, the API server's own metrics, and the registry's revision, which every write raises.
// Then two volumes change, one by its owner elsewhere and one by a person here; a store counts, and
// an offer grows. The operator writes only these four. So each count, of which each side of an
// agreement has one an hour, is one write.
//
// The test logs how long the operator takes, its memory, and its requests (go test -v). Nothing
// depends on time. Making the objects is nearly all of the work, and nearly all of that is the API
// server's: about 20 ms of a core for each volume. The papers are a quarter of it.
package scale
