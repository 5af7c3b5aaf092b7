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
//	service     the gRPC services that other gateways and operators call
//
// # Rules kept here
//
//   - 4, 26: a read is answered from the local copy if the replica may serve it, and else by the home.
//   - 17: a volume is opened only with its data key, which this site's private key unwraps.
//   - 22: an operation whose outcome is not known is sent again with the same OpID, to whoever is home then. Without
//     an OpID it is not, and volume.ErrUnknown is returned.
//   - 23: the Router registers the locks of this gateway's clients with each new home before it asks that home for others. A home
//     refuses new locks until every gateway that lives has registered.
//   - 24: the verifier names this gateway's incarnation and boot, and the volume's epoch.
//   - 25: after a change at another home, the client is answered when the change is applied here.
package gateway
