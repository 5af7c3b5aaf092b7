// SPDX-License-Identifier: Apache-2.0

// Package track follows one operation through a gateway, to tell where its time goes. Whoever
// begins the operation puts an Op into its context. Whoever makes it wait, far below, begins a Part
// of the context and ends it. Without an Op, a Part costs next to nothing.
//
// The times are for people, not for decisions. Parts may overlap, or leave something out.
package track

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Part is something for which an operation waits.
type Part uint8

// The parts. Their names are in logs and in traces.
const (
	Home    Part = iota // for the answer of another gateway, the home
	NoHome              // until a home is asked again, because none answered
	Fresh               // until the copy here has what the home has
	Turn                // for its turn among the changes of the volume, and until these are applied
	Held                // because changes of the volume are held for a snapshot
	Room                // for room in the pool
	Lag                 // because another copy trails too far, or too much is not committed
	Disk                // until it is on the disk of the home
	Members             // from then until the slowest member has it
	Fetch               // for content from a store, or from another gateway
	parts
)

var names = [parts]string{"home", "no_home", "fresh", "turn", "held", "room", "lag", "disk", "members", "fetch"}

func (p Part) String() string { return names[p] }

// Tracer makes spans, as OpenTelemetry has them. Its methods may be called from many goroutines.
type Tracer interface {
	// Start begins a span below that of ctx, if there is one. The returned context has it. end is
	// called once, with what is known then.
	Start(ctx context.Context, name string, with ...slog.Attr) (_ context.Context, end func(with ...slog.Attr))
	// Past makes a span below that of ctx that is over already.
	Past(ctx context.Context, name string, began, ended time.Time)
}

// Op is an operation. The zero value with Now set may be used; its methods may be called from many
// goroutines.
type Op struct {
	Now    func() time.Time
	Tracer Tracer // nil: nobody wants spans
	took   [parts]atomic.Int64
}

type key struct{}

// With returns a context whose parts belong to op.
func With(ctx context.Context, op *Op) context.Context { return context.WithValue(ctx, key{}, op) }

// From returns the operation of a context; nil: it has none.
func From(ctx context.Context) *Op {
	op, _ := ctx.Value(key{}).(*Op)
	return op
}

// Begin begins a part of the operation of ctx. The returned context is for what is done in that
// part. The caller must call end.
func Begin(ctx context.Context, p Part) (_ context.Context, end func()) {
	op := From(ctx)
	if op == nil {
		return ctx, func() {}
	}
	began := op.Now()
	ended := func(...slog.Attr) {}
	if op.Tracer != nil {
		ctx, ended = op.Tracer.Start(ctx, p.String())
	}
	return ctx, func() {
		op.took[p].Add(int64(op.Now().Sub(began)))
		ended()
	}
}

// Past adds parts of the operation of ctx that are over now: the last of them just ended, and each
// ended when the next one began.
func Past(ctx context.Context, ps []Part, took ...time.Duration) {
	op := From(ctx)
	if op == nil {
		return
	}
	var end time.Time
	if op.Tracer != nil {
		end = op.Now()
	}
	for i := len(ps) - 1; i >= 0; i-- {
		op.took[ps[i]].Add(int64(took[i]))
		if op.Tracer != nil {
			op.Tracer.Past(ctx, ps[i].String(), end.Add(-took[i]), end)
			end = end.Add(-took[i])
		}
	}
}

// Reset makes all times of op zero, for its next use.
func (op *Op) Reset() {
	for i := range op.took {
		op.took[i].Store(0)
	}
}

// Parts returns the parts that took time, in the order of their declaration.
func (op *Op) Parts() (out []slog.Attr) {
	for p := range op.took {
		if d := time.Duration(op.took[p].Load()); d > 0 {
			out = append(out, slog.Duration(Part(p).String(), d.Round(10*time.Microsecond)))
		}
	}
	return out
}
