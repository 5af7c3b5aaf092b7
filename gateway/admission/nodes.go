// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/gateway/peers"
	"github.com/weir-storage/weir/gateway/report"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/volume"
)

// Config has what Nodes needs.
type Config struct {
	Organization string
	Site         string
	Gateway      string // this one
	NFSAddr      string // host:port where clients of this site reach NFS
	View         *view.View
	Registry     federation.Registry
	Peers        *peers.Peers
	Routers      *routing.Routers
	Reporter     *report.Reporter
	Server       Server
	Timers       clockwork.Clock
	Now          func() time.Time
	Logger       *slog.Logger
	Ready        <-chan struct{} // closed when every volume of the registry has its Router
}

// Nodes implements nodepb.NodeServer. Nothing else writes admissions with a node.
type Nodes struct {
	nodepb.UnimplementedNodeServer
	cfg Config

	mu   sync.Mutex
	busy map[view.Node]chan struct{} // admitting or revoking
	last map[string]volume.Space     // of volumes, as their homes answered last
}

// Bounds of one call, besides the caller's own.
const (
	admitWithin  = 20 * time.Second
	revokeWithin = 30 * time.Second
)

// settleLooks is how often Admit checks whether the volume is open here, of which the view does not
// notify.
const settleLooks = 50 * time.Millisecond

// NewNodes returns the service.
func NewNodes(cfg Config) *Nodes {
	return &Nodes{cfg: cfg, busy: map[view.Node]chan struct{}{}, last: map[string]volume.Space{}}
}

// alone waits until nobody else admits or revokes k.
func (n *Nodes) alone(ctx context.Context, k view.Node) (done func(), err error) {
	for {
		n.mu.Lock()
		other := n.busy[k]
		if other == nil {
			mine := make(chan struct{})
			n.busy[k] = mine
			n.mu.Unlock()
			return func() {
				n.mu.Lock()
				defer n.mu.Unlock()
				delete(n.busy, k)
				close(mine)
			}, nil
		}
		n.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, status.Errorf(codes.Unavailable, "node %s: another call for it and volume %s is under way: ask again",
				k.Node, k.Volume)
		}
	}
}

// begin checks the caller and the request, and waits its turn.
func (n *Nodes) begin(ctx context.Context, volume, node string, within time.Duration) (
	_ context.Context, _ view.Node, done func(), err error) {
	k := view.Node{Volume: volume, Node: node}
	if err := n.mayCall(ctx); err != nil {
		return ctx, k, nil, err
	}
	if id, err := uuid.Parse(volume); err != nil || id.String() != volume {
		return ctx, k, nil, status.Errorf(codes.InvalidArgument, "volume is %q: write its UUID in lower case", volume)
	}
	a := federation.Attachment{Volume: volume, Site: n.cfg.Site, Node: node, Access: federation.ReadOnly}
	if err := a.Validate(); err != nil {
		return ctx, k, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if end, ok := ctx.Deadline(); ok {
		within = min(within, end.Sub(n.cfg.Now())*9/10) // leaves time to tell the caller what it waits for
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	select {
	case <-n.cfg.Ready:
	default:
		cancel()
		return ctx, k, nil, status.Errorf(codes.Unavailable, "gateway %s has not heard yet what the registry says: ask again",
			n.cfg.Gateway)
	}
	turn, err := n.alone(ctx, k)
	if err != nil {
		cancel()
		return ctx, k, nil, err
	}
	return ctx, k, func() { turn(); cancel() }, nil
}

// mayCall refuses callers of other sites.
func (n *Nodes) mayCall(ctx context.Context) error {
	id, err := n.cfg.Peers.Identity(ctx)
	if err == nil && (id.Organization != n.cfg.Organization || id.Site != n.cfg.Site) {
		err = fmt.Errorf("certificate is of site %q of organization %q, and gateway %s serves the nodes of site %q "+
			"of %q: use a certificate of that site",
			id.Site, id.Organization, n.cfg.Gateway, n.cfg.Site, n.cfg.Organization)
	}
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}

// Admit implements the service.
func (n *Nodes) Admit(ctx context.Context, q *nodepb.AdmitRequest) (*nodepb.AdmitReply, error) {
	ctx, k, done, err := n.begin(ctx, q.GetVolume(), q.GetNode(), admitWithin)
	if err != nil {
		return nil, err
	}
	defer done()
	client, err := peerAddress(ctx)
	if err != nil {
		return nil, err
	}
	attachment, err := n.attachment(ctx, k)
	if err != nil {
		return nil, err
	}
	claims, err := n.cfg.Registry.ListClaims(ctx, k.Volume)
	if err != nil {
		return nil, registryError(err)
	}
	access := attachment.Access
	if ns := q.GetNamespace(); ns != "" {
		claimed, err := n.claimed(claims, k.Volume, ns)
		if err != nil {
			return nil, err
		}
		access = lesser(access, claimed)
	}
	name, err := n.admit(ctx, k, client, attachment.Access)
	if err != nil {
		return nil, err
	}
	if r := n.cfg.Routers.Get(k.Volume); r != nil && r.Filling() {
		return nil, status.Errorf(codes.Unavailable, "volume %s is being made of a snapshot, and does not have all of it yet: its "+
			"GeoVolumeContent says how far it is; ask again", name)
	}
	if err := n.mounts(k.Volume, q.GetTls()); err != nil { // admit has waited until its record is here
		return nil, err
	}
	if group, ok := n.rootGroup(k.Volume, q); ok && access == federation.ReadWrite {
		yields := writers(claims) > 1 && !n.made(k.Volume, q.GetNamespace(), claims)
		if err := n.giveRoot(ctx, k.Volume, group, yields); err != nil {
			return nil, status.Errorf(codes.Unavailable, "volume %s: its root is not group %d's yet: %v", name, group, err)
		}
	}
	_, text, err := net.SplitHostPort(n.cfg.NFSAddr)
	port, perr := strconv.ParseUint(text, 10, 16)
	if err := errors.Join(err, perr); err != nil {
		return nil, status.Errorf(codes.Internal, "gateway %s: its NFS address is %q: correct its configuration: %v",
			n.cfg.Gateway, n.cfg.NFSAddr, err)
	}
	reply := &nodepb.AdmitReply{Export: "/" + name, NfsPort: uint32(port), Access: nodepb.Access_ACCESS_READ_ONLY, Address: client.String()}
	if access == federation.ReadWrite {
		reply.Access = nodepb.Access_ACCESS_READ_WRITE
	}
	return reply, nil
}

// peerAddress returns the caller's address. NFS connections from the node have the same one.
func peerAddress(ctx context.Context) (netip.Addr, error) {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		if at, err := netip.ParseAddrPort(p.Addr.String()); err == nil {
			return at.Addr().Unmap().WithZone(""), nil
		}
	}
	return netip.Addr{}, status.Error(codes.InvalidArgument, "the call comes from no IP address: call over TCP")
}

// attachment reads the node's attachment with a quorum. The result counts from then on
// (admission-1).
func (n *Nodes) attachment(ctx context.Context, k view.Node) (federation.Attachment, error) {
	a, err := n.cfg.Registry.GetAttachment(ctx, n.cfg.Site, k.Volume, k.Node)
	switch {
	case errors.Is(err, federation.ErrNotFound):
		return a, status.Errorf(codes.PermissionDenied,
			"volume %s is not attached to node %s at site %s: the CSI controller attaches it when a pod is scheduled there",
			k.Volume, k.Node, n.cfg.Site)
	case err != nil:
		return a, registryError(err)
	}
	n.cfg.View.Attach(k)
	return a, nil
}

// registryError is the reply when the registry does not answer.
func registryError(err error) error {
	return status.Errorf(codes.Unavailable, "the registry is needed for this: %v: ask again", err)
}

// claimed returns the most access that claims of a namespace at this site allow.
func (n *Nodes) claimed(all []federation.Claim, volume, namespace string) (best federation.Access, err error) {
	for _, c := range all {
		if c.Site == n.cfg.Site && c.Namespace == namespace && best != federation.ReadWrite {
			best = c.Access
		}
	}
	if best == "" {
		return "", status.Errorf(codes.PermissionDenied,
			"namespace %s at site %s has no claim of volume %s: make a GeoVolume there that imports it, for which its "+
				"owner has to grant it to the namespace",
			namespace, n.cfg.Site, volume)
	}
	return best, nil
}

// writers counts the namespaces, of all sites, that have claims to write.
func writers(all []federation.Claim) int {
	who := map[[2]string]bool{}
	for _, c := range all {
		if c.Access == federation.ReadWrite {
			who[[2]string{c.Site, c.Namespace}] = true
		}
	}
	return len(who)
}

// made reports whether a namespace of this site is the one that made the volume, by a GeoVolume or
// by a StorageClass.
func (n *Nodes) made(volume, namespace string, claims []federation.Claim) bool {
	v, ok := n.cfg.View.Record(volume)
	if !ok || namespace == "" || v.OwnerSite != n.cfg.Site {
		return false
	}
	return strings.HasPrefix(v.Name, namespace+".") || slices.ContainsFunc(claims, func(c federation.Claim) bool {
		return c.Site == n.cfg.Site && c.Namespace == namespace && c.Kind == federation.ClaimPVC
	})
}

// admit returns the volume's name once the client's address is admitted as the node's.
func (n *Nodes) admit(ctx context.Context, k view.Node, client netip.Addr, access federation.Access) (string, error) {
	if _, there := n.cfg.View.Record(k.Volume); !there {
		if _, _, err := n.cfg.Registry.GetVolume(ctx, k.Volume); errors.Is(err, federation.ErrNotFound) {
			return "", status.Errorf(codes.NotFound, "volume %s: there is none with this UUID", k.Volume)
		} else if err != nil {
			return "", registryError(err)
		}
	}
	if err := n.free(k, client); err != nil {
		return "", err
	}
	want := federation.Admission{Volume: k.Volume, Site: n.cfg.Site, Client: client.String(), Access: access, Node: k.Node}
	put := false
	for {
		changed := n.cfg.View.Changed()
		v, known := n.cfg.View.Record(k.Volume)
		if known && v.Deleted {
			return "", status.Errorf(codes.FailedPrecondition, "volume %s is deleted", v.Name)
		}
		use := n.cfg.View.Use(k.Volume, client)
		if is := use.Recorded; !put && (is == nil || is.Access != access || is.Node != k.Node) {
			if err := n.cfg.Registry.PutAdmission(ctx, want); err != nil {
				return "", registryError(err)
			}
			put = true
		}
		if most := n.cfg.View.Allowed(k.Volume, n.cfg.Site); known && most != federation.ReadWrite && most != access {
			return "", status.Errorf(codes.PermissionDenied,
				"volume %s belongs to %s, who grants site %s %q of it, and node %s is attached for %q: ask the owner for a grant",
				v.Name, v.Owner, n.cfg.Site, cmp.Or(most, "nothing"), k.Node, access)
		}
		there := use.Record != nil && !use.Record.Deleted && n.cfg.Routers.Get(k.Volume) != nil
		if there && use.Admitted && use.Recorded.Node == k.Node && use.Access == access {
			if err := n.settle(ctx, k, client); err != nil {
				return "", err
			}
			return use.Record.Name, nil
		}
		select {
		case <-changed:
		case <-n.cfg.Timers.After(settleLooks):
		case <-ctx.Done():
			return "", status.Errorf(codes.Unavailable,
				"volume %s: the admission of node %s (%s) is not in force yet at gateway %s: ask again",
				k.Volume, k.Node, client, n.cfg.Gateway)
		}
	}
}

// free returns nil if the node may have an address.
func (n *Nodes) free(k view.Node, client netip.Addr) error {
	if other, found := n.cfg.View.HasAddress(client, k.Node); found {
		return status.Errorf(codes.FailedPrecondition,
			"two nodes share an address: gateway %s sees node %s as %s, which is node %s's (volume %s): SNAT or "+
				"masquerading hides the nodes' own addresses, "+
				"and a gateway can not tell them apart; exempt the gateway's address from it", n.cfg.Gateway, k.Node, client,
			other.Node, other.Volume)
	}
	if is := n.cfg.View.Use(k.Volume, client).Recorded; is != nil && is.Node == "" {
		name := k.Volume
		if v, ok := n.cfg.View.Record(k.Volume); ok {
			name = v.Name
		}
		return status.Errorf(codes.FailedPrecondition,
			"address %s of node %s was admitted to volume %s by a person, so that detaching could not end it: take "+
				"that back with `weir volume expel %s --site %s --client %s`",
			client, k.Node, name, name, n.cfg.Site, client)
	}
	return nil
}

// settle checks again, now that the admission is in force, whether another node got the address
// meanwhile. It also removes the node's earlier admissions.
func (n *Nodes) settle(ctx context.Context, k view.Node, client netip.Addr) error {
	if err := n.free(k, client); err != nil {
		return errors.Join(err, n.drop(ctx, k, client))
	}
	for _, old := range n.cfg.View.Addresses(k) {
		if old != client {
			if err := n.drop(ctx, k, old); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Nodes) drop(ctx context.Context, k view.Node, client netip.Addr) error {
	if err := n.cfg.Registry.DeleteAdmission(ctx, k.Volume, n.cfg.Site, client.String()); err != nil {
		return registryError(err)
	}
	return nil
}

// Revoke implements the service.
func (n *Nodes) Revoke(ctx context.Context, q *nodepb.RevokeRequest) (*nodepb.RevokeReply, error) {
	ctx, k, done, err := n.begin(ctx, q.GetVolume(), q.GetNode(), revokeWithin)
	if err != nil {
		return nil, err
	}
	defer done()
	revision, err := n.detached(ctx, k)
	if err != nil {
		return nil, err
	}
	n.cfg.View.Detach(k, revision)
	if v, ok := n.cfg.View.Record(k.Volume); !ok || !v.Deleted { // a deleted volume has no opens and locks
		if err := n.cfg.Server.Expel(ctx, volumeID(k.Volume)); err != nil {
			return nil, status.Errorf(codes.Unavailable, "node %s is not fenced from volume %s yet: %v: ask again", k.Node, v.Name, err)
		}
		// A home took the locks back with the grant, and the volume is not shown any more.
		if r := n.cfg.Routers.Get(k.Volume); ok && r != nil { // without one, the volume is new and nobody has used it
			if err := r.Locks.Fence(ctx); err != nil {
				return nil, status.Errorf(codes.Unavailable, "node %s is not fenced from volume %s yet: %v: ask again", k.Node, v.Name, err)
			}
		}
	}
	for _, client := range n.cfg.View.Addresses(k) {
		if err := n.drop(ctx, k, client); err != nil {
			return nil, err
		}
	}
	for {
		changed := n.cfg.View.Changed()
		if len(n.cfg.View.Addresses(k)) == 0 {
			n.cfg.Logger.Info("node is fenced", "node", k.Node, "volume", k.Volume)
			return &nodepb.RevokeReply{}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, status.Errorf(codes.Unavailable,
				"the removal of the admissions of node %s to volume %s is not heard of yet: ask again", k.Node, k.Volume)
		}
	}
}

// detached makes sure that the node has no attachment, and returns a revision up to which that is
// so.
func (n *Nodes) detached(ctx context.Context, k view.Node) (federation.Revision, error) {
	gone := func() error {
		_, err := n.cfg.Registry.GetAttachment(ctx, n.cfg.Site, k.Volume, k.Node)
		switch {
		case err == nil:
			return status.Errorf(codes.FailedPrecondition,
				"volume %s is attached to node %s: remove the attachment before the node is fenced", k.Volume, k.Node)
		case !errors.Is(err, federation.ErrNotFound):
			return registryError(err)
		}
		return nil
	}
	if err := gone(); err != nil {
		return 0, err
	}
	head, err := n.cfg.Registry.Head(ctx)
	if err != nil {
		return 0, registryError(err)
	}
	// If it is attached again in between, its revision may not be the successor of head's.
	return head.Revision, gone()
}

// lesser returns the access that allows less.
func lesser(a, b federation.Access) federation.Access {
	if a == federation.ReadWrite {
		return b
	}
	return federation.ReadOnly
}
