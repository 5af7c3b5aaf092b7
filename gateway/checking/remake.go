// SPDX-License-Identifier: Apache-2.0

package checking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/copies"
)

// errRemade: why a copy is closed and opened again.
var errRemade = errors.New("a check found its metadata damaged, and a person has them made anew")

// anew returns what a report says of metadata that are wrong, and that the log may have right.
func (r *Report) anew() (out []*Damage) {
	for i := range r.Damage {
		if d := &r.Damage[i]; d.Where == Metadata && !d.Repaired && d.Kind != fsck.Unreadable {
			out = append(out, d)
		}
	}
	return out
}

// remakeAgain is how often it is looked whether a copy is open again.
const remakeAgain = 100 * time.Millisecond

// remake has the metadata of a copy made anew, if the report says that they are damaged: from the
// home's newest checkpoint, or, if the copy made another one, from the newest that both made alike;
// and from the copy's own log (checking-5). The copy is closed meanwhile. Then it is checked again,
// and the report says what is right now.
func (s *Checks) remake(ctx context.Context, v federation.Volume, c *copies.Copy, r *Report, tell func(Progress)) error {
	wrong := r.anew()
	// What the volume uses is counted again by the home, for all copies.
	counts := func(d *Damage) bool { return d.Kind == fsck.Quota && d.Inode == 0 }
	if r.Blind || !slices.ContainsFunc(wrong, func(d *Damage) bool { return !counts(d) }) {
		return nil
	}
	if r.Home {
		for _, d := range wrong {
			if counts(d) {
				continue
			}
			d.Detail += ": not repaired: this gateway is the volume's home"
			d.Advice = fmt.Sprintf("make another gateway the home with `weir failover %s`, and check here again with --repair", v.Name)
		}
		return nil
	}
	var with checkpoint.Hash // the home's newest, unless that is in question
	if is := s.cfg.Copies.Checkpoints().Condition(v.UUID); is.Differs != 0 {
		if with = is.Alike; with == (checkpoint.Hash{}) {
			for _, d := range wrong {
				d.Detail += ": not repaired: no checkpoint is known that this copy made as the home did"
				d.Advice = "see the runbook WeirCheckpointDiffers"
			}
			return nil
		}
	}
	s.cfg.Logger.Warn("the metadata of this copy are damaged, and are made anew by a person's word", "volume", v.Name,
		"findings", len(wrong))
	s.cfg.Copies.BeginsAnew(v.UUID, with, errRemade)
	again, err := s.reopened(ctx, v, c, tell)
	if err != nil {
		return err
	}
	now, err := s.run(ctx, again, Config{Volume: v.UUID, Progress: tell})
	if err != nil || now == nil {
		return fmt.Errorf("the metadata are made anew, and not checked again: %w", err)
	}
	type what struct {
		kind  fsck.Kind
		path  string
		inode uint64
	}
	left := map[what]bool{}
	for _, d := range now.anew() {
		left[what{d.Kind, d.Path, d.Inode}] = true
	}
	for _, d := range wrong {
		if left[what{d.Kind, d.Path, d.Inode}] {
			if !counts(d) {
				d.Detail += ": not repaired: the log has it so"
				d.Advice = adviceSender
			}
			continue
		}
		if d.Repaired, d.Advice = true, ""; d.Kind == KindCheckpoint {
			d.Detail += ": they are made anew from the log; if the next checkpoint differs too, the home's are damaged"
		}
	}
	return nil
}

// reopened waits until another copy of a volume is open here than one that was.
func (s *Checks) reopened(ctx context.Context, v federation.Volume, was *copies.Copy, tell func(Progress)) (*copies.Copy, error) {
	for {
		tell(Progress{Step: "making the metadata anew"})
		if is, _ := s.cfg.Copies.State(v.UUID); is.Copy != nil && is.Copy != was {
			return is.Copy, nil
		}
		select {
		case <-s.cfg.Timers.After(remakeAgain):
		case <-ctx.Done():
			return nil, fmt.Errorf("the metadata of volume %s are being made anew: %w", v.Name, ctx.Err())
		}
	}
}
