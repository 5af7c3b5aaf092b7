// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
)

// installing is what follows the name of a folder that Install has not finished.
const installing = ".installing"

// Ready is told what a checkpoint lists of the log before it.
type Ready func(all []Segment, condemned map[uint64]uint64) error

// Unfinished is the folder in which Install works, for metadata in dir.
func Unfinished(dir string) string { return dir + installing }

// Install makes the metadata in cfg.Dir from a checkpoint, for an Open that replays the log after
// it. The folder must be empty, or not exist. It appears there when all is in it and durable, and
// ready has returned nil: ready gets the segments of the log before the checkpoint, which is where
// the log must begin then, and which of them are condemned and not in a pack. What an Install that
// a crash interrupted left is in another folder beside it, and the next one removes that. Of cfg,
// only ID, FS, Dir, DataKey, Rand, Pebble and Logger are used. Errors about an object of the
// checkpoint are checkpoint.ObjectErrors.
func Install(ctx context.Context, cfg Config, m *checkpoint.Manifest, from checkpoint.Objects, ready Ready) error {
	err := install(ctx, cfg, m, from, ready)
	if err != nil {
		return fmt.Errorf("install checkpoint at %s of volume %s: %w", m.At, cfg.ID, err)
	}
	return nil
}

func install(ctx context.Context, cfg Config, m *checkpoint.Manifest, from checkpoint.Objects, ready Ready) (err error) {
	if m.Volume != segment.VolumeID(cfg.ID) {
		return fmt.Errorf("it is of volume %x", m.Volume)
	}
	dir := Unfinished(cfg.Dir)
	if err := cfg.FS.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove what an earlier attempt left: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cfg.FS.RemoveAll(dir))
		}
	}()
	store, err := meta.Open(meta.Options{FS: cfg.FS, Dir: dir, DataKey: cfg.DataKey, Rand: cfg.Rand, Cache: cfg.Pebble,
		Logger: cfg.Logger.With("volume", cfg.ID)})
	if err != nil {
		return err
	}
	err = fill(store, m.ReadPairs(ctx, from), meta.State{Position: m.At, Epoch: m.Epoch})
	var segments []Segment
	var condemned map[uint64]uint64
	t := &tree{view: store.Live(nil)}
	if err == nil {
		segments, err = t.segments()
	}
	if err == nil {
		condemned, err = t.condemned()
	}
	var packs Packs
	if err == nil {
		packs, err = t.packs()
	}
	for seq := range packs.Moved {
		delete(condemned, seq) // what lives of it is to be fetched
	}
	if err := errors.Join(err, store.Close()); err != nil { // Close makes all durable
		return err
	}
	if err := ready(segments, condemned); err != nil {
		return err
	}
	there, err := cfg.FS.List(cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(there) > 0 {
		return fmt.Errorf("%s has %d files, remove the metadata there first", cfg.Dir, len(there))
	}
	if err := cfg.FS.Rename(dir, cfg.Dir); err != nil {
		return err
	}
	return syncDir(cfg.FS, filepath.Dir(cfg.Dir))
}

// SegmentsOf returns the segments that a checkpoint lists, oldest first: all up to its position. Of
// the checkpoint it reads little. Errors about an object of it are checkpoint.ObjectErrors.
func SegmentsOf(ctx context.Context, m *checkpoint.Manifest, from checkpoint.Objects) (out []Segment, err error) {
	lo, hi := meta.SegmentRange(0)
	for p, err := range m.ReadRange(ctx, lo, hi, from) {
		if err != nil {
			return nil, err
		}
		s, err := meta.DecodeSegment(p.Key, p.Value)
		if err == nil && s.Seq != uint64(len(out))+1 {
			err = fmt.Errorf("after segment %d it lists %d", len(out), s.Seq)
		}
		if err != nil {
			return nil, fmt.Errorf("checkpoint at %s: %w", m.At, err)
		}
		out = append(out, s)
	}
	if n := len(out); n == 0 || m.At != (segment.Position{Seq: out[n-1].Seq, Off: out[n-1].Len}) {
		return nil, fmt.Errorf("the checkpoint at %s lists %d segments, and does not end where the last one does", m.At, n)
	}
	return out, nil
}

// fill writes pairs to an empty store, and last the state after them.
func fill(store *meta.Store, pairs iter.Seq2[checkpoint.Pair, error], after meta.State) error {
	var ops []segment.Op
	size := 0
	for p, err := range pairs {
		switch {
		case err != nil:
			return err
		case meta.Table(p.Key[0]) == meta.Applied:
			return errors.New("it has an applied position among its pairs, was it written by another version?")
		}
		ops = append(ops, segment.Op{Kind: segment.Set, Key: p.Key, Value: p.Value})
		if size += len(p.Key) + len(p.Value); size < applyBytes {
			continue
		}
		if err := store.Apply([][]segment.Op{ops}, meta.State{}); err != nil {
			return err
		}
		ops, size = ops[:0], 0
	}
	return store.Apply([][]segment.Op{ops}, after)
}

// syncDir makes the names in a folder durable.
func syncDir(in vfs.FS, path string) error {
	d, err := in.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
