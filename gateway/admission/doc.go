// SPDX-License-Identifier: Apache-2.0

// Package admission says which client may use which volume at this gateway, and ends what clients hold
// who may not any more. Nodes is the gRPC service that the site's nodes and its CSI controller call:
// it admits and fences nodes.
//
// # Rules
//
//   - admission-1: An admission with a node counts only while the volume is attached to that node.
//     What was read from the registry with a quorum counts before what the watch told.
//   - admission-2: A node is fenced in this order. Its attachment is gone from the registry, read with
//     a quorum. It does not count here any more. The NFS server has drained the node's requests and
//     given up its locks. The home has ended what was given up here, or sent by a former process of
//     this gateway. Its admissions are removed. Who asks again after a failure finds what is left to
//     do.
//   - admission-3: What a fenced node has in the log by then is before all that others do later
//     (protocol-23).
//   - admission-4: No two nodes share an address: a gateway tells its clients apart by it.
package admission
