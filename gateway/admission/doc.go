// SPDX-License-Identifier: Apache-2.0

// Package admission decides which client may use which volume at this gateway. It ends the opens
// and locks of clients that lost their admission. Nodes is the gRPC service that the site's nodes
// and its CSI controller call: it admits and fences nodes.
//
// # Rules
//
//   - admission-1: An admission with a node counts only while the volume is attached to that node.
//     What was read from the registry with a quorum overrides what the watch reported.
//   - admission-2: A node is fenced in this order. First, its attachment is gone from the registry,
//     read with a quorum. Second, the attachment does not count here any more. Third, the NFS
//     server has drained the node's requests and released its locks. Fourth, the home has ended the
//     operations that were given up here, or sent by a former process of this gateway. Last, the
//     node's admissions are removed. A call after a failure does what is left to do.
//   - admission-3: What a fenced node has in the log by then comes before all that others do later
//     (protocol-23).
//   - admission-4: No two nodes share an address: it is all by which a gateway distinguishes them.
//   - admission-5: The root directory's group is that of the namespace that made the volume,
//     whenever a pod of it is started with a group. Another namespace's is set only where there is
//     none: else who mounts first would lock the owner out. If only one namespace writes, its group
//     counts.
//   - admission-6: How full a volume is stays known when its home does not answer: from what that
//     said last here, else from what it reported to the registry.
package admission
