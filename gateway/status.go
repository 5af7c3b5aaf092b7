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

// observeEvery is how often a home writes what it observes to the registry, for people who can not reach it.
const observeEvery = 5 * time.Second

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
	Stalled  bool                         `json:"stalled"` // fewer members than wanted: nothing is acknowledged
	Serving  bool                         `json:"serving"` // reads are answered here
	Replicas []federation.ObservedReplica `json:"replicas,omitempty"`
	Salvage  []string                     `json:"salvage,omitempty"` // copies set aside at this gateway
	Problem  string                       `json:"problem,omitempty"`
}

// status describes one volume, or all for "".
func (g *Gateway) status(id string) []VolumeStatus {
	out := []VolumeStatus{}
	for _, v := range g.mirror.allVolumes() {
		if id != "" && v.UUID != id && v.Name != id {
			continue
		}
		s := VolumeStatus{Name: v.Name, UUID: v.UUID, Gateway: g.cfg.Name, Salvage: g.salvaged(v.UUID)}
		s.Home, s.Epoch = g.mirror.home(v.UUID)
		g.mu.Lock()
		sv := g.volumes[v.UUID]
		g.mu.Unlock()
		switch {
		case sv == nil:
			s.Problem = "not open yet"
		case sv.copy == nil && sv.problem != nil:
			s.Problem = sv.problem.Error()
		case sv.copy == nil:
			s.Role = "None"
		default:
			c := sv.copy
			st := c.replica.Status()
			s.Role, s.Epoch, s.Commit, s.End, s.Stalled = st.Role.String(), st.Epoch, federation.Position(st.Commit), federation.Position(st.End), st.Stalled
			s.Serving = c.replica.MayServe() == nil
			s.Replicas = c.replica.Lag()
			if st.Control != nil {
				s.Home, s.HomeSite = st.Control.Home.Gateway, st.Control.Home.Site
				for _, m := range st.Control.Members {
					s.Members = append(s.Members, m.Gateway)
				}
			}
		}
		out = append(out, s)
	}
	return out
}

// observe writes a home's view to the registry.
func (g *Gateway) observe(ctx context.Context, c *replicaOf) error {
	st := c.replica.Status()
	o := federation.Observed{Volume: c.uuid, Gateway: g.cfg.Name, Epoch: st.Epoch, Home: g.cfg.Name, Commit: federation.Position(st.Commit),
		Replicas: c.replica.Lag(), At: g.cfg.Now()}
	if st.Stalled {
		o.Message = "fewer members than wanted: writes wait"
	}
	return g.cfg.Registry.PutObserved(ctx, o)
}

func (g *Gateway) isAlive(gateway string) bool { return slices.Contains(g.mirror.living(), gateway) }

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

// isOperator lets in who has a certificate of this gateway's organization.
func (g *Gateway) isOperator(ctx context.Context) error {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return fmt.Errorf("call without a connection")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return fmt.Errorf("call without TLS")
	}
	id, err := pki.PeerIdentity(info.State)
	if err != nil {
		return err
	}
	if id.Organization != g.cfg.Organization || id.Federation != g.cfg.Federation {
		return fmt.Errorf("certificate is of organization %q in federation %q, and gateway %s obeys operators of organization %q in %q: use a certificate of that organization",
			id.Organization, id.Federation, g.cfg.Name, g.cfg.Organization, g.cfg.Federation)
	}
	return nil
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
