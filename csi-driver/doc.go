// SPDX-License-Identifier: Apache-2.0

// Package csidriver is Weir's CSI driver, csi.weir.dev: it lets Kubernetes make volumes, attach them to nodes and mount them for pods.
// Its contract is CSI 1.13 and the sections CSI and Addresses of docs/design/kubernetes.md. It has three servers: identity;
// controller, of which one instance serves at a time (the sidecars elect a leader); and node, one on every node. They know the API objects
// of this cluster, and two ports whose other ends are elsewhere: Attachments (the registry) and Gateway (the site's gateway).
//
// # Names
//
// A volume's handle is FEDERATION/UUID, equal at all sites; the UUID is the name of its GeoVolumeContent. CreateVolume derives the UUID from
// the cluster's UID and the name that it is given: who repeats the call, even another instance after the first is dead, finds
// the same volume. A handle of another form names no volume: deleting, unpublishing it succeeds, anything else is NOT_FOUND. Neither volume context nor
// publish context holds anything: the node asks the gateway where the volume is, each time.
//
// # Rules
//
//  1. CreateVolume writes a Content and waits until it is Ready; DeleteVolume deletes it and waits until it is gone. All between is the operator's.
//     A creation that failed for good before the volume was anywhere takes its Content back, for nobody would delete it.
//  2. Who may use a volume: a namespace that has a claim in the Content's spec. ControllerPublishVolume holds the PersistentVolumes that
//     a VolumeAttachment of the node refers to against it, NodePublishVolume the pod's namespace (through the gateway, which decides). Both are needed:
//     a second PersistentVolume of the same handle shares the node's attachment and never comes to the controller.
//  3. Attach before stage, stage before publish. ControllerUnpublishVolume succeeds only when the gateway has fenced the node.
//  4. An attachment is read-only when all who use the volume through this cluster's PersistentVolumes only read. A pod that only reads gets
//     a read-only bind mount, whatever the attachment allows.
//  5. The node keeps no state: mountinfo tells what is mounted where. Between any two steps of a call the process may be killed; the call, when
//     repeated, finds what was done and does the rest. What can only be done in two steps (a read-only bind mount) is looked at again, and finished.
//  6. The node never stats a mount: a gateway that is away would make that hang. It makes directories and takes "exists" for an answer.
//     Kernel calls that can hang (mount, bind, unmount) have a deadline, after which the call answers with a code by which the kubelet
//     knows that it may still happen. A second mount on a path where one hangs is ABORTED; taking the volume away removes
//     the directory below the one that hangs, so that it can only fail.
//  7. Unmount is normal, then forced, then lazy. Forced only while no other path shows the same file system: it makes all that is under way in
//     that file system fail, also what other pods do.
//  8. One call at a time changes a volume, and one a path; others get ABORTED. Nodes of a volume are independent of each other, except for modes that allow one node.
//  9. Nothing of a request is logged but ids, names and paths; never secrets or parameters.
//
// # Codes
//
// A code that the sidecars and the kubelet take for final (INVALID_ARGUMENT, PERMISSION_DENIED and so on) says that nothing is left behind. ABORTED, UNAVAILABLE and
// DEADLINE_EXCEEDED say: ask again.
//
// # Health
//
// CSI 1.13 replaced VolumeCondition with health calls; kubelets and health monitors before it know only the former. Both are answered,
// from the same source, see condition.go.
package csidriver
