// SPDX-License-Identifier: Apache-2.0

package blind

import (
	"context"
	"fmt"

	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// Newest returns the newest checkpoint of a volume that is committed, as far as its copy here
// knows: by its metadata, or by what is noted of a copy without a key (blind-2).
func (k *Keeper) Newest(ctx context.Context, id string) (*peerpb.CheckpointReply, error) {
	c := k.hosted(id)
	if c == nil {
		return k.copies.Newest(ctx, id)
	}
	n, err := k.noted(id)
	if err != nil {
		return nil, err
	}
	return n.Newest.reply(), nil
}

// hosted returns the open copy of a volume that has no key; nil: there is none.
func (k *Keeper) hosted(id string) *copies.Copy {
	if is, _ := k.copies.State(id); is.Copy != nil && is.Copy.Blind() {
		return is.Copy
	}
	return nil
}

// noted returns what is noted of a copy without a key.
func (k *Keeper) noted(id string) (n note, err error) {
	dir, err := k.cfg.Dir(id)
	if err == nil {
		n, err = noted(dir)
	}
	if err == nil && n.Newest.Number == 0 {
		err = fmt.Errorf("this copy of volume %s has no key, and knows of no checkpoint", id)
	}
	return n, err
}

// Told tells another gateway's copy without a key what lies before the newest checkpoint.
func (k *Keeper) Told(ctx context.Context, id string, send func(*peerpb.PastReply) error) error {
	c := k.hosted(id)
	if c != nil {
		_, done, err := c.Use(ctx)
		if err != nil {
			return err
		}
		defer done()
		n, err := k.noted(id)
		if err != nil {
			return err
		}
		return tell(n.Newest, c.Log, func() ([]packed, error) { return n.Packs, nil }, send)
	}
	r, err := k.copies.Newest(ctx, id)
	if err != nil {
		return err
	}
	is, err := of(r)
	if err != nil {
		return err
	}
	if c = k.copies.Copy(id); c == nil {
		return fmt.Errorf("volume %s has no copy here any more", id)
	}
	_, done, err := c.Use(ctx)
	if err != nil {
		return err
	}
	defer done()
	return tell(is, c.Log, func() (out []packed, err error) {
		all, err := c.Engine.Packs()
		for _, p := range all.All {
			if p.Condemned == 0 {
				out = append(out, packed{p.Hash, p.Len})
			}
		}
		return out, err
	}, send)
}
