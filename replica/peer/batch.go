// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/replica/protocol"
)

// A batch is what travels in one message of a connection. What differs from an earlier envelope of
// the same volume and kind in its times only is said in a few bytes, for many volumes at once: so
// the beats of idle volumes cost next to nothing. Both ends keep the earlier envelope while the
// connection lasts.

const (
	// maxBatch is about how many bytes of envelopes go into one message.
	maxBatch = 256 << 10
	// maxSlots bounds the envelopes that a receiver keeps for a connection.
	maxSlots = 1 << 18
)

// slot is what the receiver keeps under a number.
type slot struct {
	number uint32 // 0: nothing
	last   replica.Envelope
}

// spoken is what a connection carried of one volume.
type spoken struct {
	beat, ack slot
	batch     int           // number of the newest batch that has an envelope of it
	as        protocol.Kind // the kind that it repeats there; 0: it has others there, which nothing must overtake
}

// encoder makes the messages of one connection.
type encoder struct {
	batches bool // the receiver takes them
	volumes map[string]*spoken
	slots   uint32 // that are used
	batch   int    // number of the newest
}

func newEncoder(batches bool) *encoder {
	return &encoder{batches: batches, volumes: map[string]*spoken{}}
}

// encode returns envelopes as messages, in order.
func (c *encoder) encode(all []replica.Envelope) (out []*peerpb.Envelope) {
	if !c.batches {
		for _, e := range all {
			out = append(out, encode(e))
		}
		return out
	}
	for len(all) > 0 {
		b, n := c.pack(all)
		out = append(out, &peerpb.Envelope{Batch: b})
		all = all[n:]
	}
	return out
}

// pack makes a batch of the first n envelopes.
func (c *encoder) pack(all []replica.Envelope) (_ *peerpb.Batch, n int) {
	c.batch++
	b := &peerpb.Batch{}
	var same []slot
	size := 0
	for _, e := range all {
		if size >= maxBatch {
			break
		}
		n++
		v := c.volumes[e.Volume]
		if v == nil {
			v = &spoken{}
			c.volumes[e.Volume] = v
		}
		s := v.slot(e.Message.Kind)
		if (v.batch != c.batch || v.as == e.Message.Kind) && repeats(s, e) {
			v.batch, v.as = c.batch, e.Message.Kind
			same = append(same, slot{s.number, e})
			continue
		}
		v.batch, v.as = c.batch, 0
		e.Message = protocol.Newest(e.Message)
		x := encode(e)
		if s != nil && mayRepeat(e) {
			if s.number == 0 && c.slots < maxSlots {
				c.slots++
				s.number = c.slots
			}
			x.Slot, s.last = s.number, e
		}
		size += proto.Size(x)
		b.Envelopes = append(b.Envelopes, x)
	}
	slices.SortStableFunc(same, func(a, b slot) int { return cmp.Compare(a.number, b.number) })
	var last *peerpb.Repeat
	for _, s := range same {
		m := s.last.Message
		if last != nil && last.First+last.Count == s.number && last.Stamp == int64(m.Stamp) && last.Echo == int64(m.Echo) &&
			last.Grant == int64(m.Grant) {
			last.Count++
			continue
		}
		last = &peerpb.Repeat{First: s.number, Count: 1, Stamp: int64(m.Stamp), Echo: int64(m.Echo), Grant: int64(m.Grant)}
		b.Repeats = append(b.Repeats, last)
	}
	return b, n
}

// slot returns where messages of a kind are kept, or nil: those that are sent again and again.
func (v *spoken) slot(k protocol.Kind) *slot {
	switch k {
	case protocol.Beat:
		return &v.beat
	case protocol.Ack:
		return &v.ack
	}
	return nil
}

// mayRepeat reports whether a repeat has all that e has.
func mayRepeat(e replica.Envelope) bool {
	return len(e.Proof)+len(e.Frames)+len(e.Message.Epochs)+len(e.Message.Forced) == 0
}

// repeats reports whether e is what s keeps, with other times.
func repeats(s *slot, e replica.Envelope) bool {
	if s == nil || s.number == 0 {
		return false
	}
	a, b := s.last.Message, e.Message
	return mayRepeat(e) && a.From == b.From && a.Epoch == b.Epoch && a.Start == b.Start && a.End == b.End && a.Commit == b.Commit &&
		a.Current == b.Current && a.Blind == b.Blind && a.Reads == b.Reads && a.Part == b.Part && a.Whole == b.Whole &&
		a.Lacks == b.Lacks
}

// decoder reads the messages of one connection.
type decoder struct {
	slots map[uint32]replica.Envelope
}

// decode returns the envelopes of a message, in order.
func (d *decoder) decode(x *peerpb.Envelope) (out []replica.Envelope, err error) {
	b := x.GetBatch()
	if b == nil {
		return []replica.Envelope{decode(x)}, nil
	}
	for _, r := range b.GetRepeats() {
		for i := range r.GetCount() {
			e, ok := d.slots[r.GetFirst()+i]
			if !ok {
				return nil, fmt.Errorf("slot %d is repeated and was never filled: check the release that the sender runs", r.GetFirst()+i)
			}
			e.Message.Stamp, e.Message.Echo = time.Duration(r.GetStamp()), time.Duration(r.GetEcho())
			e.Message.Grant = time.Duration(r.GetGrant())
			if out = append(out, e); len(out) > 2*maxSlots {
				return nil, fmt.Errorf("more than %d envelopes in one message: check the release that the sender runs", 2*maxSlots)
			}
		}
	}
	for _, x := range b.GetEnvelopes() {
		e := decode(x)
		if n := x.GetSlot(); n > maxSlots {
			return nil, fmt.Errorf("slot %d: give 1 to %d: check the release that the sender runs", n, maxSlots)
		} else if n > 0 && !mayRepeat(e) {
			return nil, fmt.Errorf("slot %d has what is not repeated: check the release that the sender runs", n)
		} else if n > 0 {
			d.slots[n] = e
		}
		out = append(out, e)
	}
	return out, nil
}
