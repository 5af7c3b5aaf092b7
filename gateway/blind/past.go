// SPDX-License-Identifier: Apache-2.0

package blind

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// perMessage is how many segments are told at a time.
const perMessage = 4096

// past is what a home tells a copy without a key of what lies before a checkpoint.
type past struct {
	at
	Segments []log.SegmentInfo // up to the checkpoint, from number 1 on, without a gap
	Packs    []packed          // that count
}

// tell calls send with what a log has up to a checkpoint, for a copy without a key. Which packs
// count is asked after it was read which segments are dropped.
func tell(c at, l *log.Log, packs func() ([]packed, error), send func(*peerpb.PastReply) error) error {
	var all []*peerpb.PastSegment
	next := uint64(1)
	for _, s := range l.Segments() {
		if c.At.Less(log.Position{Seq: s.Seq, Off: s.Len}) {
			break
		}
		if s.Seq != next {
			return fmt.Errorf("this log has no segment %d", next)
		}
		next++
		all = append(all, &peerpb.PastSegment{Epoch: s.Epoch, Key: s.Key, Salt: s.Salt[:], Length: s.Len, Hash: s.Hash[:],
			Dropped: s.Dropped})
	}
	if next != c.At.Seq+1 {
		return fmt.Errorf("this log ends before the checkpoint at %s", c.At)
	}
	first := &peerpb.PastReply{Checkpoint: c.reply()}
	count, err := packs()
	if err != nil {
		return err
	}
	for _, p := range count {
		first.Packs = append(first.Packs, &peerpb.PastPack{Hash: p.Hash[:], Length: p.Length})
	}
	err = send(first)
	for len(all) > 0 && err == nil {
		n := min(len(all), perMessage)
		err = send(&peerpb.PastReply{Segments: all[:n]})
		all = all[n:]
	}
	return err
}

// reply is the checkpoint as gateways tell of it.
func (c at) reply() *peerpb.CheckpointReply {
	return &peerpb.CheckpointReply{Number: c.Number, At: &peerpb.Position{Seq: c.At.Seq, Off: c.At.Off}, Hash: c.Hash[:]}
}

// of returns the checkpoint that a gateway tells of.
func of(r *peerpb.CheckpointReply) (c at, err error) {
	if r.GetNumber() == 0 || len(r.GetHash()) != len(c.Hash) {
		return c, fmt.Errorf("checkpoint %d has a hash of %d bytes", r.GetNumber(), len(r.GetHash()))
	}
	return at{Number: r.GetNumber(), At: log.Position{Seq: r.GetAt().GetSeq(), Off: r.GetAt().GetOff()},
		Hash: checkpoint.Hash(r.GetHash())}, nil
}

// ask asks a gateway for a volume's past.
func ask(ctx context.Context, c peerpb.PeerClient, volume string) (p past, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := c.Past(ctx, &peerpb.PastRequest{Volume: volume})
	if err != nil {
		return p, err
	}
	for first := true; ; first = false {
		r, err := in.Recv()
		if errors.Is(err, io.EOF) && !first {
			return p, p.check()
		}
		if err != nil {
			return p, err
		}
		if first {
			if p.at, err = of(r.GetCheckpoint()); err != nil {
				return p, err
			}
		}
		if err := p.add(r); err != nil {
			return p, err
		}
	}
}

func (p *past) add(r *peerpb.PastReply) error {
	for _, k := range r.GetPacks() {
		if len(k.GetHash()) != len(pack.Hash{}) {
			return fmt.Errorf("the hash of a pack has %d bytes", len(k.GetHash()))
		}
		p.Packs = append(p.Packs, packed{pack.Hash(k.GetHash()), k.GetLength()})
	}
	for _, s := range r.GetSegments() {
		var is log.SegmentInfo
		if len(s.GetHash()) != len(is.Hash) || len(s.GetSalt()) != len(is.Salt) || s.GetLength() < segment.HeaderSize ||
			s.GetLength() > segment.MaxOffset {
			return fmt.Errorf("segment %d has %d bytes, a hash of %d bytes and a salt of %d", len(p.Segments)+1, s.GetLength(),
				len(s.GetHash()), len(s.GetSalt()))
		}
		is = log.SegmentInfo{Seq: uint64(len(p.Segments)) + 1, Epoch: s.GetEpoch(), Key: s.GetKey(), Salt: [32]byte(s.GetSalt()),
			Len: s.GetLength(), Hash: segment.Hash(s.GetHash()), Dropped: s.GetDropped()}
		if n := len(p.Segments); n > 0 {
			last := p.Segments[n-1]
			if is.Prev = (segment.Link{Seq: last.Seq, Len: last.Len, Hash: last.Hash}); is.Epoch < last.Epoch {
				return fmt.Errorf("segment %d is of epoch %d, and the one before of %d", is.Seq, is.Epoch, last.Epoch)
			}
		}
		p.Segments = append(p.Segments, is)
	}
	return nil
}

// check checks that the segments end at the checkpoint.
func (p *past) check() error {
	var end log.Position
	if n := len(p.Segments); n > 0 {
		end = log.Position{Seq: p.Segments[n-1].Seq, Off: p.Segments[n-1].Len}
	}
	if end != p.At || end == (log.Position{}) {
		return fmt.Errorf("the checkpoint is at %s, and the segments end at %s", p.At, end)
	}
	return nil
}

// same checks that a log has the segments of a past, as far as it has any with their numbers.
func (p *past) same(l *log.Log) error {
	for _, s := range p.Segments {
		if was, ok := l.Segment(s.Seq); ok && (was.Len != s.Len || was.Hash != s.Hash) {
			return fmt.Errorf("segment %d is another one here: this log is of another past", s.Seq)
		}
	}
	return nil
}
