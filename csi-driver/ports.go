// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Attachment is that a node may use a volume.
type Attachment struct {
	Volume   string // UUID
	Node     string
	ReadOnly bool
}

// Attachments keeps which nodes of this site may use which volumes. Volumes are UUIDs. All methods may be called at the same time, and repeated.
// Errors are as those of Gateway.
type Attachments interface {
	// Attach returns when the node may stage the volume. It replaces an attachment of the same volume and node.
	Attach(ctx context.Context, volume, node string, readOnly bool) error
	// Detach returns when the node can use the volume no more: the attachment is gone and the gateway has expired the node's state. It succeeds
	// when there is none, also of a volume that is gone.
	Detach(ctx context.Context, volume, node string) error
	// List returns the attachments of a volume, or all of the site's for volume "", in any order. It sees all that was written before.
	List(ctx context.Context, volume string) ([]Attachment, error)
}

// AdmitRequest asks that a node may use a volume from now on.
type AdmitRequest struct {
	Volume string // UUID
	Node   string
	// Namespace of the pod, which must have a claim on the volume; empty when the volume is staged.
	Namespace string
	// MountGroup is the group that shall be able to write (fsGroup), in digits; empty: leave the root directory as it is.
	MountGroup string
}

// Export is where a volume is mounted from.
type Export struct {
	// Host is the site's NFS Service: a name or an address.
	Host string
	// Port is 2049 when 0.
	Port uint16
	// Path begins with a slash.
	Path string
	// ReadOnly says that the node's attachment, or the claim of the namespace, allows no more than reading.
	ReadOnly bool
}

// Usage is what a gateway knows of a volume.
type Usage struct {
	TotalBytes, UsedBytes, AvailableBytes    int64
	TotalInodes, UsedInodes, AvailableInodes int64 // TotalInodes 0: not counted
	// Problem is nil when the volume is well.
	Problem *Problem
}

// Gateway is the site's gateway. All methods may be called at the same time, and repeated. Errors wrap ErrNotFound (no such volume), ErrDenied (not
// attached, no claim) or ErrConflict (another node has the address), or are gRPC statuses, whose code is then kept; any other is taken for a gateway that
// does not answer now.
type Gateway interface {
	// Admit returns when the node's address is admitted and MountGroup is in force.
	Admit(ctx context.Context, r AdmitRequest) (Export, error)
	// Usage tells how full the volume is, and how it is.
	Usage(ctx context.Context, volume string) (Usage, error)
}

// Outcomes of ports.
var (
	ErrNotFound = errors.New("not found")
	ErrDenied   = errors.New("not allowed")
	ErrConflict = errors.New("conflict")
)

// fromPort makes a status of a port's error.
func fromPort(err error, format string, a ...any) error {
	code := codes.Unavailable
	switch s, ok := status.FromError(err); {
	case errors.Is(err, ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, ErrDenied):
		code = codes.PermissionDenied
	case errors.Is(err, ErrConflict):
		code = codes.FailedPrecondition
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case ok && s.Code() != codes.OK && s.Code() != codes.Unknown:
		code = s.Code()
	}
	return status.Errorf(code, "%s: %v", fmt.Sprintf(format, a...), err)
}

// invalid refuses a field of a request.
func invalid(field string, value any, remedy string) error {
	return status.Errorf(codes.InvalidArgument, "%s is %q: %s", field, fmt.Sprint(value), remedy)
}

// missing refuses a request without a field.
func missing(field string) error {
	return status.Errorf(codes.InvalidArgument, "%s is missing: the request must have it", field)
}
