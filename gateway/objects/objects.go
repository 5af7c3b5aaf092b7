// SPDX-License-Identifier: Apache-2.0

// Package objects reads and puts the objects of volumes' checkpoints: in the store of this site,
// and to read also from other gateways (ADR 47).
package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/mending"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/store"
)

// Set is the objects of one volume's checkpoints: those of this site's store, and to read also
// those of others.
type Set struct {
	Store  store.Store // nil: the site has none
	Volume string
	Others []Other
	Doubts bool // what the store has may be damaged: it is looked at, and replaced
	// Keys returns the volume's data key with a number, as checkpoint.Open has it. What is read is
	// verified with it before it is used, or replaces something: its tag, and its content against
	// its name.
	//
	// Nil: there is no key here, as at a blind copy. Then all is verified that can be: that the
	// object is whole by its own checksum and lengths, and says that it is of this volume and name.
	// What is left to trust is that the content is what the name stands for: another gateway of the
	// volume that lies can have a damaged object replaced by one of its own making. Nobody takes
	// that for files: who reads it has the key, finds the forgery, and gets the object elsewhere.
	Keys func(number uint32) (segment.DataKey, bool)
}

// Other is a gateway that may have a checkpoint of a volume.
type Other struct {
	Gateway string
	Client  func(gateway string) (peerpb.PeerClient, error)
	Home    bool // it is the volume's
}

var _ checkpoint.Objects = Set{}

// Has implements checkpoint.Objects. Without a store nothing is put.
func (o Set) Has(ctx context.Context, name string) (bool, error) {
	if o.Store == nil {
		return true, nil
	}
	if o.Doubts {
		has, err := mending.Has(ctx, o.Store, name)
		if err != nil || !has || o.Keys == nil {
			return has, err
		}
		b, err := mending.Object(ctx, o.Store, name)
		if err == nil {
			err = checkpoint.Verify(name, b, o.Keys)
		}
		if mending.Damaged(err) {
			return false, nil
		}
		return err == nil, err
	}
	_, err := o.Store.Stat(ctx, name)
	if errors.Is(err, store.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Put implements checkpoint.Objects.
func (o Set) Put(ctx context.Context, name string, object []byte) error {
	if o.Doubts { // what Has did not find may be there, and damaged
		return store.Replace(ctx, o.Store, name, int64(len(object)), bytes.NewReader(object))
	}
	err := o.Store.Put(ctx, name, int64(len(object)), bytes.NewReader(object))
	if errors.Is(err, store.ErrConflict) {
		return nil // another release packed the same content otherwise
	}
	return err
}

// Get implements checkpoint.Objects. An object that is damaged in one place, or forged, comes from
// another. In this site's store it is replaced then. All is verified with the key, if that is here.
func (o Set) Get(ctx context.Context, name string) ([]byte, error) {
	var errs []error
	check := func(b []byte) error {
		_, err := checkpoint.Check(name, b)
		return err
	}
	if o.Keys != nil {
		check = func(b []byte) error { return checkpoint.Verify(name, b, o.Keys) }
	}
	try := func(from string, get func() ([]byte, error)) []byte {
		b, err := get()
		if err == nil {
			err = check(b)
		}
		if err == nil {
			return b
		}
		errs = append(errs, fmt.Errorf("%s: %w", from, err))
		return nil
	}
	if o.Store != nil {
		if b := try("store of this site", func() ([]byte, error) { return mending.Object(ctx, o.Store, name) }); b != nil {
			return b, nil
		}
	}
	damaged := len(errs) > 0 && mending.Damaged(errs[0])
	for _, other := range o.Others {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if b := try("gateway "+other.Gateway, func() ([]byte, error) { return other.object(ctx, o.Volume, name) }); b != nil {
			if damaged { // if that fails, the next read tries it again
				_ = store.Replace(ctx, o.Store, name, int64(len(b)), bytes.NewReader(b))
			}
			return b, nil
		}
	}
	return nil, errors.Join(errs...)
}

func (o Other) object(ctx context.Context, volume, name string) ([]byte, error) {
	c, err := o.Client(o.Gateway)
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

// askFor is how long a gateway is waited for that is asked for its newest checkpoint. One that does
// not answer delays a new copy by this.
const askFor = 3 * time.Second

// Newest returns the newest checkpoint of the volume: what the home says, which commits them, or if
// it does not, the newest that one of the others knows.
func (o Set) Newest(ctx context.Context) (best *peerpb.CheckpointReply, errs error) {
	for _, other := range o.Others {
		c, err := other.Client(other.Gateway)
		var r *peerpb.CheckpointReply
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, askFor)
			r, err = c.Checkpoint(ctx, &peerpb.CheckpointRequest{Volume: o.Volume})
			cancel()
		}
		switch {
		case err != nil:
			errs = errors.Join(errs, fmt.Errorf("gateway %s: %w", other.Gateway, err))
		case best == nil || best.GetNumber() < r.GetNumber():
			best = r
		}
		if best != nil && other.Home {
			break
		}
	}
	return best, errs
}
