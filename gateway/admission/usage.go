// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/users"
	"github.com/weir-storage/weir/gateway/identity"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/gateway/settings"
	"github.com/weir-storage/weir/volume"
)

// usageWithin is how long Usage waits for a home.
const usageWithin = 2 * time.Second

// volumeID returns a volume's UUID as a volume.ID; zero for text that is not a UUID.
func volumeID(text string) volume.ID {
	id, _ := uuid.Parse(text) // uuid.Nil on an error, which no volume has
	return volume.ID(id)
}

// Usage implements the service.
func (n *Nodes) Usage(ctx context.Context, q *nodepb.UsageRequest) (*nodepb.UsageReply, error) {
	if err := n.mayCall(ctx); err != nil {
		return nil, err
	}
	v, ok := n.cfg.View.Record(q.GetVolume())
	if !ok || v.Deleted {
		n.mu.Lock()
		delete(n.last, q.GetVolume())
		n.mu.Unlock()
		return nil, status.Errorf(codes.NotFound, "volume %q: there is none with this UUID, or it is deleted", q.GetVolume())
	}
	reply := &nodepb.UsageReply{CapacityBytes: uint64(v.Spec.Size)}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, usageWithin)
	defer cancel()
	if space, earlier, ok := n.space(ctx, v.UUID); ok {
		reply.Known, reply.Earlier, reply.CapacityBytes, reply.Inodes = true, earlier, space.TotalBytes, space.TotalInodes
		reply.UsedBytes, reply.UsedInodes = space.TotalBytes-space.FreeBytes, space.TotalInodes-space.FreeInodes
	}
	if !reply.GetKnown() {
		n.reported(caller, v, reply)
	}
	home, err := n.cfg.Reporter.HomeStatus(ctx, v)
	switch {
	case err != nil:
		reply.Message = err.Error()
	default:
		reply.Message = home.Trouble(home.Silent(), settings.Policy(v).Want)
	}
	if reply.Message == "" && (!reply.Known || reply.Earlier) {
		reply.Message = "its home does not say how full it is"
	}
	reply.Healthy = reply.Message == ""
	return reply, nil
}

// space asks a volume's home how full it is. If the home does not answer, it returns what that
// answered last, if it did: who watches a volume's room must not see it become empty.
func (n *Nodes) space(ctx context.Context, uuid string) (space volume.Space, earlier, ok bool) {
	err := errors.New("the volume is not open here")
	if r := n.cfg.Routers.Get(uuid); r != nil {
		space, err = r.Space(ctx)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.last[uuid] = space
		return space, false, true
	}
	space, ok = n.last[uuid]
	return space, true, ok
}

// reported fills the reply with what the volume's last home reported to the registry, if it did:
// this gateway may have started since, and asked no home yet. Files are not counted there.
func (n *Nodes) reported(ctx context.Context, v federation.Volume, reply *nodepb.UsageReply) {
	ctx, cancel := context.WithTimeout(ctx, usageWithin)
	defer cancel()
	all, err := n.cfg.Registry.ListObserved(ctx, v.UUID)
	if err != nil {
		return // the reply says that it is not known
	}
	var last federation.Observed
	for _, o := range all {
		if o.Epoch > last.Epoch {
			last = o
		}
	}
	if last.Used == 0 {
		return
	}
	reply.Known, reply.Earlier, reply.UsedBytes = true, true, min(uint64(last.Used), reply.GetCapacityBytes())
}

// mounts refuses volumes that take no requests of the kind that nodes send.
func (n *Nodes) mounts(id string, tls bool) error {
	v, _ := n.cfg.View.Record(id)
	switch c := v.ClientsAt(n.cfg.Site); {
	case c.Ports == users.PortsPrivileged:
		return status.Errorf(codes.FailedPrecondition, "volume %s takes requests from ports below 1024 only, and nodes of Kubernetes send "+
			"none: its owner says otherwise with `weir volume clients`", v.Name)
	case c.Certificates == users.CertificatesRequired && !tls:
		return status.Errorf(codes.FailedPrecondition, "volume %s takes requests of clients only that show a certificate, and this site's "+
			"nodes show none: set csi.node.tls of the chart, or its owner says otherwise with `weir volume clients`", v.Name)
	}
	return nil
}

// rootGroup is the volume's group for which a node asks to make the root writable; false: none. It
// is none too where the volume's owner says who the users of another organization's clients are:
// then they do not decide about its root; and for a group that is nobody's.
func (n *Nodes) rootGroup(id string, q *nodepb.AdmitRequest) (uint32, bool) {
	if q.MountGroup == nil {
		return 0, false
	}
	v, _ := n.cfg.View.Record(id)
	foreign, _ := n.cfg.View.Foreign(id, n.cfg.Site)
	group, ok := identity.New(v.ClientsAt(n.cfg.Site)).Group(q.GetMountGroup())
	if ok = ok && identity.New(foreign) == nil; !ok {
		n.cfg.Logger.Info("the root keeps its group: the volume's owner says who the users of this site's clients are", "volume", id,
			"asked", q.GetMountGroup())
	}
	return group, ok
}

// rootTries is how often setting the root's group is tried while its outcome is not known.
const rootTries = 5

// giveRoot makes the root directory writable for a group, wherever the home is. What is created in
// it belongs to that group (admission-5). With yields, a group that the root has stays.
func (n *Nodes) giveRoot(ctx context.Context, id string, group uint32, yields bool) error {
	const bits = 0o2770
	v := n.cfg.Routers.Get(id)
	if v == nil {
		return errors.New("the volume is not open here")
	}
	var err error
	for range rootTries {
		var a volume.Attr
		if a, err = v.GetAttr(ctx, volume.Request{}, volume.Root); err != nil {
			return err
		}
		mode := a.Mode | bits
		if a.GID == group && a.Mode == mode {
			return nil
		}
		if yields && a.GID != 0 && a.GID != group {
			n.cfg.Logger.Info("the root keeps its group: it is for the namespace that made the volume to change it", "volume", id,
				"group", a.GID, "asked", group)
			return nil
		}
		// Setting it twice does no harm, so it needs no OpID.
		_, err = v.SetAttr(ctx, volume.Request{}, volume.Root, volume.SetAttr{GID: &group, Mode: &mode})
		if err != nil && !errors.Is(err, volume.ErrUnknown) {
			return err
		}
	}
	if err == nil {
		err = errors.New("it changes all the time")
	}
	return err
}
