// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/node/nodepb"
)

// nodes is what this site's nodes and its CSI controller call. It is the one writer of admissions with a node.
//
// A node is fenced in this order: its attachment is gone from the registry, read with a quorum; it does not count here any more, whatever the
// watch has told; the NFS server has drained the node's requests and given up its locks; the home has ended what was given up here, or sent
// by a former process of this gateway; its admissions are removed. Who asks again after a failure finds what is left to do.
type nodes struct {
	nodepb.UnimplementedNodeServer
	g *Gateway

	mu   sync.Mutex
	busy map[attachmentKey]chan struct{} // admitting or revoking
}

// Bounds of one call, besides the caller's own.
const (
	admitWithin  = 20 * time.Second
	revokeWithin = 30 * time.Second
)

func newNodes(g *Gateway) *nodes { return &nodes{g: g, busy: map[attachmentKey]chan struct{}{}} }

// alone waits until nobody else admits or revokes k.
func (n *nodes) alone(ctx context.Context, k attachmentKey) (done func(), err error) {
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
			return nil, status.Errorf(codes.Unavailable, "node %s: another call for it and volume %s is under way: ask again", k.node, k.volume)
		}
	}
}

// begin checks the caller and the request, and waits its turn.
func (n *nodes) begin(ctx context.Context, volume, node string, within time.Duration) (_ context.Context, _ attachmentKey, done func(), err error) {
	k := attachmentKey{volume, node}
	if err := n.mayCall(ctx); err != nil {
		return ctx, k, nil, err
	}
	if id, err := uuid.Parse(volume); err != nil || id.String() != volume {
		return ctx, k, nil, status.Errorf(codes.InvalidArgument, "volume is %q: write its UUID in lower case", volume)
	}
	a := federation.Attachment{Volume: volume, Site: n.g.cfg.Site, Node: node, Access: federation.ReadOnly}
	if err := a.Validate(); err != nil {
		return ctx, k, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if end, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(end)*9/10) // the caller is to hear what it waits for
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	select {
	case <-n.g.ready:
	default:
		cancel()
		return ctx, k, nil, status.Errorf(codes.Unavailable, "gateway %s has not heard yet what the registry says: ask again", n.g.cfg.Name)
	}
	turn, err := n.alone(ctx, k)
	if err != nil {
		cancel()
		return ctx, k, nil, err
	}
	return ctx, k, func() { turn(); cancel() }, nil
}

// mayCall lets only this site's own callers in.
func (n *nodes) mayCall(ctx context.Context) error {
	id, err := n.g.identity(ctx)
	if err == nil && (id.Organization != n.g.cfg.Organization || id.Site != n.g.cfg.Site) {
		err = fmt.Errorf("certificate is of site %q of organization %q, and gateway %s serves the nodes of site %q of %q: use a certificate of that site",
			id.Site, id.Organization, n.g.cfg.Name, n.g.cfg.Site, n.g.cfg.Organization)
	}
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}

// Admit implements the service.
func (n *nodes) Admit(ctx context.Context, q *nodepb.AdmitRequest) (*nodepb.AdmitReply, error) {
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
	access := attachment.Access
	if ns := q.GetNamespace(); ns != "" {
		claimed, err := n.claimed(ctx, k.volume, ns)
		if err != nil {
			return nil, err
		}
		access = lesser(access, claimed)
	}
	name, err := n.admit(ctx, k, client, attachment.Access)
	if err != nil {
		return nil, err
	}
	if q.MountGroup != nil && access == federation.ReadWrite {
		if err := n.g.giveRoot(ctx, k.volume, q.GetMountGroup()); err != nil {
			return nil, status.Errorf(codes.Unavailable, "volume %s: its root is not group %d's yet: %v", name, q.GetMountGroup(), err)
		}
	}
	_, text, err := net.SplitHostPort(n.g.cfg.NFSAddr)
	port, perr := strconv.ParseUint(text, 10, 16)
	if err := errors.Join(err, perr); err != nil {
		return nil, status.Errorf(codes.Internal, "gateway %s: its NFS address is %q: correct its configuration: %v", n.g.cfg.Name, n.g.cfg.NFSAddr, err)
	}
	reply := &nodepb.AdmitReply{Export: "/" + name, NfsPort: uint32(port), Access: nodepb.Access_ACCESS_READ_ONLY, Address: client.String()}
	if access == federation.ReadWrite {
		reply.Access = nodepb.Access_ACCESS_READ_WRITE
	}
	return reply, nil
}

// peerAddress is the caller's, as NFS connections from there are seen too.
func peerAddress(ctx context.Context) (netip.Addr, error) {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		if at, err := netip.ParseAddrPort(p.Addr.String()); err == nil {
			return at.Addr().Unmap().WithZone(""), nil
		}
	}
	return netip.Addr{}, status.Error(codes.InvalidArgument, "the call comes from no IP address: call over TCP")
}

// attachment reads the node's attachment with a quorum. It counts from then on, whatever was before.
func (n *nodes) attachment(ctx context.Context, k attachmentKey) (federation.Attachment, error) {
	a, err := n.g.cfg.Registry.GetAttachment(ctx, n.g.cfg.Site, k.volume, k.node)
	switch {
	case errors.Is(err, federation.ErrNotFound):
		return a, status.Errorf(codes.PermissionDenied, "volume %s is not attached to node %s at site %s: the CSI controller attaches it when a pod is scheduled there", k.volume, k.node, n.g.cfg.Site)
	case err != nil:
		return a, registryError(err)
	}
	n.g.mirror.attachedAgain(k)
	return a, nil
}

// registryError is an answer to a registry that does not give one.
func registryError(err error) error {
	return status.Errorf(codes.Unavailable, "the registry is needed for this: %v: ask again", err)
}

// claimed is the most that claims of a namespace at this site allow.
func (n *nodes) claimed(ctx context.Context, volume, namespace string) (federation.Access, error) {
	all, err := n.g.cfg.Registry.ListClaims(ctx, volume)
	if err != nil {
		return "", registryError(err)
	}
	var best federation.Access
	for _, c := range all {
		if c.Site == n.g.cfg.Site && c.Namespace == namespace && best != federation.ReadWrite {
			best = c.Access
		}
	}
	if best == "" {
		return "", status.Errorf(codes.PermissionDenied, "namespace %s at site %s has no claim of volume %s: make a GeoVolume there that imports it, for which its owner has to grant it to the namespace",
			namespace, n.g.cfg.Site, volume)
	}
	return best, nil
}

// admit has the client's address in force as the node's, and returns the volume's name.
func (n *nodes) admit(ctx context.Context, k attachmentKey, client netip.Addr, access federation.Access) (string, error) {
	g := n.g
	if _, there := g.mirror.volume(k.volume); !there {
		if _, _, err := g.cfg.Registry.GetVolume(ctx, k.volume); errors.Is(err, federation.ErrNotFound) {
			return "", status.Errorf(codes.NotFound, "volume %s: there is none with this UUID", k.volume)
		} else if err != nil {
			return "", registryError(err)
		}
	}
	if err := n.free(k, client); err != nil {
		return "", err
	}
	want := federation.Admission{Volume: k.volume, Site: g.cfg.Site, Client: client.String(), Access: access, Node: k.node}
	put := false
	for {
		changed := g.mirror.wait()
		v, known := g.mirror.volume(k.volume)
		if known && v.Deleted {
			return "", status.Errorf(codes.FailedPrecondition, "volume %s is deleted", v.Name)
		}
		if is, ok := g.mirror.recorded(k.volume, client); !put && (!ok || is != admitted{access, k.node}) {
			if err := g.cfg.Registry.PutAdmission(ctx, want); err != nil {
				return "", registryError(err)
			}
			put = true
		}
		now, node, ok := g.mirror.admission(k.volume, client)
		_, _, err := exports{g}.Open(client, routerID(k.volume))
		if ok && node == k.node && now == access && err == nil {
			if err := n.settle(ctx, k, client); err != nil {
				return "", err
			}
			return v.Name, nil
		}
		select {
		case <-changed:
		case <-time.After(retryPause): // the volume may be opened here, which the mirror does not tell
		case <-ctx.Done():
			return "", status.Errorf(codes.Unavailable, "volume %s: the admission of node %s (%s) is not in force yet at gateway %s: ask again", k.volume, k.node, client, g.cfg.Name)
		}
	}
}

// free tells whether the node may have an address.
func (n *nodes) free(k attachmentKey, client netip.Addr) error {
	if other, volume, found := n.g.mirror.holder(client, k.node); found {
		return status.Errorf(codes.FailedPrecondition, "two nodes share an address: gateway %s sees node %s as %s, which is node %s's (volume %s): SNAT or masquerading hides the nodes' own addresses, "+
			"and a gateway can not tell them apart; exempt the gateway's address from it", n.g.cfg.Name, k.node, client, other, volume)
	}
	if is, ok := n.g.mirror.recorded(k.volume, client); ok && is.node == "" {
		name := k.volume
		if v, ok := n.g.mirror.volume(k.volume); ok {
			name = v.Name
		}
		return status.Errorf(codes.FailedPrecondition, "address %s of node %s was admitted to volume %s by a person, so that detaching could not end it: take that back with `weir volume expel %s --site %s --client %s`",
			client, k.node, name, name, n.g.cfg.Site, client)
	}
	return nil
}

// settle looks again, now that the admission is in force, whether somebody else got the address meanwhile, and removes those that the
// node had before.
func (n *nodes) settle(ctx context.Context, k attachmentKey, client netip.Addr) error {
	if err := n.free(k, client); err != nil {
		return errors.Join(err, n.drop(ctx, k, client))
	}
	for _, old := range n.g.mirror.addresses(k) {
		if old != client {
			if err := n.drop(ctx, k, old); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *nodes) drop(ctx context.Context, k attachmentKey, client netip.Addr) error {
	if err := n.g.cfg.Registry.DeleteAdmission(ctx, k.volume, n.g.cfg.Site, client.String()); err != nil {
		return registryError(err)
	}
	return nil
}

// Revoke implements the service.
func (n *nodes) Revoke(ctx context.Context, q *nodepb.RevokeRequest) (*nodepb.RevokeReply, error) {
	ctx, k, done, err := n.begin(ctx, q.GetVolume(), q.GetNode(), revokeWithin)
	if err != nil {
		return nil, err
	}
	defer done()
	g := n.g
	revision, err := n.detached(ctx, k)
	if err != nil {
		return nil, err
	}
	g.mirror.detach(k, revision)
	if v, ok := g.mirror.volume(k.volume); ok && !v.Deleted { // of a deleted volume, nobody has anything
		if err := g.nfs.Expel(ctx, routerID(k.volume)); err != nil {
			return nil, status.Errorf(codes.Unavailable, "node %s is not fenced from volume %s yet: %v: ask again", k.node, v.Name, err)
		}
		if s := g.served(k.volume); s != nil { // else it is newer than this process, and nobody has used it
			if err := s.router.fence(ctx); err != nil {
				return nil, status.Errorf(codes.Unavailable, "node %s is not fenced from volume %s yet: %v: ask again", k.node, v.Name, err)
			}
		}
	}
	for _, client := range g.mirror.addresses(k) {
		if err := n.drop(ctx, k, client); err != nil {
			return nil, err
		}
	}
	for {
		changed := g.mirror.wait()
		if len(g.mirror.addresses(k)) == 0 {
			g.cfg.Logger.Info("node is fenced", "node", k.node, "volume", k.volume)
			return &nodepb.RevokeReply{}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, status.Errorf(codes.Unavailable, "the removal of the admissions of node %s to volume %s is not heard of yet: ask again", k.node, k.volume)
		}
	}
}

// detached makes sure that the node has no attachment, and returns a revision up to which that is so.
func (n *nodes) detached(ctx context.Context, k attachmentKey) (federation.Revision, error) {
	gone := func() error {
		_, err := n.g.cfg.Registry.GetAttachment(ctx, n.g.cfg.Site, k.volume, k.node)
		switch {
		case err == nil:
			return status.Errorf(codes.FailedPrecondition, "volume %s is attached to node %s: remove the attachment before the node is fenced", k.volume, k.node)
		case !errors.Is(err, federation.ErrNotFound):
			return registryError(err)
		}
		return nil
	}
	if err := gone(); err != nil {
		return 0, err
	}
	head, err := n.g.cfg.Registry.Head(ctx)
	if err != nil {
		return 0, registryError(err)
	}
	// Attached again in between, it might have a revision that is not head's successor.
	return head.Revision, gone()
}
