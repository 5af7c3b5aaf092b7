// SPDX-License-Identifier: Apache-2.0

package csicmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	csicontroller "github.com/weir-storage/weir/csi-driver/controller"
	"github.com/weir-storage/weir/csi-driver/health"
	csinode "github.com/weir-storage/weir/csi-driver/node"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/pki/transport"
)

// attachmentRegistry is the part of the registry that attaching needs.
type attachmentRegistry interface {
	federation.Attachments
	Sites(ctx context.Context) ([]federation.SiteStatus, error)
}

// attachments implements csicontroller.Attachments. The registry has them, and the site's gateways
// fence nodes.
type attachments struct {
	registry attachmentRegistry
	site     string
	now      func() time.Time
	// node returns a client of a gateway of this site. Its owner closes the connection.
	node func(federation.Site, federation.Gateway) (nodepb.NodeClient, error)
}

var _ csicontroller.Attachments = (*attachments)(nil)

func (a *attachments) Attach(ctx context.Context, volume, node string, readOnly bool) error {
	access := federation.ReadWrite
	if readOnly {
		access = federation.ReadOnly
	}
	return a.registry.PutAttachment(ctx,
		federation.Attachment{Volume: volume, Site: a.site, Node: node, Access: access, At: a.now().UTC()})
}

// Detach asks every gateway of the site to fence the node. It also asks a gateway without a
// heartbeat: one that is only cut off from the registry may still serve.
func (a *attachments) Detach(ctx context.Context, volume, node string) error {
	if err := a.registry.DeleteAttachment(ctx, a.site, volume, node); err != nil {
		return err
	}
	sites, err := a.registry.Sites(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(sites, func(s federation.SiteStatus) bool { return s.Site.Name == a.site })
	if i < 0 {
		return nil // a site that is not registered has no gateway
	}
	var failed []error // the others are asked all the same
	for _, g := range sites[i].Site.Gateways {
		c, err := a.node(sites[i].Site, g)
		if err == nil {
			_, err = c.Revoke(ctx, &nodepb.RevokeRequest{Volume: volume, Node: node})
		}
		if err != nil && status.Code(err) != codes.NotFound {
			failed = append(failed, fmt.Errorf("node %s is not fenced yet: gateway %s: %w (if it is gone for ever: "+
				"`weir site remove %s --gateway %s`)", node, g.Name, err, a.site, g.Name))
		}
	}
	return errors.Join(failed...)
}

func (a *attachments) List(ctx context.Context, volume string) ([]csicontroller.Attachment, error) {
	all, err := a.registry.ListAttachments(ctx, a.site)
	if err != nil {
		return nil, err
	}
	var out []csicontroller.Attachment
	for _, x := range all {
		if volume == "" || x.Volume == volume {
			out = append(out, csicontroller.Attachment{Volume: x.Volume, Node: x.Node, ReadOnly: x.Access == federation.ReadOnly})
		}
	}
	return out, nil
}

// nodeClients are connections to the gateways of this site. They are safe for concurrent use.
type nodeClients struct {
	creds *pki.Credentials

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

func (n *nodeClients) of(site federation.Site, g federation.Gateway) (nodepb.NodeClient, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := g.Name + " " + g.Addr
	if c := n.conns[key]; c != nil {
		return nodepb.NewNodeClient(c), nil
	}
	c, err := dialNode(n.creds, g.Addr, pki.Expect{Organizations: []string{site.Organization}, Site: site.Name, Gateway: g.Name})
	if err != nil {
		return nil, err
	}
	if n.conns == nil {
		n.conns = map[string]*grpc.ClientConn{}
	}
	n.conns[key] = c
	return nodepb.NewNodeClient(c), nil
}

func (n *nodeClients) Close() (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}

// dialNode dials a gateway and checks its identity, not its address: no certificate has the address
// of a Service.
func dialNode(creds *pki.Credentials, addr string, want pki.Expect) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(transport.Client(creds, creds.ClientByIdentity(want))),
		// Keepalive notices a gateway that fell silent, for instance because its Service leads
		// elsewhere.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
}

// siteGateway implements csinode.Gateway at the site's Service.
type siteGateway struct {
	client nodepb.NodeClient
	host   string
	port   uint16
}

var _ csinode.Gateway = (*siteGateway)(nil)

// serviceAddress splits --gateway.
func serviceAddress(addr string) (host string, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || port == "" {
		return "", cli.Usage("--gateway %q: write HOST:PORT of the Service of the site's gateway, such as 10.96.0.7:7001", addr)
	}
	return host, nil
}

// Admit returns the gateway's error with its gRPC code.
func (g *siteGateway) Admit(ctx context.Context, r csinode.AdmitRequest) (csinode.Export, error) {
	q := &nodepb.AdmitRequest{Volume: r.Volume, Node: r.Node, Namespace: r.Namespace, Tls: r.TLS}
	if r.MountGroup != "" {
		group, err := strconv.ParseUint(r.MountGroup, 10, 32)
		if err != nil {
			return csinode.Export{}, status.Errorf(codes.InvalidArgument, "volume_mount_group is %q: write a group's number",
				r.MountGroup)
		}
		id := uint32(group)
		q.MountGroup = &id
	}
	a, err := g.client.Admit(ctx, q)
	if err != nil {
		return csinode.Export{}, err
	}
	readOnly := a.GetAccess() != nodepb.Access_ACCESS_READ_WRITE
	return csinode.Export{Host: g.host, Port: g.port, Path: a.GetExport(), ReadOnly: readOnly}, nil
}

func (g *siteGateway) Usage(ctx context.Context, volume string) (csinode.Usage, error) {
	a, err := g.client.Usage(ctx, &nodepb.UsageRequest{Volume: volume})
	if err != nil {
		return csinode.Usage{}, err
	}
	u := csinode.Usage{TotalBytes: int64(a.GetCapacityBytes()), UsedBytes: int64(a.GetUsedBytes()),
		TotalInodes: int64(a.GetInodes()), UsedInodes: int64(a.GetUsedInodes())}
	u.AvailableBytes, u.AvailableInodes = max(0, u.TotalBytes-u.UsedBytes), max(0, u.TotalInodes-u.UsedInodes)
	u.Unknown = !a.GetKnown()
	if !a.GetHealthy() {
		u.Problem = &health.Problem{Inaccessible: !a.GetKnown() || a.GetEarlier(), Reason: "Unwell", Message: a.GetMessage()}
	}
	return u, nil
}
