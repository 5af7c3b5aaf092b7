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
	"github.com/weir-storage/weir/gateway/objects"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// Beginning is what a copy needs to begin with a checkpoint.
type Beginning struct {
	Volume  string // UUID
	Gateway string // this one
	Control *federation.Control
	Client  func(gateway string) (peerpb.PeerClient, error)
	Disk    vfs.FS        // that Engine's counts what is taken of
	Engine  engine.Config // of what openings have in common, see engine.Install
	Log     log.Config
	// Anew, if it is not nil, is why the copy begins anew, although it has something. Retire takes
	// the metadata away that are there. What the copy has of the log's past stays.
	Anew   *Anew
	Retire func() error
}

// Anew is why and how a copy begins anew that has something. Its log lacks what comes next, which
// is not there any more; or its metadata are missing, or damaged.
type Anew struct {
	Behind bool // what comes after its log is not there any more
	// Alike is what to begin with; zero: the newest that others tell of, of a number after After.
	Alike checkpoint.Hash
	After uint64
	Own   checkpoint.Hash // what to begin with if nobody tells; zero: nothing
	Whole bool            // without a checkpoint, the metadata are made from the whole log
	// Ended, if it is not nil, has room for one error: it gets how it ended.
	Ended chan error
}

// Alone reports whether a copy begins anew although nobody tells of a checkpoint.
func (a *Anew) Alone() bool { return a != nil && a.Own != (checkpoint.Hash{}) }

// End tells how it ended, unless that was told before.
func (a *Anew) End(err error) {
	if a == nil || a.Ended == nil {
		return
	}
	select {
	case a.Ended <- err:
	default:
	}
}

// others are the gateways that may have a checkpoint, the volume's home first.
func (b *Beginning) others() (out []objects.Other) {
	for i, m := range append([]federation.Member{b.Control.Home}, b.Control.Members...) {
		o := objects.Other{Gateway: m.Gateway, Client: b.Client, Home: i == 0}
		if m.Gateway != b.Gateway && !slices.ContainsFunc(out, func(x objects.Other) bool { return x.Gateway == o.Gateway }) {
			out = append(out, o)
		}
	}
	return out
}

// Others reports whether another gateway than this one may tell of a checkpoint of a volume.
func Others(c *federation.Control, gateway string) bool {
	b := Beginning{Gateway: gateway, Control: c}
	return len(b.others()) > 0
}

// Begin lets a copy that has nothing, or is to begin anew, begin with the newest checkpoint.
// Otherwise it does nothing if the copy has something, or if nobody tells of a checkpoint: then the
// copy gets the whole log. Neither the engine nor the log is open. An error leaves a copy that has
// nothing, or one that has its log and no metadata, which Open can begin with.
func (k *Keeper) Begin(ctx context.Context, b Beginning) (err error) {
	there, err := b.Engine.FS.List(b.Engine.Dir)
	if len(there) > 0 && b.Anew == nil || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	from := objects.Set{Store: k.cfg.Store, Volume: b.Volume, Others: b.others(), Keys: b.Log.Keys.Get}
	logger := b.Log.Logger
	told, err := from.Newest(ctx)
	if told == nil && b.Anew == nil {
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
	if b.Anew == nil && (l.Recovered().Doubt != nil || !l.Bare()) {
		return nil
	}
	if b.Anew != nil {
		err := k.anew(ctx, b, l, from, told)
		if b.Anew.End(err); err != nil {
			logger.Warn("the metadata of this copy are not made anew", "end", l.End(), "error", err)
		}
		return nil
	}
	if err := k.begin(ctx, b, l, from, told.GetHash()); err != nil {
		// It is no reason to have no copy: there is another way.
		logger.Warn("this copy does not begin with a checkpoint, and gets the whole log", "error", err)
		if l.Bare() && l.End() != (log.Position{}) {
			return l.Truncate(log.Position{})
		}
	}
	return nil
}

func (k *Keeper) begin(ctx context.Context, b Beginning, l *log.Log, from objects.Set, hash []byte) error {
	if l.End() != (log.Position{}) { // of an attempt that was interrupted
		if err := l.Truncate(log.Position{}); err != nil {
			return err
		}
	}
	m, err := opened(ctx, b, from, hash)
	if err != nil {
		return err
	}
	return k.install(ctx, b, from, m, func(all []engine.Segment, gone map[uint64]uint64) error { return adopt(b, l, m, all, gone) })
}

// anew makes the metadata anew of a copy that has a log: from a checkpoint, and from the log after
// it. It leaves the metadata as they are if it can not.
func (k *Keeper) anew(ctx context.Context, b Beginning, l *log.Log, from objects.Set, told *peerpb.CheckpointReply) error {
	hash := told.GetHash()
	if told.GetNumber() <= b.Anew.After {
		hash = nil // this gateway made it, or one after it, itself
	}
	if b.Anew.Alike != (checkpoint.Hash{}) {
		hash = b.Anew.Alike[:]
	} else if hash == nil && b.Anew.Alone() {
		hash = b.Anew.Own[:]
	}
	all := l.Base() == log.Position{} && l.AbsentBytes() == 0
	switch doubt := l.Recovered().Doubt; {
	case doubt != nil:
		return doubt
	case hash == nil && all && b.Anew.Whole:
		b.Log.Logger.Warn("the metadata of this copy are made anew from its whole log")
		return replace(b, l)
	case hash == nil:
		return errors.New("nobody tells of a checkpoint that could be trusted")
	}
	m, err := opened(ctx, b, from, hash)
	if err != nil {
		return err
	}
	switch behind := l.End().Less(m.At); {
	case behind:
	case b.Anew.Behind:
		return fmt.Errorf("nobody tells of a checkpoint after its log, which ends at %s", l.End())
	case m.At.Less(l.Base()):
		return fmt.Errorf("the checkpoint at %s is before %s, up to where the log was dropped", m.At, l.Base())
	case len(l.Absent(m.At.Seq, 1)) > 0:
		return fmt.Errorf("this copy lacks something after the checkpoint at %s", m.At)
	}
	return k.install(ctx, b, from, m, func(all []engine.Segment, gone map[uint64]uint64) error {
		if l.End().Less(m.At) {
			return adopt(b, l, m, all, gone)
		}
		if err := same(l, m, all); err != nil {
			return err
		}
		return replace(b, l)
	})
}

// replace closes the log and takes the metadata away. A crash after this leaves a log without
// metadata, which are made anew when it is opened.
func replace(b Beginning, l *log.Log) error {
	if err := l.Close(); err != nil {
		return err
	}
	return b.Retire()
}

// same checks that a log has the segments that a checkpoint lists, whether here or not.
func same(l *log.Log, m *checkpoint.Manifest, all []engine.Segment) error {
	if _, err := infosOf(m, all); err != nil {
		return err
	}
	for _, s := range all {
		if was, ok := l.Segment(s.Seq); !ok || was.Len != s.Len || was.Hash != s.Hash {
			return fmt.Errorf("segment %d is another one here: this log is of another past", s.Seq)
		}
	}
	return nil
}

// opened opens a checkpoint that a gateway tells of.
func opened(ctx context.Context, b Beginning, from objects.Set, hash []byte) (*checkpoint.Manifest, error) {
	if len(hash) != len(checkpoint.Hash{}) {
		return nil, fmt.Errorf("a gateway tells of a checkpoint whose hash has %d bytes", len(hash))
	}
	return checkpoint.Open(ctx, b.Log.Volume, checkpoint.Hash(hash), b.Log.Keys.Get, from)
}

// install makes the metadata from a checkpoint.
func (k *Keeper) install(ctx context.Context, b Beginning, from objects.Set, m *checkpoint.Manifest, ready engine.Ready) error {
	// What is left of an attempt that a crash ended takes no room that is counted.
	if err := b.Disk.RemoveAll(engine.Unfinished(b.Engine.Dir)); err != nil {
		return fmt.Errorf("remove unfinished metadata: %w", err)
	}
	began := k.cfg.Timers.Now()
	if err := engine.Install(ctx, b.Engine, m, from, ready); err != nil {
		return err
	}
	b.Log.Logger.Info("this gateway begins with a checkpoint of the volume", "at", m.At, "pairs", m.Pairs, "bytes", m.Bytes,
		"took", k.cfg.Timers.Since(began).Round(time.Millisecond))
	return nil
}

// ClosedOf returns what an engine asks of its log's segments.
func ClosedOf(l *log.Log) func(uint64) (engine.Segment, bool) {
	return func(seq uint64) (engine.Segment, bool) {
		s, ok := l.Segment(seq)
		return engine.Segment{Seq: s.Seq, Epoch: s.Epoch, Key: s.Key, Salt: s.Salt, Len: s.Len, Hash: s.Hash}, ok
	}
}

// BeginOutline is Begin for a gateway without a copy of the volume, which follows its log without
// blocks (ADR 22). Log needs Dir, Volume, Keys and Logger only.
func (k *Keeper) BeginOutline(ctx context.Context, b Beginning) error {
	there, err := b.Engine.FS.List(b.Engine.Dir)
	if len(there) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	from := objects.Set{Store: k.cfg.Store, Volume: b.Volume, Others: b.others(), Keys: b.Log.Keys.Get}
	told, err := from.Newest(ctx)
	if told == nil {
		if err != nil {
			b.Log.Logger.Info("nobody tells of a checkpoint: the whole log is followed", "error", err)
		}
		return nil
	}
	m, err := opened(ctx, b, from, told.GetHash())
	if err == nil {
		err = k.install(ctx, b, from, m, func(all []engine.Segment, _ map[uint64]uint64) error {
			infos, err := infosOf(m, all)
			if err != nil {
				return err
			}
			return log.BeginOutline(b.Log.Dir, b.Log.Volume, infos)
		})
	}
	if err != nil {
		b.Log.Logger.Warn("nothing begins with a checkpoint here, and the whole log is followed", "error", err)
		return log.RemoveOutline(b.Log.Dir)
	}
	return nil
}

// infosOf returns the segments before a checkpoint.
func infosOf(m *checkpoint.Manifest, all []engine.Segment) ([]log.SegmentInfo, error) {
	infos := make([]log.SegmentInfo, len(all))
	var link segment.Link
	for i, s := range all {
		infos[i] = log.SegmentInfo{Seq: s.Seq, Epoch: s.Epoch, Key: s.Key, Salt: s.Salt, Prev: link, Len: s.Len, Hash: s.Hash}
		link = segment.Link{Seq: s.Seq, Len: s.Len, Hash: s.Hash}
	}
	if (log.Position{Seq: link.Seq, Off: link.Len}) != m.At {
		return nil, fmt.Errorf("the checkpoint is at %s, and lists %d segments up to %d/%d", m.At, len(all), link.Seq, link.Len)
	}
	return infos, nil
}

// adopt has the log begin at a checkpoint.
func adopt(b Beginning, l *log.Log, m *checkpoint.Manifest, all []engine.Segment, gone map[uint64]uint64) error {
	infos, err := infosOf(m, all)
	if err != nil {
		return err
	}
	for i := range infos {
		in := &infos[i]
		if _, in.Dropped = gone[in.Seq]; in.Dropped {
			continue
		}
		if was, ok := l.Segment(in.Seq); ok {
			if was.Len != in.Len || was.Hash != in.Hash {
				return fmt.Errorf("segment %d is another one here: this log is of another past", in.Seq)
			}
			in.Local, in.Uploaded = was.Local, was.Uploaded
		}
	}
	if b.Anew == nil {
		return l.Adopt(infos)
	}
	// A crash after this leaves a log that needs what is not there any more, without metadata: it
	// begins anew again.
	if err := replace(b, l); err != nil {
		return err
	}
	return log.Rebase(b.Log.Dir, infos)
}
