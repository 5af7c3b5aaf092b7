// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/gateway/locks"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/protocol"
	"github.com/weir-storage/weir/volume"
)

// Copy is one volume's copy at this gateway. Its parts may be used between Use and done.
type Copy struct {
	UUID    string
	Log     *log.Log
	Engine  *engine.Engine
	Replica *replica.Replica
	Locks   *locks.Table // of the reigns of this gateway

	reaper     reaper
	users      *users
	generation atomic.Uint64 // of the desired state that is in force
}

var _ locks.Copy = (*Copy)(nil)

// Use keeps the copy open until done is called. The context ends with ctx, or when the copy begins to
// close. ErrDelay: it has begun.
func (c *Copy) Use(ctx context.Context) (_ context.Context, done func(), err error) {
	return c.users.begin(ctx)
}

// Generation returns that of the desired state which is in force.
func (c *Copy) Generation() uint64 { return c.generation.Load() }

// GetAttr is volume.Reader's.
func (c *Copy) GetAttr(ctx context.Context, r volume.Request, h volume.Handle) (volume.Attr, error) {
	return c.Engine.GetAttr(ctx, r, h)
}

// MayServe is journal.Journal's.
func (c *Copy) MayServe() error { return c.Replica.MayServe() }

// Leading returns the epoch in which this gateway is the volume's home; false: it is not.
func (c *Copy) Leading() (epoch uint64, ok bool) { return c.Replica.Leading() }

// Home returns the volume's home for operations of a gateway's clients, while it is here.
// registersChanges says that the changes of that gateway belong to registrations.
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

// Space returns how much of the volume is used, as far as this copy knows.
func (c *Copy) Space(ctx context.Context) (volume.Space, error) {
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return volume.Space{}, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return c.Engine.Space(ctx)
}

// Hold is volume.Volume's. The home knows what is committed: a file is gone when its removal is, and
// until then nobody can tell. A copy that cannot tell whether h is gone believes the operation that
// led here. Such a copy trails, as after a restart, or has something to apply to h; if h is gone,
// whoever uses it hears of it. While clients reclaim, h may have no name any more.
func (c *Copy) Hold(h volume.Handle, reclaiming bool) error {
	_, done, err := c.Use(context.Background())
	if err != nil {
		return nil // the Router holds it at the next copy
	}
	defer done()
	reign, led := c.Leading()
	may := c.MayServe()                // asked first: what was acknowledged until now is in the log
	pending := c.Engine.Touched(h.Ino) // and what is applied after this, Hold may have missed
	if reclaiming {
		err = c.Engine.HoldElsewhere(h)
	} else {
		err = c.Engine.Hold(h)
	}
	if !errors.Is(err, volume.ErrStale) {
		return err
	}
	// The reign is looked at last: if it is the same, nothing that Hold saw was taken back by then.
	uncommitted := c.Engine.Uncommitted(h.Ino)
	if pending == (log.Position{}) {
		pending = c.Engine.Touched(h.Ino) // or h was removed just now
	}
	now, leads := c.Leading()
	switch {
	case led != leads || led && reign != now: // what Hold saw may be of the former reign, and taken back
		return fmt.Errorf("hold inode %d: the volume has got another home meanwhile: %w", h.Ino, volume.ErrDelay)
	case leads && uncommitted: // its removal may be taken back
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

// close ends what runs on the copy, waits for that, and closes it.
func (c *Copy) close() error {
	var err error
	c.users.end()
	if c.Replica != nil {
		c.Replica.Close()
	}
	c.users.wait()
	if c.Engine != nil {
		err = c.Engine.Close()
	}
	if c.Log != nil {
		err = errors.Join(err, c.Log.Close())
	}
	return err
}

// Policy is what a volume's desired state asks of the protocol.
func Policy(v federation.Volume) protocol.Policy {
	p := protocol.Policy{Want: 1, Sites: v.Sites, Continue: v.Spec.Durability.WhenDegraded == federation.WhenDegradedContinue}
	if v.Spec.Durability.Acknowledge == federation.AcknowledgeSites {
		p.Want = v.Spec.Durability.Sites
	}
	if len(v.Sites) > 0 {
		p.FirstHome = v.Sites[0]
	}
	return p
}

func maxLag(v federation.Volume) replica.MaxLag {
	return replica.MaxLag{Bytes: int64(v.Spec.Durability.MaxLag.Bytes), Time: time.Duration(v.Spec.Durability.MaxLag.Time)}
}
