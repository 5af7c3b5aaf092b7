// SPDX-License-Identifier: Apache-2.0

package controller

import "context"

// Attachment says that a node may use a volume.
type Attachment struct {
	Volume   string // UUID
	Node     string
	ReadOnly bool
}

// Attachments keeps which nodes of this site may use which volumes. Volumes are UUIDs. Any number
// of goroutines may call it, and a call may be repeated. The code of an error that is a gRPC status
// goes to the caller; any other error means that the registry or a gateway does not answer now.
type Attachments interface {
	// Attach returns when the node may stage the volume. It replaces an attachment of the same
	// volume and node.
	Attach(ctx context.Context, volume, node string, readOnly bool) error
	// Detach returns when the node can use the volume no more: the attachment is gone and the
	// gateway has expired the node's state. It succeeds when there is no attachment, also for a
	// volume that is gone.
	Detach(ctx context.Context, volume, node string) error
	// List returns the attachments of a volume, or all of the site for volume "", in any order. It
	// sees every write that ended before.
	List(ctx context.Context, volume string) ([]Attachment, error)
}
