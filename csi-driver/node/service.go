// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/csi-driver/health"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

// Config is what a node server needs.
type Config struct {
	Gateway    Gateway
	Mounter    Mounter
	Resolver   Resolver
	Federation string
	Site       string
	// Cluster is the UID of the namespace kube-system, Node and NodeUID are the Node object's name
	// and UID.
	Cluster, Node, NodeUID string
	// SetIdentifier sets the identity of the kernel's NFS client, as mount.IdentifierSetter returns
	// it.
	SetIdentifier func(id string) error
	// NConnect is how many connections a mount has; 0: the kernel's default, one.
	NConnect int
	// TLSName: mounts begin TLS, in which this name has to be in the gateway's certificate, and the
	// node shows its own (RFC 9289). The node's tlshd does that. Empty: mounts are in the clear.
	TLSName string
	// CallLimit is how long each kernel call may take; 0: 20 s.
	CallLimit time.Duration
	// After is time.After.
	After func(time.Duration) <-chan time.Time
}

// service does what the calls ask for, without a lock: of calls on one path, Server lets in one at
// a time. It keeps nothing but the kernel calls that are under way (csi-5).
type service struct {
	csi.UnimplementedNodeServer
	cfg    Config
	kernel *kernelCalls
}

func newService(cfg Config) (service, error) {
	for _, f := range []struct{ name, value string }{
		{"federation", cfg.Federation}, {"site", cfg.Site}, {"cluster", cfg.Cluster}, {"node", cfg.Node}, {"nodeUID", cfg.NodeUID},
	} {
		if f.value == "" {
			return service{}, fmt.Errorf("%s is missing: the node server needs it", f.name)
		}
	}
	if cfg.NConnect < 0 || cfg.NConnect > 16 {
		return service{}, fmt.Errorf("nconnect is %d: write a number from 1 to 16, or 0 for the kernel's default", cfg.NConnect)
	}
	if cfg.Gateway == nil || cfg.Mounter == nil || cfg.Resolver == nil || cfg.SetIdentifier == nil || cfg.After == nil {
		return service{}, fmt.Errorf(
			"the node server needs a gateway, a mounter, a resolver, a way to set the NFS client's identifier, and a clock")
	}
	if cfg.CallLimit == 0 {
		cfg.CallLimit = 20 * time.Second
	}
	return service{cfg: cfg, kernel: &kernelCalls{limit: cfg.CallLimit, after: cfg.After}}, nil
}

var capabilities = []csi.NodeServiceCapability_RPC_Type{
	csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
	csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
	csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
	health.NodeConditionCapability,
}

// NodeGetCapabilities implements csi.NodeServer.
func (s *service) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := new(csi.NodeGetCapabilitiesResponse)
	for _, t := range capabilities {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
	}
	return r, nil
}

// NodeGetInfo implements csi.NodeServer.
func (s *service) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: s.cfg.Node, AccessibleTopology: rpc.Topology(s.cfg.Site)}, nil
}

// cleanPath makes a path comparable to those of mountinfo. It follows the links on the way, but not
// the last name, which may be a mount that hangs (csi-6). field names the path in the error.
func cleanPath(field, path string) (string, error) {
	switch {
	case path == "":
		return "", rpc.Missing(field)
	case !filepath.IsAbs(path):
		return "", rpc.Invalid(field, path, "it must be an absolute path")
	}
	path = filepath.Clean(path)
	// Without a parent there is no link to follow: this call makes the directories as written.
	if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(parent, filepath.Base(path)), nil
	}
	return path, nil
}

// resolve finds the address of the gateway's Service.
func (s *service) resolve(ctx context.Context, host string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap(), nil
	}
	all, err := s.cfg.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, status.Errorf(codes.Unavailable, "find the address of the gateway %s: %v", host, err)
	}
	if len(all) == 0 {
		return netip.Addr{}, status.Errorf(codes.Unavailable, "the gateway %s has no address", host)
	}
	return all[0].Unmap(), nil
}
