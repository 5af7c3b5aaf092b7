// SPDX-License-Identifier: Apache-2.0

package checking

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/jonboulle/clockwork"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
)

// ChecksConfig has what Checks need.
type ChecksConfig struct {
	Gateway, Site, Organization string
	View                        *view.View
	Copies                      *copies.Manager
	Store                       store.Store // of the site; nil: it has none
	Now                         func() time.Time
	Timers                      clockwork.Clock
	Logger                      *slog.Logger
	// Caller returns who calls.
	Caller func(ctx context.Context) (pki.Identity, error)
}

// Checks check the copies of one gateway, one at a time. Any goroutine may call their methods.
type Checks struct {
	cfg  ChecksConfig
	turn chan struct{}
}

// New returns Checks.
func New(cfg ChecksConfig) *Checks { return &Checks{cfg: cfg, turn: make(chan struct{}, 1)} }

// tellEvery is how often a caller is told how far a check is, at most.
const tellEvery = 250 * time.Millisecond

// Check implements forwardpb.ForwardServer's method, for the gateway's own organization and for
// the volume's. Errors are a gRPC status. NOT_FOUND: the volume has no copy here that is open.
func (s *Checks) Check(q *forwardpb.CheckRequest, to forwardpb.Forward_CheckServer) error {
	ctx := to.Context()
	id, err := s.cfg.Caller(ctx)
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	v, known := s.cfg.View.Record(q.GetVolume())
	if id.Organization != s.cfg.Organization && (!known || id.Organization != v.Owner) {
		return status.Errorf(codes.PermissionDenied, "certificate is of organization %q: gateway %s checks for organization %q and for "+
			"that of the volume only: use a certificate of one of them", id.Organization, s.cfg.Gateway, s.cfg.Organization)
	}
	if !known {
		return status.Errorf(codes.NotFound, "volume %q: there is none with this UUID", q.GetVolume())
	}
	var last time.Time
	var unsent error
	tell := func(p Progress) {
		if now := s.cfg.Now(); unsent == nil && (now.Sub(last) >= tellEvery || now.Before(last)) {
			last = now
			unsent = to.Send(&forwardpb.CheckPart{Step: p.Step, Done: p.Done, Total: p.Total, Bytes: p.Bytes})
		}
	}
	select {
	case s.turn <- struct{}{}:
	default:
		tell(Progress{Step: "waiting for another check at this gateway"})
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { <-s.turn }()
	is, _ := s.cfg.Copies.State(q.GetVolume())
	if is.Copy == nil {
		return status.Errorf(codes.NotFound, "volume %s has no copy at gateway %s, or it is not open: see weir status", v.Name,
			s.cfg.Gateway)
	}
	r, err := s.run(ctx, is.Copy, Config{Volume: q.GetVolume(), Data: q.GetData(), Repair: q.GetRepair(), Progress: tell})
	if r == nil {
		return status.Errorf(codes.Unavailable, "check volume %s: %s", v.Name, err)
	}
	if err == nil && q.GetRepair() {
		err = s.remake(ctx, v, is.Copy, r, tell)
	}
	r.Volume, r.Gateway, r.Site = v.Name, s.cfg.Gateway, s.cfg.Site
	for i := range r.Damage {
		d := &r.Damage[i]
		s.cfg.Logger.Warn("a check that a person asked for found something", "volume", v.Name, "where", d.Where, "kind", d.Kind,
			"path", d.Path, "segment", d.Segment, "detail", d.Detail, "repaired", d.Repaired)
	}
	if to.Context().Err() != nil {
		return to.Context().Err()
	}
	b, jerr := json.Marshal(r)
	if jerr != nil {
		return status.Error(codes.Internal, jerr.Error())
	}
	part := &forwardpb.CheckPart{Json: b}
	if err != nil {
		part.Failed = err.Error()
	}
	return to.Send(part)
}

// run checks a copy; a nil report: it is being closed.
func (s *Checks) run(ctx context.Context, c *copies.Copy, cfg Config) (*Report, error) {
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if cfg.Log, cfg.Engine, cfg.Store, cfg.Fetching = c.Log, c.Engine, s.cfg.Store, true; !c.Blind() {
		cfg.Keys = c.Keys()
		is := checkpoints.Copy{UUID: cfg.Volume, Engine: c.Engine, Log: c.Log, Replica: c.Replica, Keys: cfg.Keys, Use: c.Use}
		cfg.HealPack = func(ctx context.Context, number uint64) error {
			return s.cfg.Copies.Checkpoints().HealPack(ctx, is, number)
		}
	}
	_, cfg.Home = c.Leading()
	cfg.Differs = s.cfg.Copies.Checkpoints().Condition(cfg.Volume).Differs
	return Run(ctx, cfg)
}
