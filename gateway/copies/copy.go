// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-storage/weir/cachepool/readcache"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/gateway/inuse"
	"github.com/weir-storage/weir/gateway/keys"
	"github.com/weir-storage/weir/gateway/locks"
	"github.com/weir-storage/weir/gateway/pools"
	"github.com/weir-storage/weir/gateway/reaping"
	"github.com/weir-storage/weir/gateway/settings"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/volume"
)

// Local is what this gateway has of a volume: a copy, or an outline. Its parts may be used only
// between Use and done.
type Local struct {
	UUID   string
	Log    *log.Log
	Engine *engine.Engine
	Cache  *readcache.Volume

	meta       atomic.Int64 // bytes of metadata on the pool
	users      *inuse.Users
	prefetch   atomic.Value     // federation.Prefetch
	generation atomic.Uint64    // generation of the desired state that is in force
	kept       federation.Cache // what is in force of that; used by Manager.Run only
	keys       *keys.Held       // the volume's data keys, of a blind copy none; used by Manager.Run only
}

// Copy is one volume's copy at this gateway. A blind one has no Engine and no Locks.
type Copy struct {
	Local
	Replica *replica.Replica
	Locks   *locks.Table // of the reigns in which this gateway is home

	held    *reaping.Held
	unnoted atomic.Pointer[replica.UnnotedError]
}

var _ locks.Copy = (*Copy)(nil)

// Use keeps it open until done is called. The context ends with ctx, or when it begins to close.
// ErrDelay: it has begun.
func (c *Local) Use(ctx context.Context) (_ context.Context, done func(), err error) {
	return c.users.Begin(ctx)
}

// Generation returns the generation of the desired state that is in force.
func (c *Local) Generation() uint64 { return c.generation.Load() }

// Prefetch returns what is to be fetched before it is read.
func (c *Local) Prefetch() federation.Prefetch {
	p, _ := c.prefetch.Load().(federation.Prefetch)
	return p
}

// MetadataBytes returns what the metadata take on the pool.
func (c *Local) MetadataBytes() int64 { return c.meta.Load() }

// differs reports whether a volume's desired state is another than the one in force.
func (c *Local) differs(v federation.Volume) bool {
	return c.Generation() != v.Generation || !reflect.DeepEqual(c.kept, v.Spec.Cache)
}

// tune applies what a volume's desired state says of its cache and its room.
func (c *Local) tune(v federation.Volume, pool *pools.Pools) {
	if c.Engine != nil {
		c.Engine.SetRoom(uint64(v.Spec.Size), v.Spec.Quota.Inodes())
		c.Engine.Tune(settings.Tuning(v))
	}
	c.Cache.SetShare(settings.Share(v))
	pool.Tune(v.UUID, settings.Below(v))
	c.kept = v.Spec.Cache
	c.prefetch.Store(v.Spec.Cache.Prefetch)
	c.generation.Store(v.Generation)
}

// Replicas returns how all copies of the volume are, as the home sees it; nil: the home is not
// here. The home knows of all gateways of the federation. Those that have no copy, and are not to
// have one, are left out.
func (c *Copy) Replicas(v federation.Volume) []federation.ObservedReplica {
	ctl := c.Replica.Control()
	return slices.DeleteFunc(c.Replica.Lag(), func(x federation.ObservedReplica) bool {
		member := ctl != nil && slices.ContainsFunc(ctl.Members, func(m federation.Member) bool { return m.Gateway == x.Gateway })
		return x.State == federation.ReplicaLost && !member && !slices.Contains(v.Sites, x.Site)
	})
}

// Keys are the volume's data keys, which may become more; a blind copy has none.
func (c *Copy) Keys() *segment.Keys { return c.keys.Keys }

// Blind reports whether the copy holds ciphertext only (protocol-28).
func (c *Copy) Blind() bool { return c.Engine == nil }

// GetAttr implements volume.Reader's method.
func (c *Copy) GetAttr(ctx context.Context, r volume.Request, h volume.Handle) (volume.Attr, error) {
	return c.Engine.GetAttr(ctx, r, h)
}

// LogEpoch returns the epoch of the last of its log; 0: it is empty.
func (c *Copy) LogEpoch() uint64 { return lastEpoch(c.Log) }

// MayServe implements journal.Journal's method.
func (c *Copy) MayServe() error { return c.Replica.MayServe() }

// Bounded reports whether reads may be answered with an earlier state now, see journal.Earlier.
func (c *Copy) Bounded() bool {
	_, ok := c.Replica.Bounded()
	return ok
}

// Leading returns the epoch in which this gateway is the volume's home; false: it is not.
func (c *Copy) Leading() (epoch uint64, ok bool) { return c.Replica.Leading() }

// Home returns the volume's home, while it is here, for operations of a gateway's clients.
// registersChanges is true if that gateway's changes belong to registrations.
func (c *Copy) Home(gateway string, registersChanges bool) forward.Home {
	return home{c.Engine, c, gateway, registersChanges}
}

// home executes operations on the engine, with the locks of the reign.
type home struct {
	*engine.Engine
	c        *Copy
	gateway  string
	register bool
}

// Locks implements forward.Home.
func (h home) Locks(reg forward.Registration) forward.Locks {
	return h.c.Locks.Session(h.gateway, reg, h.register)
}

// Space returns how much of the volume is used, according to this copy.
func (c *Copy) Space(ctx context.Context) (volume.Space, error) {
	if c.Blind() {
		return volume.Space{}, errors.New("the copy holds ciphertext only")
	}
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return volume.Space{}, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return c.Engine.Space(ctx)
}

// Held returns how many bytes only snapshots hold, according to this copy; false: that is not
// known.
func (c *Copy) Held(ctx context.Context) (uint64, bool, error) {
	if c.Blind() {
		return 0, false, errors.New("the copy holds ciphertext only")
	}
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return 0, false, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return c.Engine.HeldBySnapshots(ctx)
}

// Hold implements volume.Volume's method. A file is gone when its removal is committed, which the
// home knows; before, nobody can know. A copy that trails, as after a restart, or that has
// something left to apply to h, does not know whether h is gone. It then accepts h, because the
// operation that led here found it. If h is gone, later operations on it fail. While clients
// reclaim, h may have no name any more.
func (c *Copy) Hold(h volume.Handle, reclaiming bool) error {
	_, done, err := c.Use(context.Background())
	if err != nil {
		return nil // the Router holds it at the next copy
	}
	defer done()
	reign, led := c.Leading()
	may := c.MayServe()                // first: what was acknowledged until now is in the log
	pending := c.Engine.Touched(h.Ino) // Hold may have missed what is applied after this
	if reclaiming {
		err = c.Engine.HoldElsewhere(h)
	} else {
		err = c.Engine.Hold(h)
	}
	if !errors.Is(err, volume.ErrStale) {
		return err
	}
	// The reign is read last: if it is the same, nothing that Hold saw was undone before.
	uncommitted := c.Engine.Uncommitted(h.Ino)
	if pending == (log.Position{}) {
		pending = c.Engine.Touched(h.Ino) // changed if h was removed just now
	}
	now, leads := c.Leading()
	switch {
	case led != leads || led && reign != now: // Hold may have seen a change of the former reign that is undone
		return fmt.Errorf("hold inode %d: the volume has got another home meanwhile: %w", h.Ino, volume.ErrDelay)
	case leads && uncommitted: // its removal may be undone
		return fmt.Errorf("hold inode %d: the change of it is not committed yet: %w", h.Ino, volume.ErrDelay)
	case leads:
		return err
	}
	if pending != (log.Position{}) || may != nil {
		c.Engine.Retain(h)
		return nil
	}
	return err
}

// close ends the operations on the copy, waits for them, and closes the copy.
func (c *Copy) close() error {
	var err error
	c.users.End()
	c.Cache.Detach()
	if c.Replica != nil {
		c.Replica.Close()
	}
	c.users.Wait()
	if c.Engine != nil {
		err = c.Engine.Close()
	}
	err = errors.Join(err, c.Cache.Close())
	if c.Log != nil {
		err = errors.Join(err, c.Log.Close())
	}
	return err
}
