// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

func TestFetch(t *testing.T) {
	r := newRig(t)
	object := make([]byte, 2*maxFetch+100)
	for i := range object {
		object[i] = byte(i >> 10)
	}
	may := func(volume, gateway string) bool { return gateway == "a" && volume != "other" }
	fetched := func(_ context.Context, volume, segment string, off int64, p []byte) error {
		if volume != "v" || segment != "s" || off+int64(len(p)) > int64(len(object)) {
			return errors.New("no such range")
		}
		copy(p, object[off:])
		return nil
	}
	addr, _ := r.serve("b", &Server{Caller: caller, May: may, Fetched: fetched})
	client := func(organization string) peerpb.PeerClient {
		conn, err := grpc.NewClient("passthrough:///"+addr,
			grpc.WithTransportCredentials(credentials.NewTLS(r.credentials("a", organization).Client(pki.Expect{}))),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(8<<20)))
		r.must(err)
		t.Cleanup(func() { _ = conn.Close() })
		return peerpb.NewPeerClient(conn)
	}
	good := client("org-a")
	s := Source{Gateway: "b", Volume: "v", Client: func(string) (peerpb.PeerClient, error) { return good, nil }}
	got := make([]byte, len(object)-7)
	r.must(s.ReadSegment(t.Context(), "s", 7, got))
	if !bytes.Equal(got, object[7:]) {
		t.Fatal("other bytes came")
	}
	if err := s.ReadSegment(t.Context(), "s", 8, got); err == nil {
		t.Fatal("a range past the end was read")
	}
	for _, c := range []struct {
		client peerpb.PeerClient
		volume string
		off    int64
		n      int32
		want   codes.Code
	}{
		{good, "v", 0, 0, codes.InvalidArgument},
		{good, "v", -1, 1, codes.InvalidArgument},
		{good, "v", 0, maxFetch + 1, codes.InvalidArgument},
		{good, "v", int64(len(object)), 1, codes.NotFound},
		{client("org-b"), "v", 0, 1, codes.PermissionDenied},
		{good, "other", 0, 1, codes.PermissionDenied},
	} {
		_, err := c.client.Fetch(t.Context(), &peerpb.FetchRequest{Volume: c.volume, Segment: "s", Offset: c.off, Length: c.n})
		if status.Code(err) != c.want {
			t.Errorf("fetch %d at %d: %v, want %v", c.n, c.off, err, c.want)
		}
	}
}
