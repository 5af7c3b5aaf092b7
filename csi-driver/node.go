// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Resolver finds addresses of a host; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// NodeConfig is what a node server needs.
type NodeConfig struct {
	Gateway    Gateway
	Mounter    Mounter
	Resolver   Resolver
	Federation string
	Site       string
	// Cluster is the UID of the namespace kube-system, Node and NodeUID the Node object's name and UID.
	Cluster, Node, NodeUID string
	// SetIdentifier makes the kernel's NFS client introduce itself as id from the next connection on; see IdentifierFile.
	SetIdentifier func(id string) error
	// NConnect is how many connections a mount has; 0: the kernel's default, one.
	NConnect int
	// CallLimit is how long each kernel call may take; 0: 20 s.
	CallLimit time.Duration
	// After is time.After.
	After func(time.Duration) <-chan time.Time
}

// Node is the node server. It keeps nothing but what is under way: rule 5.
type Node struct {
	csi.UnimplementedNodeServer
	cfg      NodeConfig
	calls    inflight
	patience patience
}

// NewNode checks the configuration. The server may be used by many calls at a time; of a node, by one process.
func NewNode(cfg NodeConfig) (*Node, error) {
	for _, f := range []struct{ name, value string }{
		{"federation", cfg.Federation}, {"site", cfg.Site}, {"cluster", cfg.Cluster}, {"node", cfg.Node}, {"nodeUID", cfg.NodeUID},
	} {
		if f.value == "" {
			return nil, fmt.Errorf("%s is missing: the node server needs it", f.name)
		}
	}
	if cfg.NConnect < 0 || cfg.NConnect > 16 {
		return nil, fmt.Errorf("nconnect is %d: write a number from 1 to 16, or 0 for the kernel's default", cfg.NConnect)
	}
	if cfg.Gateway == nil || cfg.Mounter == nil || cfg.Resolver == nil || cfg.SetIdentifier == nil || cfg.After == nil {
		return nil, fmt.Errorf("the node server needs a gateway, a mounter, a resolver, a way to set the NFS client's identifier, and a clock")
	}
	if cfg.CallLimit == 0 {
		cfg.CallLimit = 20 * time.Second
	}
	return &Node{cfg: cfg, patience: patience{limit: cfg.CallLimit, after: cfg.After}}, nil
}

var nodeCapabilities = []csi.NodeServiceCapability_RPC_Type{
	csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
	csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
	csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
	nodeVolumeCondition,
}

// NodeGetCapabilities implements csi.NodeServer.
func (n *Node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := new(csi.NodeGetCapabilitiesResponse)
	for _, t := range nodeCapabilities {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
	}
	return r, nil
}

// NodeGetInfo implements csi.NodeServer.
func (n *Node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.cfg.Node, AccessibleTopology: topology(n.cfg.Site)}, nil
}

// id finds the UUID of a handle.
func (n *Node) id(handle string) (string, error) {
	federation, id, ok := parseHandle(handle)
	if !ok {
		return "", status.Errorf(codes.NotFound, "volume %s is not there: a volume's handle is FEDERATION/UUID", handle)
	}
	if federation != n.cfg.Federation {
		return "", status.Errorf(codes.NotFound, "volume %s is of federation %s: this site is in %s", handle, federation, n.cfg.Federation)
	}
	return id, nil
}

// where makes a path comparable to those of mountinfo: links on the way are followed, all but the last name, which may be a mount that hangs.
func where(field, path string) (string, error) {
	switch {
	case path == "":
		return "", missing(field)
	case !filepath.IsAbs(path):
		return "", invalid(field, path, "it must be an absolute path")
	}
	path = filepath.Clean(path)
	// A directory that is not there yet has no links on the way to it that would matter later: it is made as it is written.
	if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(parent, filepath.Base(path)), nil
	}
	return path, nil
}

// resolve finds the address of a gateway's Service.
func (n *Node) resolve(ctx context.Context, host string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap(), nil
	}
	all, err := n.cfg.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, status.Errorf(codes.Unavailable, "find the address of the gateway %s: %v", host, err)
	}
	if len(all) == 0 {
		return netip.Addr{}, status.Errorf(codes.Unavailable, "the gateway %s has no address", host)
	}
	return all[0].Unmap(), nil
}
