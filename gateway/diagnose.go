// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/pprof"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// Diagnostic is a file that helps to find a fault. It has no secret, and no data of volumes.
type Diagnostic struct {
	Name  string
	Write func(io.Writer) error
}

// diagnosePart is the size of a message of Diagnose, in bytes.
const diagnosePart = 1 << 20

// diagnostics are the files that every gateway has, then those of the process around it.
func (g *Gateway) diagnostics() []Diagnostic {
	asJSON := func(v func() any) func(io.Writer) error {
		return func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(v())
		}
	}
	profile := func(name string, debug int) func(io.Writer) error {
		return func(w io.Writer) error { return pprof.Lookup(name).WriteTo(w, debug) }
	}
	return append([]Diagnostic{
		{"status.json", asJSON(func() any { return g.reporter.Status("") })},
		{"activity.json", asJSON(func() any { return g.nfs.Activity() })},
		{"clients.json", asJSON(func() any { return g.nfs.Clients() })},
		{"room.json", asJSON(func() any { return g.caching.Status().Pools })},
		{"memory.json", asJSON(func() any {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return map[string]uint64{"alloc": m.Alloc, "sys": m.Sys, "heapInuse": m.HeapInuse, "stackInuse": m.StackInuse,
				"mallocs": m.Mallocs, "frees": m.Frees, "gc": uint64(m.NumGC), "gcPauseNanoseconds": m.PauseTotalNs,
				"goroutines": uint64(runtime.NumGoroutine())}
		})},
		{"goroutines.txt", profile("goroutine", 2)}, {"heap.pb.gz", profile("heap", 0)},
	}, g.cfg.Diagnostics...)
}

// ownOrganization returns an error unless the caller is of this gateway's organization.
func (g *Gateway) ownOrganization(ctx context.Context) error {
	id, err := g.peers.Identity(ctx)
	if err == nil && id.Organization != g.cfg.Organization {
		err = fmt.Errorf("certificate is of organization %q: gateway %s tells this to organization %q only: use a certificate of that one",
			id.Organization, g.cfg.Name, g.cfg.Organization)
	}
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}

// Activity implements the service, for the gateway's own organization.
func (s *service) Activity(ctx context.Context, _ *forwardpb.ActivityRequest) (*forwardpb.ActivityReply, error) {
	if err := s.g.ownOrganization(ctx); err != nil {
		return nil, err
	}
	b, err := json.Marshal(s.g.nfs.Activity())
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &forwardpb.ActivityReply{Json: b}, nil
}

// Diagnose implements the service, for the gateway's own organization. What cannot be had is
// replaced by why not.
func (s *service) Diagnose(_ *forwardpb.DiagnoseRequest, to forwardpb.Forward_DiagnoseServer) error {
	if err := s.g.ownOrganization(to.Context()); err != nil {
		return err
	}
	for _, d := range s.g.diagnostics() {
		var b bytes.Buffer
		if err := d.Write(&b); err != nil {
			_, _ = fmt.Fprintf(&b, "\nthe rest is missing: %v\n", err) // never fails
		}
		for first := true; first || b.Len() > 0; first = false {
			if err := to.Send(&forwardpb.DiagnosePart{Name: d.Name, Data: b.Next(diagnosePart)}); err != nil {
				return err
			}
		}
	}
	return nil
}
