// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/replica/protocol"
)

// VolumeStatus is a volume as one gateway sees it.
type VolumeStatus struct {
	Name     string                       `json:"name"`
	UUID     string                       `json:"uuid"`
	Gateway  string                       `json:"gateway"` // that says so
	Role     string                       `json:"role"`
	Epoch    uint64                       `json:"epoch"`
	Home     string                       `json:"home"`
	HomeSite string                       `json:"homeSite"`
	Members  []string                     `json:"members"`
	Commit   federation.Position          `json:"commit"`
	End      federation.Position          `json:"end"`
	Stalled  bool                         `json:"stalled"`           // fewer members than wanted: nothing is acknowledged
	Waiting  string                       `json:"waiting,omitempty"` // why writes wait, if for room
	Serving  bool                         `json:"serving"`           // reads are answered here
	Replicas []federation.ObservedReplica `json:"replicas,omitempty"`
	Salvage  []string                     `json:"salvage,omitempty"` // copies set aside at this gateway
	Problem  string                       `json:"problem,omitempty"`
	Leaving  string                       `json:"leaving,omitempty"` // why a copy is still here that is not to be
}

// status describes one volume, or all for "".
func (g *Gateway) status(id string) []VolumeStatus {
	out := []VolumeStatus{}
	_, all := g.mirror.allVolumes()
	for _, v := range all {
		if id != "" && v.UUID != id && v.Name != id {
			continue
		}
		s := VolumeStatus{Name: v.Name, UUID: v.UUID, Gateway: g.cfg.Name, Salvage: g.salvaged(v.UUID)}
		s.Home, s.Epoch = g.mirror.home(v.UUID)
		g.mu.Lock()
		var sv struct {
			copy    *replicaOf
			problem error
		}
		on, open := g.volumes[v.UUID]
		if open {
			if sv.copy, sv.problem = on.copy, on.problem; on.leaving != nil {
				s.Leaving = on.leaving.why
			}
		}
		g.mu.Unlock()
		switch {
		case !open:
			s.Problem = "not open yet"
		case sv.copy == nil && sv.problem != nil:
			s.Problem = sv.problem.Error()
		case sv.copy == nil:
			s.Role = "None"
		default:
			sv.copy.describe(&s, v)
		}
		out = append(out, s)
	}
	return out
}

// describe fills in what the copy says of itself.
func (r *replicaOf) describe(s *VolumeStatus, v federation.Volume) {
	st := r.replica.Status()
	s.Role, s.Epoch, s.Commit, s.End, s.Stalled = st.Role.String(), st.Epoch, federation.Position(st.Commit), federation.Position(st.End), st.Stalled
	s.Waiting, s.Serving = r.replica.Waiting(), r.replica.MayServe() == nil
	if st.Control != nil {
		s.Home, s.HomeSite = st.Control.Home.Gateway, st.Control.Home.Site
		for _, m := range st.Control.Members {
			s.Members = append(s.Members, m.Gateway)
		}
	}
	// The home knows of all gateways of the federation; those are left out that have no copy, and are not to have one.
	for _, x := range r.replica.Lag() {
		if x.State != federation.ReplicaLost || slices.Contains(v.Sites, x.Site) || slices.Contains(s.Members, x.Gateway) {
			s.Replicas = append(s.Replicas, x)
		}
	}
}

// isAlive tells whether that very log's gateway has a heartbeat; the same gateway on an empty pool is another member.
func (g *Gateway) isAlive(m protocol.Member) bool {
	g.mirror.mu.Lock()
	defer g.mirror.mu.Unlock()
	a, ok := g.mirror.alive[m.Gateway]
	return ok && a.Incarnation == m.Incarnation
}

// maybeLost tells what a forced takeover by this gateway may lose.
func (g *Gateway) maybeLost(ctx context.Context, c *replicaOf, home string) string {
	seen, err := g.cfg.Registry.ListObserved(ctx, c.uuid)
	if err != nil {
		return fmt.Sprintf("What it alone has is not known (%v).", err)
	}
	for _, o := range seen {
		if o.Gateway != home {
			continue
		}
		behind := "this copy ends where the home's last report did"
		for _, r := range o.Replicas {
			if r.Gateway == g.cfg.Name && r.LagBytes > 0 {
				behind = fmt.Sprintf("this copy was then %d bytes and %.1f s behind", r.LagBytes, r.LagSeconds)
			}
		}
		return fmt.Sprintf("Writes acknowledged after its last report at %s may be lost; %s.", o.At.UTC().Format(time.RFC3339), behind)
	}
	return "The home never reported: everything that it acknowledged and that is not here may be lost."
}

// identity is whose certificate a call came with; it must be of this federation.
func (g *Gateway) identity(ctx context.Context) (pki.Identity, error) {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return pki.Identity{}, fmt.Errorf("call without a connection")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return pki.Identity{}, fmt.Errorf("call from %s without TLS: use a certificate of federation %s", p.Addr, g.cfg.Federation)
	}
	id, err := pki.PeerIdentity(info.State)
	if err == nil && id.Federation != g.cfg.Federation {
		err = fmt.Errorf("certificate is of federation %q and gateway %s of %q: use a certificate of that one", id.Federation, g.cfg.Name, g.cfg.Federation)
	}
	return id, err
}

// mayMove lets the volume's owner move its home, and this gateway's own organization.
func (g *Gateway) mayMove(ctx context.Context, v federation.Volume) error {
	id, err := g.identity(ctx)
	if err == nil && id.Organization != g.cfg.Organization && id.Organization != v.Owner {
		err = fmt.Errorf("certificate is of organization %q; gateway %s moves volume %s for its owner %q and for organization %q: use a certificate of one of them",
			id.Organization, g.cfg.Name, v.Name, v.Owner, g.cfg.Organization)
	}
	return err
}

// salvagePrefix marks a folder of the pool that holds a copy which was set aside.
const salvagePrefix = "salvage-"

func (g *Gateway) salvaged(id string) []string {
	all, err := g.cfg.Pool.ListVolumes()
	if err != nil {
		return nil
	}
	var out []string
	for _, n := range all {
		if len(n) > len(salvagePrefix)+len(id) && n[:len(salvagePrefix)+len(id)] == salvagePrefix+id {
			out = append(out, n)
		}
	}
	return out
}

// reopenAside closes a volume's copy, keeps it aside, and lets reconcile make a new one.
func (g *Gateway) reopenAside(id string) {
	g.mu.Lock()
	s := g.volumes[id]
	g.mu.Unlock()
	if s == nil || s.copy == nil {
		return
	}
	s.router.setCopy(nil)
	err := s.copy.close()
	g.mu.Lock()
	s.copy = nil
	g.mu.Unlock()
	if err == nil {
		err = g.renew(id, fmt.Sprintf("epoch%d", g.epochOf(id)))
	}
	if err != nil {
		g.cfg.Logger.Error("copy can not be set aside", "volume", id, "error", err)
		g.setAside(id, protocol.Position{})
	}
}

func (g *Gateway) epochOf(id string) uint64 {
	_, e := g.mirror.home(id)
	return e
}

// renew keeps the volume's folder on the pool aside under another name; the next open makes an empty one. It is read-only from then on.
func (g *Gateway) renew(id, why string) error {
	dir, err := g.cfg.Pool.Volume(id)
	if err != nil {
		return err
	}
	path := dir.Path()
	to := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s%s-%s-%d", salvagePrefix, id, why, g.cfg.Now().Unix()))
	if err := os.Rename(path, to); err != nil {
		return fmt.Errorf("set the copy of volume %s aside: %w", id, err)
	}
	return nil
}

// probe is a small file on the pool whose fsync shows that the disk works.
type probe struct {
	file cachepool.File
	n    byte
}

func newProbe(pool cachepool.Pool) (*probe, error) {
	dir, err := pool.Volume("probe")
	if err != nil {
		return nil, err
	}
	f, err := dir.Open("probe")
	if err != nil {
		if f, err = dir.Create("probe"); err != nil {
			return nil, err
		}
	}
	return &probe{file: f}, nil
}

func (p *probe) sync() error {
	p.n++
	if _, err := p.file.WriteAt([]byte{p.n}, 0); err != nil {
		return err
	}
	return p.file.Sync()
}

func (p *probe) close() { _ = p.file.Close() } // nothing of value is in it
