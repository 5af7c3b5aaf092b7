// SPDX-License-Identifier: Apache-2.0

package space

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
)

// Config has what a Counter needs.
type Config struct {
	Gateway, Site, Organization string
	View                        *view.View
	Copies                      *copies.Manager
	Store                       store.Store // of the site; nil: it has none
	// Caller returns who calls.
	Caller func(ctx context.Context) (pki.Identity, error)
}

// Counter counts what the copies of one gateway take. Any goroutine may call its methods.
type Counter struct {
	cfg  Config
	turn chan struct{} // one count at a time: each reads all extents of a volume, and lists the store
}

// New returns a Counter.
func New(cfg Config) *Counter { return &Counter{cfg: cfg, turn: make(chan struct{}, 1)} }

// Space implements forwardpb.ForwardServer's method, for the gateway's own organization and for
// the volume's. Errors are a gRPC status. NOT_FOUND: the volume has no copy here.
func (c *Counter) Space(ctx context.Context, q *forwardpb.SpaceRequest) (*forwardpb.SpaceReply, error) {
	id, err := c.cfg.Caller(ctx)
	if err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	v, known := c.cfg.View.Record(q.GetVolume())
	if id.Organization != c.cfg.Organization && (!known || id.Organization != v.Owner) {
		return nil, status.Errorf(codes.PermissionDenied, "certificate is of organization %q: gateway %s tells this to organization %q "+
			"and to that of the volume only: use a certificate of one of them", id.Organization, c.cfg.Gateway, c.cfg.Organization)
	}
	if !known {
		return nil, status.Errorf(codes.NotFound, "volume %q: there is none with this UUID", q.GetVolume())
	}
	r, err := c.Count(ctx, q.GetVolume())
	switch {
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "count what volume %s takes: %s", v.Name, err)
	case r == nil:
		return nil, status.Errorf(codes.NotFound, "volume %s has no copy at gateway %s, or it is not open: see weir status", v.Name,
			c.cfg.Gateway)
	}
	r.Volume = v.Name
	b, err := json.Marshal(r)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &forwardpb.SpaceReply{Json: b}, nil
}

// Count counts what a volume takes; nil: it has no copy here that is open. It waits while another
// volume is counted.
func (c *Counter) Count(ctx context.Context, volume string) (*Report, error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.turn }()
	is, ok := c.cfg.Copies.State(volume)
	if !ok || is.Copy == nil {
		return nil, nil
	}
	here := is.Copy
	ctx, done, err := here.Use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	r := &Report{UUID: volume, Gateway: c.cfg.Gateway, Site: c.cfg.Site, Blind: here.Blind(), Pool: Pool{
		Log: int64(here.Log.LocalBytes()), Metadata: here.MetadataBytes(), Lacking: int64(here.Log.AbsentBytes())}}
	if s, err := here.Space(ctx); err == nil {
		r.Held = &Held{Bytes: s.TotalBytes - s.FreeBytes, Size: s.TotalBytes, Files: s.TotalInodes - s.FreeInodes, MaxFiles: s.TotalInodes}
	}
	if c.cfg.Store == nil {
		return r, nil
	}
	n := count{volume: volume, store: c.cfg.Store, log: here.Log}
	if here.Blind() {
		n.needed = func(context.Context, []string) (h checkpoints.Needed, err error) { return h, nil }
		n.condemned = func() (map[uint64]uint64, error) { return nil, nil }
	} else {
		var u engine.Usage
		if u, err = here.Engine.Usage(ctx); err != nil {
			return nil, err
		}
		n.usage, n.condemned, n.now = &u, here.Engine.Condemned, here.Engine.Packs
		newest, _ := here.Keys().Newest()
		for _, number := range slices.Sorted(maps.Keys(u.Keys)) {
			r.Keys = append(r.Keys, Key{number, u.Keys[number], number == newest})
		}
		n.needed = func(ctx context.Context, manifests []string) (checkpoints.Needed, error) {
			now, err := here.Engine.Checkpoints()
			if err != nil {
				return checkpoints.Needed{}, fmt.Errorf("what is known of checkpoints: %w", err)
			}
			return c.cfg.Copies.Checkpoints().Needed(ctx, volume, now.Made, here.Keys(), manifests)
		}
	}
	r.Store, err = n.run(ctx)
	return r, err
}
