// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/gateway/mending"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/store"
)

// objects are the objects of one volume's checkpoints: those of this site's store, and to read also
// those of others.
type objects struct {
	store  store.Store // nil: the site has none
	volume string
	others []other
	doubts bool // what the store has may be damaged
}

// Objects returns the objects of a volume's checkpoints in one store.
func Objects(in store.Store, volume string) checkpoint.Objects {
	return objects{store: in, volume: volume}
}

// other is a gateway that may have a checkpoint of a volume.
type other struct {
	gateway string
	client  func(gateway string) (peerpb.PeerClient, error)
	home    bool // it is the volume's
}

var _ checkpoint.Objects = objects{}

// Has implements checkpoint.Objects. Without a store nothing is put.
func (o objects) Has(ctx context.Context, name string) (bool, error) {
	if o.store == nil {
		return true, nil
	}
	if o.doubts {
		return mending.Has(ctx, o.store, name)
	}
	_, err := o.store.Stat(ctx, name)
	if errors.Is(err, store.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Put implements checkpoint.Objects.
func (o objects) Put(ctx context.Context, name string, object []byte) error {
	if o.doubts { // what Has did not find may be there, and damaged
		return store.Replace(ctx, o.store, name, int64(len(object)), bytes.NewReader(object))
	}
	err := o.store.Put(ctx, name, int64(len(object)), bytes.NewReader(object))
	if errors.Is(err, store.ErrConflict) {
		return nil // another release packed the same content otherwise
	}
	return err
}

// Get implements checkpoint.Objects. An object that is damaged in one place comes from another. In
// this site's store it is replaced then.
func (o objects) Get(ctx context.Context, name string) ([]byte, error) {
	var errs []error
	try := func(from string, get func() ([]byte, error)) []byte {
		b, err := get()
		if err == nil {
			_, err = checkpoint.Check(name, b)
		}
		if err == nil {
			return b
		}
		errs = append(errs, fmt.Errorf("%s: %w", from, err))
		return nil
	}
	if o.store != nil {
		if b := try("store of this site", func() ([]byte, error) { return mending.Object(ctx, o.store, name) }); b != nil {
			return b, nil
		}
	}
	damaged := len(errs) > 0 && mending.Damaged(errs[0])
	for _, other := range o.others {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if b := try("gateway "+other.gateway, func() ([]byte, error) { return other.object(ctx, o.volume, name) }); b != nil {
			if damaged { // if that fails, the next read tries it again
				_ = store.Replace(ctx, o.store, name, int64(len(b)), bytes.NewReader(b))
			}
			return b, nil
		}
	}
	return nil, errors.Join(errs...)
}

// piece is how much of an object travels at a time, in bytes.
const piece = 1 << 20

// Send calls send with the pieces of an object of a volume's checkpoint in this site's store, for
// another gateway.
func (k *Keeper) Send(ctx context.Context, volume, name string, send func(piece []byte) error) error {
	from := k.cfg.Store
	switch {
	case from == nil:
		return errors.New("this site has no store")
	case !strings.HasPrefix(name, volume+"/c/") && !strings.HasPrefix(name, volume+"/m/"):
		return fmt.Errorf("%q is no object of a checkpoint of volume %s", name, volume)
	}
	b, err := mending.Object(ctx, from, name)
	for len(b) > 0 && err == nil {
		n := min(len(b), piece)
		err = send(b[:n])
		b = b[n:]
	}
	return err
}

func (o other) object(ctx context.Context, volume, name string) ([]byte, error) {
	c, err := o.client(o.gateway)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := c.Object(ctx, &peerpb.ObjectRequest{Volume: volume, Name: name})
	if err != nil {
		return nil, err
	}
	var b []byte
	for {
		r, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err == nil && len(b)+len(r.GetData()) > mending.MaxObject {
			err = errors.New("it sends more than an object has")
		}
		if err != nil {
			return nil, err
		}
		b = append(b, r.GetData()...)
	}
}

// newest returns the newest checkpoint of the volume: what the home says, which commits them, or if
// it does not, the newest that one of the others knows.
func (o objects) newest(ctx context.Context) (best *peerpb.CheckpointReply, errs error) {
	for _, other := range o.others {
		c, err := other.client(other.gateway)
		var r *peerpb.CheckpointReply
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, askFor)
			r, err = c.Checkpoint(ctx, &peerpb.CheckpointRequest{Volume: o.volume})
			cancel()
		}
		switch {
		case err != nil:
			errs = errors.Join(errs, fmt.Errorf("gateway %s: %w", other.gateway, err))
		case best == nil || best.GetNumber() < r.GetNumber():
			best = r
		}
		if best != nil && other.home {
			break
		}
	}
	return best, errs
}
