// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
)

// TestSilent: a gateway that is not reached, or is late, is told from one that says something.
func TestSilent(t *testing.T) {
	const dial = `connection error: desc = "transport: Error while dialing: dial tcp: `
	late, end := context.WithTimeout(t.Context(), 0)
	defer end()
	g := federation.Gateway{Name: "ams-1", Addr: "ams.example.org:7440"}
	for _, c := range []struct {
		ctx    context.Context
		err    error
		silent bool
		text   string
	}{
		{t.Context(), status.Error(codes.Unavailable, dial+`lookup ams.example.org on 10.0.0.10:53: no such host"`), true,
			"gateway ams-1 at ams.example.org:7440 does not answer: transport: Error while dialing"},
		{t.Context(), status.Error(codes.Unavailable, dial+`connect: connection refused"`), true, "connection refused"},
		{t.Context(), status.Error(codes.Unavailable, "error reading from server: EOF"), true, "EOF"},
		{late, status.Error(codes.DeadlineExceeded, "context deadline exceeded"), true, "does not answer in time"},
		{t.Context(), status.Error(codes.DeadlineExceeded, "it took too long"), true, "it took too long"},
		{late, status.Error(codes.Canceled, "context canceled"), true, "context canceled"},
		{t.Context(), status.Error(codes.PermissionDenied, "you are of SURF"), false, "you are of SURF"},
		{t.Context(), status.Error(codes.Unimplemented, "unknown method Cache"), false, "unknown method Cache"},
		{t.Context(), errors.New("what it says is not understood"), false, "is not understood"},
	} {
		var r *Refusal
		if err := fromGateway(c.ctx, g, c.err); !errors.As(err, &r) || r.Silent() != c.silent || !strings.Contains(r.Text, c.text) {
			t.Errorf("%v becomes %v", c.err, err)
		}
	}
}
