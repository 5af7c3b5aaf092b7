// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/fill"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/gateway/locks"
	"github.com/weir-storage/weir/gateway/peers"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/track"
	"github.com/weir-storage/weir/volume"
)

// Config is what all Routers of a gateway share.
type Config struct {
	Gateway     string // this one
	Site        string
	Incarnation string // of its pool
	Boot        uint64 // grows with each start of the process
	Promise     time.Duration
	View        *view.View
	Peers       *peers.Peers
	Registry    Registry
	Clock       func() time.Duration // monotonic, counts suspend
	Timers      clockwork.Clock
	Logger      *slog.Logger
	// Recovering reports whether clients of this gateway still reclaim what they held before it
	// restarted.
	Recovering func() bool
	// Reclaiming is Recovering for code that the NFS server calls with its locks held. It may stay
	// true a little longer.
	Reclaiming func() bool
	// Verifier returns the write verifier of an epoch (protocol-24).
	Verifier func(epoch uint64) volume.Verifier
	// Prefetch returns who is told what clients read.
	Prefetch func() Prefetch
	// Forwarded is told of each operation of a client that another gateway, the home, was asked
	// for. nil: nobody is. It must not block.
	Forwarded func(took time.Duration, err error)
	// Slow logs the operations of other gateways that take long here. Tracer follows them; nil:
	// nobody does.
	Slow   *track.Slow
	Tracer track.Tracer
	// Revoke revokes a client's lock, and reports whether the client is informed.
	Revoke func(id volume.ID, h volume.Handle, owner volume.LockOwner) (told bool)
}

// Prefetch is told what clients find and read of what is open here of a volume. It must not block.
type Prefetch interface {
	Found(local *copies.Local, dir volume.Handle, name string, f volume.Attr)
	Reads(local *copies.Local, f volume.Handle)
}

// Router is a volume as this gateway's clients see it. It implements volume.Volume. Its methods may
// be called from many goroutines.
type Router struct {
	cfg  *Config
	id   volume.ID
	uuid string

	// Locks registers the locks of this gateway's clients.
	Locks *locks.Registrar

	mu    sync.Mutex
	local *copies.Copy // nil: there is none, or it is not open yet
	// outline is what is here of a volume without a copy; nil: nothing.
	outline *copies.Outline
	holds   map[volume.Handle]int
	fresh   freshAttrs
	told    told
}

func newRouter(cfg *Config, id volume.ID) *Router {
	v := &Router{cfg: cfg, id: id, uuid: id.String(), holds: map[volume.Handle]int{}, fresh: freshAttrs{}}
	v.Locks = locks.NewRegistrar(locks.RegistrarConfig{
		Volume: v.uuid, Gateway: cfg.Gateway, Site: cfg.Site, Incarnation: cfg.Incarnation, Boot: cfg.Boot, View: cfg.View,
		Registry: cfg.Registry, Clock: cfg.Clock, Timers: cfg.Timers, Home: v, Recovering: cfg.Recovering, Lost: v.lockLost,
	})
	return v
}

var _ volume.Volume = (*Router)(nil)

// result is the result of an operation at the home.
type result struct {
	epoch   uint64           // of the home
	applied journal.Position // position to apply here before the client is answered
	remote  bool             // the home is another gateway
}

// Copy returns the local copy; nil: there is none.
func (v *Router) Copy() *copies.Copy {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.local
}

// setCopy makes l the local copy; nil: there is none. The open files are held at the copy before
// anybody else uses it.
func (v *Router) setCopy(l *copies.Copy) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.local = l
	if l != nil {
		for h, n := range v.holds {
			for range n {
				l.Engine.Retain(h)
			}
		}
	}
}

// change executes an operation that changes the volume, and waits until the change is applied here
// (protocol-25).
func (v *Router) change(ctx context.Context, r volume.Request, op func(ctx context.Context, t forward.Home) error) (result, error) {
	out, err := v.atHome(ctx, r, r.ID != (volume.OpID{}), op)
	if out.remote && out.applied != (journal.Position{}) {
		v.catchUp(ctx, out.applied)
	}
	return out, err
}

// catchUp waits until the local copy has applied pos, and reports whether it has. It does not wait
// for a copy that may not serve reads: the home is asked instead.
func (v *Router) catchUp(ctx context.Context, pos journal.Position) bool {
	l := v.Copy()
	if l == nil || l.MayServe() != nil {
		return false
	}
	ctx, done, err := l.Use(ctx)
	if err != nil {
		return false
	}
	defer done()
	ctx, fresh := track.Begin(ctx, track.Fresh)
	defer fresh()
	ctx, cancel := context.WithTimeout(ctx, v.cfg.Promise)
	defer cancel()
	// If pos is not applied in time, the lease has ended and reads go to the home.
	return l.Engine.WaitApplied(ctx, pos) == nil
}

// read executes an operation that changes nothing: on the local copy if it may serve, or may show
// an earlier state that is young enough and has all that this gateway's clients saw, else at the
// home.
func (v *Router) read(ctx context.Context, r volume.Request, op func(ctx context.Context, t volume.Reader) error) error {
	ctx, done := either(ctx, r.Yield) // it changes nothing, and can be given up at any time
	defer done()
	err := v.readAnywhere(ctx, r, op)
	if r.Yield != nil && r.Yield.Err() != nil && (errors.Is(err, volume.ErrUnknown) || errors.Is(err, context.Canceled)) {
		err = fmt.Errorf("%w: given up: %v", volume.ErrDelay, err)
	}
	return err
}

func (v *Router) readAnywhere(ctx context.Context, r volume.Request, op func(ctx context.Context, t volume.Reader) error) error {
	l := v.Copy()
	if l != nil && l.Bounded() {
		// It is told once what must be there: whether it may be an earlier state is decided there.
		both, done := either(journal.Earlier(ctx, v.newest()), r.Revoked)
		err := readLocal(both, l, op)
		done()
		if !errors.Is(err, volume.ErrDelay) && !errors.Is(err, volume.ErrStale) && !errors.Is(err, volume.ErrIO) {
			return err
		}
	}
	if o := v.Outline(); l == nil && o != nil {
		if err, ok := v.readOutline(ctx, r, o, op); ok {
			return err
		}
	}
	if l != nil {
		l.Replica.Wanted()
	}
	if l != nil && l.MayServe() == nil {
		// The home may wait for its members until an operator brings them back.
		both, done := either(ctx, r.Revoked)
		err := readLocal(both, l, op)
		done()
		if !errors.Is(err, volume.ErrDelay) {
			return err
		}
	}
	return v.AtHome(ctx, r, true, func(ctx context.Context, t forward.Home) error { return op(ctx, t) })
}

// readOutline executes an operation that changes nothing on an outline, see outline-4. false: the
// home is to be asked.
func (v *Router) readOutline(ctx context.Context, r volume.Request, o *copies.Outline,
	op func(ctx context.Context, t volume.Reader) error) (error, bool) {
	ctx, ended := either(ctx, r.Revoked)
	defer ended()
	ctx, done, err := o.Use(ctx)
	if err != nil {
		return nil, false
	}
	defer done()
	told := v.newest()
	if !o.Follower.Young() {
		pos, err := v.current(ctx, o)
		if err != nil {
			return nil, false
		}
		told = later(told, pos)
	}
	err = op(journal.Earlier(ctx, told), o.Engine)
	if errors.Is(err, volume.ErrDelay) || errors.Is(err, volume.ErrStale) || errors.Is(err, volume.ErrIO) {
		return nil, false
	}
	return err, true
}

// current waits until an outline has all that was acknowledged when it was called, and returns up
// to where that is. It asks the home if it has no lease (outline-6).
func (v *Router) current(ctx context.Context, o *copies.Outline) (journal.Position, error) {
	ctx, answered := track.Begin(ctx, track.Fresh)
	defer answered()
	ctx, cancel := context.WithTimeout(ctx, v.cfg.Promise/2)
	defer cancel()
	return o.Follower.Current(ctx)
}

// later returns whichever of two positions lies further in the log.
func later(p, q journal.Position) journal.Position {
	if p.Less(q) {
		return q
	}
	return p
}

// Filling reports whether the volume is made of a snapshot and may not have all of that yet: nobody
// is to use it (ADR 53). The record says when it has all, and so does what is here of its log, also
// if the registry went back.
func (v *Router) Filling() bool {
	is, there := v.cfg.View.Record(v.uuid)
	if !there || !is.Source.Unfinished() {
		return false
	}
	l := v.here()
	if l == nil || l.Engine == nil {
		return true
	}
	_, done, err := l.Use(context.Background())
	if err != nil {
		return true
	}
	defer done()
	marked, err := l.Engine.Executed(fill.Mark)
	return err != nil || !marked
}

// Outline returns what is here of a volume without a copy; nil: nothing.
func (v *Router) Outline() *copies.Outline {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.outline
}

// here returns what is open here of the volume; nil: nothing.
func (v *Router) here() *copies.Local {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.local != nil:
		return &v.local.Local
	case v.outline != nil:
		return &v.outline.Local
	}
	return nil
}

// told is how far homes elsewhere told of the log: what this gateway's clients saw of them is at or
// before pos, so no earlier state is shown to them (protocol-26). In a later epoch pos may be cut;
// what of it is left is at or before what the home of that epoch tells.
type told struct {
	epoch uint64
	pos   journal.Position
}

// newest returns the position that was told.
func (v *Router) newest() journal.Position {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.told.pos
}

// tell notes what the home of an epoch told. The zero position is none.
func (v *Router) tell(epoch uint64, pos journal.Position) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case pos == (journal.Position{}) || epoch < v.told.epoch:
	case epoch > v.told.epoch || v.told.pos.Less(pos):
		v.told = told{epoch, pos}
	}
}

// readLocal executes op on a copy's engine. It returns ErrDelay if the copy closes or may not
// serve.
func readLocal(ctx context.Context, l *copies.Copy, op func(ctx context.Context, t volume.Reader) error) error {
	ctx, done, err := l.Use(ctx)
	if err != nil {
		return err
	}
	defer done()
	return op(ctx, l.Engine)
}
