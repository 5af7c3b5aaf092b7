// SPDX-License-Identifier: Apache-2.0

// Package mending finds objects of a site's store that are damaged, and has them replaced, though
// objects never change (protocol-9): the name of an object says what it is to have, so what takes
// its place is what was there.
//
// Rules:
//
//   - mending-1. What a store has under a name is replaced, and never deleted: most of it can be
//     read still. What takes its place is whole, and comes at once (store.Replacer).
//   - mending-2. Nothing is said of an object by a store that does not answer.
//   - mending-3. Where two gateways share a store, both may replace an object: by the same bytes.
package mending

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/store"
)

// Pack reads a whole pack in a store. damage says what is wrong with it: that there is none, too.
// An error says nothing of it.
func Pack(ctx context.Context, in store.Store, of segment.VolumeID, is engine.Pack) (damage, err error) {
	name := pack.Name(of, is.Hash)
	i, err := in.Stat(ctx, name)
	if err == nil && uint64(i.Size) != is.Len {
		return fmt.Errorf("%s has %d bytes, and should have %d", name, i.Size, is.Len), nil
	}
	if err == nil {
		err = pack.Verify(of, is.Hash, is.Len, func(p []byte, off uint64) error { return in.GetRange(ctx, name, int64(off), p) })
	}
	if errors.Is(err, pack.ErrCorrupt) || errors.Is(err, store.ErrShort) || errors.Is(err, store.ErrNotExist) {
		return err, nil
	}
	if err != nil {
		return nil, fmt.Errorf("verify a pack in the store: %w", err)
	}
	return nil, nil
}

// MaxObject bounds an object of a checkpoint, in bytes.
const MaxObject = 256 << 20

// Object reads an object of a checkpoint in a store, and does not look at what it is.
func Object(ctx context.Context, in store.Store, name string) ([]byte, error) {
	i, err := in.Stat(ctx, name)
	if err == nil && i.Size > MaxObject {
		err = fmt.Errorf("it has %d bytes, which no object of a checkpoint has: %w", i.Size, checkpoint.ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	b := make([]byte, i.Size)
	return b, in.GetRange(ctx, name, 0, b)
}

// Has reports whether a store has an object of a checkpoint whole. The caller replaces one that is
// damaged.
func Has(ctx context.Context, in store.Store, name string) (bool, error) {
	b, err := Object(ctx, in, name)
	if err == nil {
		_, err = checkpoint.Check(name, b)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, store.ErrNotExist), Damaged(err):
		return false, nil
	}
	return false, err
}

// Damaged reports whether an error of reading an object of a checkpoint says that it is damaged.
func Damaged(err error) bool {
	return errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, store.ErrShort)
}
