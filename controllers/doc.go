// SPDX-License-Identifier: Apache-2.0

// Package controllers is Weir's operator: one cluster's side of the volumes that several clusters
// share.
//
//	file           reconciles
//	site.go        Site: registers this cluster, mirrors the other sites
//	cachepool.go   CachePool: what the registry says of its gateway
//	policy.go      VolumePolicy: checks it, and counts who has it in force
//	geovolume.go   GeoVolume: the volume or import, its claim in the registry, and the
//	               PersistentVolume and PersistentVolumeClaim for pods
//	content.go     GeoVolumeContent: at the owner, carries the desired state to the registry;
//	               elsewhere, stays equal to the registry's
//
//	folder         has
//	plan, desired  decisions, and objects as they should be: pure functions
//	mirror         the view of the registry, and which objects a change is about
//	outcome, pace  what a reconcile came to, and how much is done at a time
//	object         writing objects, status and events
//	lending        the objects of the exchange
//	quota          PlacementQuota: what namespaces may place where, and what is used of it
//	snapshots      GeoVolumeSnapshot: snapshots that people ask for
//
// Decisions are those of controllers/plan. What goes where, who is the one writer of what, and the
// orders in which two writers do not miss each other, is in docs/adr/0007.
//
// # Rules
//
//   - operator-1: One watch of the registry fills the mirror on every replica of the operator, so
//     that a new leader begins at once. Its news say which objects a change is about: nothing is
//     polled.
//   - operator-2: Reconcilers decide by the mirror. They read the registry itself where being late
//     would be wrong: before a volume is created, claimed or deleted.
//   - operator-3: A reconcile that finds everything as it should be writes nothing, to neither
//     side.
//   - operator-4: Objects are made by server-side apply. The spec of a GeoVolumeContent is patched,
//     because an apply cannot remove what somebody else has added.
//   - operator-5: The lag of a volume always changes, and is written at most every 30 s. Used room
//     is written when it has changed by about a hundredth. test/scale has 10 000 volumes in steady
//     state.
//   - operator-6: How many requests are sent at a time is for the API server to limit (see Setup).
//   - operator-7: A step returns nil, or an *outcome.Stop (a person, or something that is watched,
//     has to change first), or an *outcome.Wait (it goes on by itself, and is looked at again).
//     After any other error the object is reconciled again, later each time.
//   - operator-8: Only objects that the operator made are deleted: erase checks their labels. The
//     chart has the API server check the same (a ValidatingAdmissionPolicy).
package controllers
