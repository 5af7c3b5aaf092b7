// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/gateway/traces"
)

// received is a collector of traces. It has the spans by their id, with the gateway they are of.
type received struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans map[string]span
}

type span struct {
	gateway, name, parent, trace string
	attrs                        map[string]string
	took                         time.Duration
}

func (r *received) Export(_ context.Context, q *collector.ExportTraceServiceRequest) (
	*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range q.GetResourceSpans() {
		gateway := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.instance.id" {
				gateway = a.GetValue().GetStringValue()
			}
		}
		for _, s := range of.GetScopeSpans() {
			for _, x := range s.GetSpans() {
				r.spans[hex.EncodeToString(x.GetSpanId())] = toSpan(gateway, x)
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func toSpan(gateway string, x *tracepb.Span) span {
	out := span{gateway: gateway, name: x.GetName(), parent: hex.EncodeToString(x.GetParentSpanId()),
		trace: hex.EncodeToString(x.GetTraceId()), attrs: map[string]string{},
		took: time.Duration(x.GetEndTimeUnixNano() - x.GetStartTimeUnixNano())}
	for _, a := range x.GetAttributes() {
		out.attrs[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return out
}

// line returns how a span came to be, from the client's request: "ga COMPOUND > ga WRITE > …".
func (r *received) line(id string) string {
	s := r.spans[id]
	own := s.gateway + " " + s.name
	if s.parent == "" {
		return own
	}
	return r.line(s.parent) + " > " + own
}

// lines returns all of them.
func (r *received) lines() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.spans {
		out = append(out, r.line(id))
	}
	slices.Sort(out)
	return out
}

// TestTraces: a request at a gateway that is not the home is one trace at a real collector, from
// the COMPOUND to the home's disk and the slowest member.
func TestTraces(t *testing.T) {
	t.Parallel()
	got := &received{spans: map[string]span{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, got)
	go func() { _ = server.Serve(l) }() // Stop ends it
	t.Cleanup(server.Stop)

	var all []*traces.Traces
	c := newCluster(t)
	c.tracer = func(site string) Tracer {
		tr, err := traces.Open(t.Context(), traces.Config{Endpoint: "http://" + l.Addr().String(), Share: 1, Gateway: "g" + site,
			Log: slog.New(slog.DiscardHandler), Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tr)
		return tr
	}
	for _, site := range []string{"a", "b"} {
		c.add(site)
	}
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	c.members(id, "a", "b")
	c.admit("a", id)
	c.admit("b", id)
	h, _ := c.at("a").view.Home(id)
	home, other := strings.TrimPrefix(h, "g"), "a"
	if home == "a" {
		other = "b"
	}
	ctx := within(t, hang)
	nfs, root := c.mount(ctx, other, "client", "v")
	f, err := nfs.Open(ctx, root, "f", nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nfs.Write(ctx, f.FH(), f.Stateid(), []byte("x"), 0, xdr.FILE_SYNC4); err != nil {
		t.Fatal(err)
	}
	const rpc = "weir.forward.v1.Forward/Call"
	call := fmt.Sprintf("g%s COMPOUND > g%[1]s WRITE > g%[1]s home > g%[1]s "+rpc+" > g%s "+rpc, other, home)
	want := []string{call + " > g" + home + " disk", call + " > g" + home + " members"}
	c.until("the trace is at the collector", func() error {
		for _, tr := range all {
			if err := tr.Flush(ctx); err != nil {
				return err
			}
		}
		lines := got.lines()
		for _, w := range want {
			if !slices.Contains(lines, w) {
				return errors.New(w + " is not there:\n" + strings.Join(lines, "\n"))
			}
		}
		return nil
	})
	got.mu.Lock()
	defer got.mu.Unlock()
	seen := 0
	for id, s := range got.spans {
		switch {
		case strings.HasPrefix(s.name, "COMPOUND") && s.attrs["weir.client"] != "127.0.0.1":
			t.Errorf("%s: client %q", got.line(id), s.attrs["weir.client"])
		case s.parent != "" && got.spans[s.parent].trace != s.trace:
			t.Errorf("%s is in two traces", got.line(id))
		case s.name == "WRITE":
			seen++
			above := got.spans[s.parent]
			if s.attrs["weir.status"] != "NFS4_OK" || above.attrs["weir.volume"] != "v" || s.took > above.took {
				t.Errorf("%+v of %+v", s, above)
			}
		case strings.Contains(s.name, "peer"):
			t.Errorf("a stream between gateways is traced: %s", s.name)
		}
	}
	if seen != 1 {
		t.Errorf("%d spans of one WRITE", seen)
	}
}
