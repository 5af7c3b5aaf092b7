// SPDX-License-Identifier: Apache-2.0

// Package traces sends what a gateway does for its clients to a collector of OpenTelemetry: a trace
// for each COMPOUND that is chosen, with a span for each of its operations and for each part of
// their time (package track). At the home of the volume, if that is another gateway, the trace goes
// on. It uses OTLP over gRPC.
package traces

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/stats"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/track"
)

// Config says where traces go.
type Config struct {
	Endpoint string  // URL of a collector's OTLP over gRPC: http://, or https:// with the system's CAs
	Share    float64 // of the requests of this gateway's clients, from 0 to 1
	// What the traces say of this gateway.
	Federation, Organization, Site, Gateway, Version string
	Log                                              *slog.Logger
	Now                                              func() time.Time
}

// Traces is a track.Tracer. Close it at the end.
type Traces struct {
	provider *trace.TracerProvider
	tracer   oteltrace.Tracer
}

var _ track.Tracer = (*Traces)(nil)

// Open returns a Traces. It does not wait for the collector. What cannot be sent is lost, and
// logged once a minute: that becomes the process's handler of OpenTelemetry's errors.
func Open(ctx context.Context, cfg Config) (*Traces, error) {
	to, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(cfg.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("send traces to %s: %w", cfg.Endpoint, err)
	}
	otel.SetErrorHandler(&errorLog{cfg: cfg})
	from := resource.NewSchemaless(attribute.String("service.name", "weir-gateway"), attribute.String("service.version", cfg.Version),
		attribute.String("service.namespace", cfg.Federation), attribute.String("service.instance.id", cfg.Gateway),
		attribute.String("weir.organization", cfg.Organization), attribute.String("weir.site", cfg.Site))
	p := trace.NewTracerProvider(trace.WithBatcher(to), trace.WithResource(from),
		trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(cfg.Share))))
	return &Traces{provider: p, tracer: p.Tracer("github.com/weir-storage/weir")}, nil
}

// Close sends what is not sent yet, until ctx ends.
func (t *Traces) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Flush sends what is not sent yet, until ctx ends, and returns why it could not.
func (t *Traces) Flush(ctx context.Context) error { return t.provider.ForceFlush(ctx) }

// Start implements track.Tracer.
func (t *Traces) Start(ctx context.Context, name string, with ...slog.Attr) (context.Context, func(with ...slog.Attr)) {
	ctx, span := t.tracer.Start(ctx, name)
	describe(span, with)
	return ctx, func(with ...slog.Attr) {
		describe(span, with)
		span.End()
	}
}

// Past implements track.Tracer.
func (t *Traces) Past(ctx context.Context, name string, began, ended time.Time) {
	_, span := t.tracer.Start(ctx, name, oteltrace.WithTimestamp(began))
	span.End(oteltrace.WithTimestamp(ended))
}

func describe(span oteltrace.Span, with []slog.Attr) {
	if !span.IsRecording() {
		return
	}
	for _, a := range with {
		key := attribute.Key("weir." + a.Key)
		if a.Value.Kind() == slog.KindInt64 {
			span.SetAttributes(key.Int64(a.Value.Int64()))
		} else {
			span.SetAttributes(key.String(a.Value.String()))
		}
	}
}

// Client and Server make the calls between gateways part of the traces of their requests.
func (t *Traces) Client() stats.Handler { return otelgrpc.NewClientHandler(t.options()...) }

// Server is Client's other side.
func (t *Traces) Server() stats.Handler { return otelgrpc.NewServerHandler(t.options()...) }

func (t *Traces) options() []otelgrpc.Option {
	return []otelgrpc.Option{otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(propagation.TraceContext{}),
		// Streams between gateways last for days, and have no request.
		otelgrpc.WithFilter(func(i *stats.RPCTagInfo) bool { return i.FullMethodName == forwardpb.Forward_Call_FullMethodName })}
}

// errorLog logs that traces are lost, at most once a minute.
type errorLog struct {
	cfg Config

	mu   sync.Mutex
	last time.Time
}

// Handle implements otel.ErrorHandler.
func (l *errorLog) Handle(err error) {
	now := l.cfg.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := now.Sub(l.last); d < 0 || d >= time.Minute {
		l.last = now
		l.cfg.Log.Warn("traces are lost", "collector", l.cfg.Endpoint, "error", err)
	}
}
