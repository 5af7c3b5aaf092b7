// SPDX-License-Identifier: Apache-2.0

// Package csidriver is Weir's CSI driver, csi.weir.dev: it lets Kubernetes make volumes, attach
// them to nodes and mount them for pods. Its contract is CSI 1.13, and the sections CSI and
// Addresses of docs/design/kubernetes.md. It has three servers:
//
//	Identity           who the driver is; both processes have it
//	controller.Server  makes and attaches volumes; one instance serves at a time, which the
//	                   sidecars elect
//	node.Server        mounts volumes; one on every node
//
// This package has Identity, and serves and registers all three. Package mount has the kernel's
// mounts, package health reports whether a volume is well, and internal/rpc has what the calls of
// both servers share. The servers know the API objects of this cluster and two ports:
// controller.Attachments (the registry) and node.Gateway (the site's gateway).
//
// # Names
//
// A volume's handle is FEDERATION/UUID, equal at all sites. The UUID is the name of the volume's
// GeoVolumeContent. CreateVolume derives the UUID from the cluster's UID and the name in the
// request: so a repeated call finds the same volume, also when another instance serves it. A handle
// of another form names no volume: to delete or unpublish it succeeds, any other call is NOT_FOUND.
// The volume context and the publish context are empty: the node asks the gateway each time where
// the volume is.
//
// # Rules
//
// Comments refer to these rules as csi-1 to csi-11.
//
//  1. CreateVolume writes a Content and waits until it is Ready. DeleteVolume deletes the Content
//     and waits until it is gone. The operator does all that is between. A creation that failed for
//     good before the volume was anywhere deletes its Content: nobody else would.
//  2. A namespace may use a volume when it has a claim in the Content's spec.
//     ControllerPublishVolume checks the PersistentVolumes that a VolumeAttachment of the node
//     names. NodePublishVolume has the gateway check the pod's namespace. Both are needed: a second
//     PersistentVolume of the same handle shares the node's attachment, and the controller never
//     sees it.
//  3. Attach before stage, stage before publish. ControllerUnpublishVolume succeeds only when the
//     gateway has fenced the node.
//  4. An attachment is read-only when all who use the volume through this cluster's
//     PersistentVolumes only read. A pod that only reads gets a read-only bind mount, whatever the
//     attachment allows.
//  5. The node keeps no state: mountinfo says what is mounted where. The process may be killed
//     between any two steps of a call. The repeated call finds what was done and does the rest. It
//     looks again at what the kernel can only do in two steps (a read-only bind mount).
//  6. The node never calls stat on a mount: that would hang while a gateway is away. It makes a
//     directory, and accepts that it exists. A kernel call that can hang (mount, bind, unmount) has
//     a deadline. After it the RPC answers with a code by which the kubelet knows that the kernel
//     call may still succeed. A second mount where one hangs is ABORTED. Unstaging removes
//     the directory below a mount that hangs, so that it can only fail.
//  7. Unmount is normal, then forced, then lazy. It is forced only while no other path shows the
//     same file system: a forced unmount makes all calls in that file system fail, also those of
//     other pods.
//  8. One call at a time changes a volume, and one call at a time changes a path; others are
//     ABORTED. The nodes of a volume are independent, except for modes that allow one node.
//     controller.Server and node.Server take these locks around the calls.
//  9. The log has ids, names and paths of a request, and nothing else: never secrets or parameters.
//  10. A snapshot is a GeoVolumeSnapshot, whoever made it, and its ID is NAMESPACE/NAME of that.
//     CreateSnapshot makes one in the namespace of a claim on the volume, under a name that follows
//     from the name in the request, and waits until the operator says that it is taken. A volume of
//     which it took a snapshot is not deleted before that is.
//  11. The snapshots of a group are GeoVolumeSnapshots that carry its ID and the list of its
//     volumes. There is one for each volume or for none, but for a moment: a call that finds less
//     drops that and begins anew. Changes of the volumes are held until all are taken (ADR 71),
//     unless the class says that their moments may differ (ADR 61). Which holds they are taken by
//     is written once, before the first is. A group is deleted as a whole.
//
// # Codes
//
// The sidecars and the kubelet do not repeat a call after a final code, such as INVALID_ARGUMENT or
// PERMISSION_DENIED: with one, nothing is left behind. ABORTED, UNAVAILABLE and DEADLINE_EXCEEDED
// mean: call again.
package csidriver
