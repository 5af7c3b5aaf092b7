// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// askFor is how long a gateway is waited for that is asked for its newest checkpoint. One that does
// not answer delays a new copy by this.
const askFor = 3 * time.Second

// Beginning is what a copy needs to begin with a checkpoint.
type Beginning struct {
	Volume  string // UUID
	Gateway string // this one
	Control *federation.Control
	Client  func(gateway string) (peerpb.PeerClient, error)
	Disk    vfs.FS        // that Engine's counts what is taken of
	Engine  engine.Config // of what openings have in common, see engine.Install
	Log     log.Config
}

// others are the gateways that may have a checkpoint, the volume's home first.
func (b *Beginning) others() (out []other) {
	for _, m := range append([]federation.Member{b.Control.Home}, b.Control.Members...) {
		o := other{m.Gateway, b.Client}
		if m.Gateway != b.Gateway && !slices.ContainsFunc(out, func(x other) bool { return x.gateway == o.gateway }) {
			out = append(out, o)
		}
	}
	return out
}

// Begin lets a copy that has nothing begin with the newest checkpoint. It does nothing if the copy
// has something, or if nobody tells of a checkpoint: then the copy gets the whole log. Neither the
// engine nor the log is open. An error leaves a copy that has nothing, or one that has its log and
// no metadata, which Open can begin with.
func (k *Keeper) Begin(ctx context.Context, b Beginning) (err error) {
	there, err := b.Engine.FS.List(b.Engine.Dir)
	if len(there) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	from := objects{store: k.cfg.Store, volume: b.Volume, others: b.others()}
	logger := b.Log.Logger
	told, err := from.newest(ctx)
	if told == nil {
		if err != nil {
			logger.Info("nobody tells of a checkpoint: this copy gets the whole log", "error", err)
		}
		return nil
	}
	l, err := log.Open(b.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if l.Recovered().Doubt != nil || !l.Bare() {
		return nil
	}
	if err := begin(ctx, b, l, from, told.GetHash()); err != nil {
		// It is no reason to have no copy: there is another way.
		logger.Warn("this copy does not begin with a checkpoint, and gets the whole log", "error", err)
		if l.Bare() && l.End() != (log.Position{}) {
			return l.Truncate(log.Position{})
		}
	}
	return nil
}

func begin(ctx context.Context, b Beginning, l *log.Log, from objects, hash []byte) error {
	if len(hash) != len(checkpoint.Hash{}) {
		return fmt.Errorf("a gateway tells of a checkpoint whose hash has %d bytes", len(hash))
	}
	m, err := checkpoint.Open(ctx, b.Log.Volume, checkpoint.Hash(hash), b.Log.Keys.Get, from)
	if err != nil {
		return err
	}
	if l.End() != (log.Position{}) { // of an attempt that was interrupted
		if err := l.Truncate(log.Position{}); err != nil {
			return err
		}
	}
	// What is left of an attempt that a crash ended takes no room that is counted.
	if err := b.Disk.RemoveAll(engine.Unfinished(b.Engine.Dir)); err != nil {
		return fmt.Errorf("remove unfinished metadata: %w", err)
	}
	began := b.Engine.Now()
	err = engine.Install(ctx, b.Engine, m, from, func(all []engine.Segment) error { return adopt(l, m, all) })
	if err != nil {
		return err
	}
	b.Log.Logger.Info("this copy begins with a checkpoint", "at", m.At, "pairs", m.Pairs, "bytes", m.Bytes,
		"took", b.Engine.Now().Sub(began))
	return nil
}

// ClosedOf returns what an engine asks of its log's segments.
func ClosedOf(l *log.Log) func(uint64) (engine.Segment, bool) {
	return func(seq uint64) (engine.Segment, bool) {
		s, ok := l.Segment(seq)
		return engine.Segment{Seq: s.Seq, Epoch: s.Epoch, Key: s.Key, Salt: s.Salt, Len: s.Len, Hash: s.Hash}, ok
	}
}

// adopt has the log begin at a checkpoint.
func adopt(l *log.Log, m *checkpoint.Manifest, all []engine.Segment) error {
	infos := make([]log.SegmentInfo, len(all))
	var link segment.Link
	for i, s := range all {
		infos[i] = log.SegmentInfo{Seq: s.Seq, Epoch: s.Epoch, Key: s.Key, Salt: s.Salt, Prev: link, Len: s.Len, Hash: s.Hash}
		link = segment.Link{Seq: s.Seq, Len: s.Len, Hash: s.Hash}
	}
	if (log.Position{Seq: link.Seq, Off: link.Len}) != m.At {
		return fmt.Errorf("the checkpoint is at %s, and lists %d segments up to %d/%d", m.At, len(all), link.Seq, link.Len)
	}
	return l.Adopt(infos)
}
