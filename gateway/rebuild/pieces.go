// SPDX-License-Identifier: Apache-2.0

package rebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/store"
)

// piece is an object with a part of a segment that had not ended (ADR 60).
type piece struct {
	segment.Piece
	name string
	size int64
}

// open is what the store has of a segment that had not ended.
type open struct {
	bytes []byte // whole frames, from its header on
	why   string // pieces that come after that and can not be used; empty: there are none
}

// assemble makes nodes of the pieces in the store: one for each segment. It keeps what begins with
// the segment's beginning, has no gap, and has the hashes of the names.
func (b *builder) assemble(ctx context.Context, all []piece) error {
	slices.SortFunc(all, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), slices.Compare(a.Salt[:], b.Salt[:]), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Seq == all[0].Seq && all[n].Salt == all[0].Salt {
			n++
		}
		if err := b.assembleOne(ctx, all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// assembleOne makes the node of one segment, if there is a record of it.
func (b *builder) assembleOne(ctx context.Context, all []piece) error {
	o := &open{}
	for _, p := range all { // two gateways may have put overlapping ones
		have := uint64(len(o.bytes))
		if p.To <= have {
			continue
		}
		more := make([]byte, p.To-p.From)
		err := fmt.Errorf("what comes before it is missing from byte %d on", have)
		if p.From <= have {
			err = fmt.Errorf("it has %d bytes", p.size)
			if uint64(p.size) == p.To-p.From {
				err = b.cfg.Store.GetRange(ctx, p.name, 0, more)
			}
		}
		switch {
		case errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrAccess) || ctx.Err() != nil:
			return fmt.Errorf("read %s: %w", p.name, err) // it says nothing of the piece
		case err == nil:
			if more = append(o.bytes[:have:have], more[have-p.From:]...); blake3.Sum256(more) == p.Hash {
				o.bytes = more
				continue
			}
			err = errors.New("its hash is not that of its name")
		}
		o.why = fmt.Sprintf("%s: %v", p.name, err)
	}
	if last := all[len(all)-1]; uint64(len(o.bytes)) >= last.To {
		o.why = "" // another one had it
	}
	n := &node{SegmentInfo: log.SegmentInfo{Seq: all[0].Seq, Name: all[0].name}, known: true, open: o}
	b.found.nodes[n.Name] = n
	h, err := segment.DecodeHeader(o.bytes[:min(len(o.bytes), segment.HeaderSize)])
	if _, ok := b.cfg.Keys.Get(h.Key); err == nil && !ok {
		err = fmt.Errorf("it is sealed with data key %d, which is not given", h.Key)
	}
	if err == nil && (h.Volume != b.found.volume || !all[0].Of(h.Seq, h.Salt)) {
		err = fmt.Errorf("it is of segment %d of volume %x", h.Seq, h.Volume)
	}
	if err != nil {
		if n.why = err.Error(); o.why != "" {
			n.why = o.why
		}
		return nil
	}
	n.Epoch, n.Key, n.Salt, n.Prev = h.Epoch, h.Key, h.Salt, h.Prev
	n.Len, n.Hash, n.Uploaded = uint64(len(o.bytes)), blake3.Sum256(o.bytes), true
	return nil
}

// superseded reports whether the chain has the segment of which n has a part.
func (c *chain) superseded(n *node) bool {
	whole := c.at(n.Seq)
	return n.open != nil && whole != nil && whole != n && n.Uploaded && whole.Salt == n.Salt && whole.Len >= n.Len
}

// ends tells what is lost of the segment with which the chain ends.
func (b *builder) ends(c *chain) {
	if n := c.last(); n != nil && n.open != nil && n.open.why != "" {
		b.report.Lost = append(b.report.Lost, Loss{Cut: true, What: fmt.Sprintf(
			"the changes after byte %d of segment %d, which had not ended: piece %s", n.Len, n.Seq, n.open.why)})
	}
}

// ingest adds a segment that had not ended to a log that has all before.
func (n *node) ingest(ctx context.Context, l *log.Log) error {
	if _, err := l.Ingest(l.End(), n.open.bytes); err != nil {
		return err
	}
	l.Sync(n.end())
	return l.Wait(ctx, n.end())
}
