// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/netip"

	"github.com/weir-storage/weir/csi-driver/health"
	"github.com/weir-storage/weir/csi-driver/mount"
)

// AdmitRequest asks the gateway to let a node use a volume from now on.
type AdmitRequest struct {
	Volume string // UUID
	Node   string
	// Namespace is the pod's, which must have a claim on the volume. It is empty at staging.
	Namespace string
	// MountGroup is the number of the group that shall be able to write (fsGroup). Empty: the
	// permissions of the root directory stay as they are.
	MountGroup string
	// TLS: what the node mounts, it mounts over TLS, with a certificate of its own.
	TLS bool
}

// Export is where a volume is mounted from.
type Export struct {
	// Host is the site's NFS Service: a name or an address.
	Host string
	// Port is 2049 when 0.
	Port uint16
	// Path begins with a slash.
	Path string
	// ReadOnly says that the node's attachment, or the claim of the namespace, allows reads only.
	ReadOnly bool
}

// Usage is what a gateway knows of a volume.
type Usage struct {
	TotalBytes, UsedBytes, AvailableBytes    int64
	TotalInodes, UsedInodes, AvailableInodes int64 // TotalInodes 0: not counted
	// Unknown: nobody could say how full the volume is, and the figures are zero.
	Unknown bool
	// Problem is nil when the volume is well.
	Problem *health.Problem
}

// Gateway is the site's gateway. Any number of goroutines may call it, and a call may be repeated.
// The code of an error that is a gRPC status goes to the caller: NOT_FOUND for no such volume,
// PERMISSION_DENIED for a node that is not attached or a namespace without a claim,
// FAILED_PRECONDITION for an address that another node has. Any other error means that the gateway
// does not answer now.
type Gateway interface {
	// Admit returns when the gateway admits the node's address and MountGroup is in force.
	Admit(ctx context.Context, r AdmitRequest) (Export, error)
	// Usage returns how full the volume with a UUID is, and whether it is well.
	Usage(ctx context.Context, volume string) (Usage, error)
}

// Mounter makes the mount calls of a node's kernel, as mount.Kernel, whose comments say what each
// call does. Any call but Mounts may hang while a gateway is away. Paths are absolute and clean.
type Mounter interface {
	Mounts() ([]mount.Point, error)
	Mount(source, path string, vfs []string, data string) error
	Bind(from, path string, readOnly bool, options []string) error
	Unmount(path string, how mount.How) error
	Directory(path string, there bool) error
}

// Resolver finds the addresses of a host, as *net.Resolver does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}
