// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"io"

	"github.com/weir-storage/weir/replica/protocol"
)

// frameBatch is how many bytes of frames go into one message.
const frameBatch = 1 << 20

// stream sends the log to one follower. Its goroutine exists only while there is something to send.
type stream struct {
	to      string
	epoch   uint64
	next    Position
	running bool
	ctx     context.Context
	stop    context.CancelFunc
}

func (r *Replica) startStream(e protocol.Stream) {
	r.stopStream(e.To)
	r.mu.Lock()
	ctx, stop := context.WithCancel(r.ctx)
	r.streams[e.To] = &stream{to: e.To, epoch: e.Epoch, next: e.From, ctx: ctx, stop: stop}
	r.mu.Unlock()
	r.kickStreams()
}

func (r *Replica) stopStream(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.streams[to]; s != nil {
		s.stop()
		delete(r.streams, to)
	}
}

// kickStreams starts the streams that have something to send.
func (r *Replica) kickStreams() {
	end := r.cfg.Log.End()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	for _, s := range r.streams {
		if !s.running && s.next != end {
			s.running = true
			r.work.Go(func() { r.pump(s) })
		}
	}
}

// pump sends frames until the follower has been sent the whole log.
func (r *Replica) pump(s *stream) {
	for {
		frames, next, err := r.cfg.Log.Read(s.ctx, s.next, frameBatch)
		if errors.Is(err, io.EOF) {
			r.mu.Lock()
			if r.cfg.Log.End() == s.next {
				s.running = false
				r.mu.Unlock()
				return
			}
			r.mu.Unlock()
			continue
		}
		if err == nil {
			r.mu.Lock()
			m := r.core.Stamp(r.node.cfg.Clock(), s.to, s.next)
			current := r.streams[s.to] == s && m.Epoch == s.epoch // if not, an Unstream effect is about to come
			r.mu.Unlock()
			if !current {
				return
			}
			err = r.node.cfg.Transport.SendFrames(s.ctx, s.to, Envelope{Volume: r.cfg.Volume, Message: m, Frames: frames})
		}
		if err != nil {
			if s.ctx.Err() == nil {
				r.cfg.Logger.Warn("stream of the log broke; it begins again at the next greeting", "to", s.to, "at", s.next, "error", err)
				r.post(protocol.PeerDown{Gateway: s.to})
			}
			return
		}
		s.next = next
	}
}
