// SPDX-License-Identifier: Apache-2.0

package mending

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/store"
)

// Uploads puts segments into a site's store. Of segments that were closed when the log was opened,
// and that the store was not known to have, it first reads what the store has: a crash may have
// come while a damaged one was being replaced. Put of a store leaves what has the right length. Any
// goroutine may call its method.
type Uploads struct {
	store store.Store

	mu     sync.Mutex
	unsure map[string]log.SegmentInfo // by name
}

// NewUploads returns Uploads for a log that was just opened.
func NewUploads(to store.Store, l *log.Log) *Uploads {
	u := &Uploads{store: to, unsure: map[string]log.SegmentInfo{}}
	for _, s := range l.Unstored(0, l.End(), math.MaxInt) {
		u.unsure[s.Name] = s
	}
	return u
}

// Put is store.Store's.
func (u *Uploads) Put(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
	u.mu.Lock()
	s, unsure := u.unsure[name]
	u.mu.Unlock()
	put := u.store.Put
	if unsure {
		damaged, err := u.damaged(ctx, &s)
		if err != nil {
			return err
		}
		if damaged { // the segment's file is whole: it was just verified
			put = func(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
				return store.Replace(ctx, u.store, name, size, body)
			}
		}
	}
	err := put(ctx, name, size, body)
	if err == nil && unsure {
		u.mu.Lock()
		delete(u.unsure, name)
		u.mu.Unlock()
	}
	return err
}

// damaged reports whether what the store has under the name of a segment is damaged.
func (u *Uploads) damaged(ctx context.Context, s *log.SegmentInfo) (bool, error) {
	i, err := u.store.Stat(ctx, s.Name)
	if err == nil && uint64(i.Size) == s.Len {
		err = verify(ctx, u.store, s)
	} else if err == nil {
		err = errDamaged
	}
	switch {
	case err == nil, errors.Is(err, store.ErrNotExist):
		return false, nil
	case errors.Is(err, errDamaged), errors.Is(err, store.ErrShort):
		return true, nil
	}
	return false, fmt.Errorf("read what the store has of segment %d: %w", s.Seq, err)
}

var errDamaged = errors.New("its bytes are not those that its name says")

// verify reads a segment in a store.
func verify(ctx context.Context, in store.Store, s *log.SegmentInfo) error {
	const piece = 1 << 20
	hash := blake3.New()
	b := make([]byte, min(piece, s.Len))
	for off := uint64(0); off < s.Len; off += piece {
		p := b[:min(piece, s.Len-off)]
		if err := in.GetRange(ctx, s.Name, int64(off), p); err != nil {
			return err
		}
		_, _ = hash.Write(p) // it never fails
	}
	if segment.Hash(hash.Sum(nil)) != s.Hash {
		return errDamaged
	}
	return nil
}
