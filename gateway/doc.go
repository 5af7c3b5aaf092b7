// SPDX-License-Identifier: Apache-2.0

// Package gateway is the serving assembly of one gateway process: it opens the replicas of the volumes that have a copy at
// its site, serves them over NFS to admitted clients, sends what changes a volume to the volume's home, and answers what
// other gateways ask.
//
// # Parts
//
//	mirror      what the registry says, kept by one watch: sites, volumes, control records, admissions
//	replicaOf   one volume here: log, engine, replica, locks while this gateway is home
//	Router      a volume as clients of this gateway see it: a volume.Volume over the local copy and the home
//	lockTable   byte-range locks of one reign at the home, and its grace period
//	registered  what the home was told of the locks of this gateway's clients; what its changes belong to
//	underway    the changes that other gateways have under way at a home
//	service     the gRPC services that other gateways and operators call
//	nodes       the gRPC service that the site's nodes and its CSI controller call: it admits and fences nodes
//	leaving     a copy that the site is not to have any more, until it may be deleted
//	Health      whether the gateway is ready for clients
//
// # Rules kept here
//
//   - 3: nothing begins anew in place of a log that is in doubt or gone while the control record counts on that log.
//   - 4, 26: a read is answered from the local copy if the replica may serve it, and else by the home.
//   - 3: a copy is deleted only when the home has removed it from the members, and has reported that every site which is to have a copy has
//     all that is committed. What the site's store has of the volume stays there.
//   - 17: a volume is opened only with its data key, which this site's private key unwraps. Its home wraps the key for sites that are new.
//   - 18: a home executes what a gateway asks only if that gateway's site has a copy of the volume or admitted clients.
//   - 22: an operation whose outcome is not known is sent again with the same OpID, to whoever is home then. Without
//     an OpID it is not, and volume.ErrUnknown is returned. Changes and lock operations belong to a registration, and one that got no answer
//     ends that, so that it does nothing when it arrives later. A home executes them only while it is the newest of their gateway in this
//     reign; it answers a new one when nothing of the former ones runs, and begins a reign when nothing of a former one does (ADR 8).
//   - 23: the Router registers the locks of this gateway's clients with each new home before it asks that home for others, while none of
//     them is being changed. A home refuses new locks until every gateway that lives and may use the volume has registered, and
//     deletes no file without a name while a gateway that lives can not say what its clients hold: it does not answer, or they
//     still reclaim. A gateway that stops while clients hold something leaves its heartbeat to expire. Locks of a gateway whose
//     heartbeat has ended go to who asks; a client that lost one so is told.
//   - 23: a node is fenced when its requests have ended, its opens and locks are given up, and its attachment does not count any more. What
//     of it is in the log by then is before all that others do later. What this gateway gave up on its way to another home, or a former
//     process of it had sent there, is ended by a registration with the home of the newest epoch: until then the node is not fenced.
//   - 24: the verifier names this gateway's incarnation and boot, and the volume's epoch.
//   - 25: after a change at another home, the client is answered when the change is applied here.
package gateway
