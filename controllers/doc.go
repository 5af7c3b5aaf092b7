// SPDX-License-Identifier: Apache-2.0

// Package controllers is Weir's operator: one cluster's side of the volumes that several clusters share.
//
//	file             reconciles
//	site.go          Site: registers this cluster, mirrors the other sites
//	cachepool.go     CachePool: what the registry says of its gateway
//	policy.go        VolumePolicy: checks it, and counts who has it in force
//	geovolume.go     GeoVolume: the volume or import, its claim in the registry, PersistentVolume and PersistentVolumeClaim
//	content.go       GeoVolumeContent: carries desired state to the registry (owner) or keeps it equal to the registry's (others)
//
// Decisions are those of controllers/plan. What goes where, who is the one writer of what, and the orders in which two writers do not
// miss each other, is in docs/adr/0007.
//
// # The mirror
//
// One watch of the registry fills a copy in memory (mirror), on every replica of the operator, so that a new leader begins at
// once. It tells the controllers which objects a change is about: nothing is polled. Reconcilers decide by the mirror, and read
// the registry itself where being late would be wrong: before a volume is created, claimed or deleted.
//
// # Writes
//
// A reconcile that finds everything as it should be writes nothing, neither here nor there. Objects are made by server-side apply; the spec of
// a GeoVolumeContent is patched instead, because apply cannot take away what somebody else has added. A volume's lag, which always
// changes, is written at most every 30 s, and what is used of it only when it is another by about a hundredth. The test of package test/scale has
// 10 000 volumes in a steady state. How fast is written otherwise is the API server's to limit (requests.go).
//
// # Deletes
//
// The operator deletes only objects that it made, which erase (delete.go) checks by their labels. The
// chart has the API server check the same (a ValidatingAdmissionPolicy).
//
// # Errors
//
// A step returns nil; or a *stop: a person, or something that is watched, has to change first; or a *wait: it comes by itself, and is
// looked at again; or any other error, after which it is tried again, later each time. See outcome.go.
package controllers
