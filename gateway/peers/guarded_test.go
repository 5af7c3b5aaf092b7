// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// panics is a service whose calls panic.
type panics struct {
	forwardpb.UnimplementedForwardServer
}

func (panics) Status(context.Context, *forwardpb.StatusRequest) (*forwardpb.StatusReply, error) {
	panic("a mistake")
}

// TestPanicEndsOneCall: a call that panics is answered and logged, and the next one is served.
func TestPanicEndsOneCall(t *testing.T) {
	var log bytes.Buffer
	var counted atomic.Int32
	l := bufconn.Listen(1 << 16)
	s := grpc.NewServer(Guarded(slog.New(slog.NewTextHandler(&log, nil)), func() { counted.Add(1) })...)
	forwardpb.RegisterForwardServer(s, panics{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := forwardpb.NewForwardClient(conn).Status(t.Context(), &forwardpb.StatusRequest{})
		if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "a mistake in the program") {
			t.Errorf("the call ends with %v", err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	s.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n := counted.Load(); n != 2 {
		t.Errorf("%d panics are counted", n)
	}
	if !strings.Contains(log.String(), "guarded_test.go") {
		t.Errorf("the log lacks the stack: %s", log.String())
	}
}
