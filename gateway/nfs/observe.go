// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/track"
	"github.com/weir-storage/weir/volume"
)

// doing is the volume that a request uses, and since when.
type doing struct {
	volume string // its name
	since  time.Time
}

// calls are the requests that are being executed. Their connections may have ended (nfs-5).
type calls struct {
	mu  sync.Mutex
	all map[*call]struct{}
}

// begin notes that k is being executed, until end.
func (s *Server) begin(k *call) {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	s.calls.all[k] = struct{}{}
}

func (s *Server) end(k *call) {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	delete(s.calls.all, k)
}

// traced is run with a span, if somebody wants one.
func (k *call) traced() (st xdr.Status, done uint32) {
	if k.s.tracks() {
		k.track.Now, k.track.Tracer = k.s.cfg.Clock.Now, k.s.cfg.Tracer
		k.ctx = track.With(k.ctx, &k.track)
	}
	if k.s.cfg.Tracer == nil {
		return k.run()
	}
	whole, end := k.s.cfg.Tracer.Start(k.ctx, "COMPOUND", slog.String("client", k.conn.addr.String()))
	k.ctx = whole
	st, done = k.run()
	end(slog.String("volume", k.cur.export.Name), slog.String("status", st.String()))
	return st, done
}

// observed executes one operation, and tells those who want to know.
func (k *call) observed(op xdr.Op) xdr.Status {
	cfg := &k.s.cfg
	named := op
	if entry(op, k.minor).illegal {
		named = xdr.OP_ILLEGAL // clients can send any number
	}
	whole, end := k.ctx, func(...slog.Attr) {}
	if cfg.Tracer != nil {
		k.ctx, end = cfg.Tracer.Start(whole, named.String())
	}
	k.bytes, k.name, k.refused, k.busy = 0, "", volume.ID{}, false
	k.track.Reset()
	on := k.cur
	began := cfg.Clock.Now()
	st := k.step(op)
	took := cfg.Clock.Now().Sub(began)
	k.ctx = whole
	end(slog.String("status", st.String()), slog.Int("bytes", k.bytes))
	if k.drop || k.repeat != nil {
		return st
	}
	if g := k.cur.guest; g != nil {
		g.did.count(named, st, took, k.bytes)
	}
	if cfg.Observe != nil {
		cfg.Observe(Operation{Op: named, Volume: k.cur.export.Name, Refused: k.refused, Busy: k.busy,
			Status: st, Took: took, Bytes: k.bytes})
	}
	k.s.slow.Tell(&k.track, "slow operation", took, func() []slog.Attr { return k.account(on, named, st) })
	return st
}

// account describes the operation that was just executed on a place.
func (k *call) account(on place, op xdr.Op, st xdr.Status) []slog.Attr {
	attrs := []slog.Attr{slog.String("op", op.String()), slog.String("volume", k.cur.export.Name), slog.Any("client", k.conn.addr)}
	if on.set && !on.pseudo {
		path := k.s.paths.path(on.export.ID, on.h)
		if k.name != "" {
			path = strings.TrimSuffix(path, "/") + "/" + k.name
		}
		attrs = append(attrs, slog.String("path", path))
	}
	return append(attrs, slog.String("status", st.String()), slog.Int("bytes", k.bytes))
}

// named notes the name that an operation on the current directory has as an argument.
func (k *call) named(name string) string {
	k.name = name
	return name
}

// found makes h the current file. It is the current directory's name.
func (k *call) found(name string, h volume.Handle) {
	k.s.paths.found(k.cur.export.ID, k.cur.h, name, h)
	k.cur = k.cur.at(h)
}
