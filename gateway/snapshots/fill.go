// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/gateway/fill"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// So many volumes are filled at a time. What is told of one changes so often at most.
const (
	fillsAtOnce = 2
	tellEvery   = 10 * time.Second
)

// fill copies the snapshot that a volume is made of into it, until that is done or does not go on
// (ADR 53). The volume is busy meanwhile: no snapshot of it is taken.
func (k *Keeper) fill(ctx context.Context, s *kept, v federation.Volume) {
	err := k.copy(ctx, s, v)
	k.mu.Lock()
	defer k.mu.Unlock()
	s.busy = false
	was := snapshots.Filled{}
	if s.filled != nil {
		was = *s.filled
	}
	switch {
	case err == nil:
		s.wait, s.next = 0, time.Time{}
		was.Done, was.Message = true, ""
		k.cfg.Logger.Info("volume has all of the snapshot that it is made of", "volume", v.Name, "of", v.Source.Volume,
			"snapshot", v.Source.Snapshot)
	default:
		s.wait = min(waitMost, max(waitLeast, 2*s.wait))
		s.next = k.cfg.Timers.Now().Add(s.wait)
		was.Message = err.Error()
		if text := err.Error(); !passes(err) && ctx.Err() == nil && text != s.logged {
			k.cfg.Logger.Warn("volume is not filled with the snapshot that it is made of; it is tried again", "volume", v.Name,
				"error", err)
			s.logged = text
		}
	}
	s.filled = &was
	s.report = &snapshots.Report{Filled: s.filled}
}

func (k *Keeper) copy(ctx context.Context, s *kept, v federation.Volume) error {
	ctx, done, err := s.copy.Use(ctx)
	if err != nil {
		return err
	}
	defer done()
	src := *v.Source
	from := k.cfg.Routers.Get(src.Volume)
	if marked, err := s.copy.Engine.Executed(fill.Mark); err == nil && !marked && from == nil {
		return fmt.Errorf("volume %s, which it is made of, is not known here: it was deleted, or not shown to this organization; "+
			"undelete it, or delete this volume", src.Volume)
	}
	var told time.Time
	err = fill.Copy(ctx, fill.Config{From: from, Snap: src.Snap, To: s.copy.Engine, After: k.cfg.Timers.After,
		Leads: func() error {
			if epoch, leads := s.copy.Leading(); !leads || epoch != s.epoch {
				return journal.ErrNotHome
			}
			if is, known := k.cfg.View.Record(v.UUID); !known || is.Deleted {
				return fmt.Errorf("%w: the volume was deleted", journal.ErrNotHome)
			}
			return ctx.Err()
		},
		Tell: func(bytes, inodes uint64) {
			k.mu.Lock()
			defer k.mu.Unlock()
			if now := k.cfg.Timers.Now(); now.Sub(told) >= tellEvery {
				told = now
				s.filled = &snapshots.Filled{Bytes: bytes, Inodes: inodes}
				s.report = &snapshots.Report{Filled: s.filled}
			}
		}})
	if errors.Is(err, volume.ErrStale) {
		return fmt.Errorf("snapshot %s of volume %s is not there any more: delete this volume, and make another one: %w",
			src.Snapshot, src.Volume, err)
	}
	return err
}

// beingMade returns, of the snapshots of which volumes are being made, the name of such a volume,
// by the snapshot's name. Those snapshots are not dropped (fill-3).
func (k *Keeper) beingMade(uuid string) map[string]string {
	var out map[string]string
	for _, r := range k.cfg.View.Making(uuid) {
		if out == nil {
			out = map[string]string{}
		}
		out[r.Source.Snapshot] = r.Name
	}
	return out
}
