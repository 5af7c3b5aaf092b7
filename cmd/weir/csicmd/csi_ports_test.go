// SPDX-License-Identifier: Apache-2.0

package csicmd

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csidriver "github.com/weir-storage/weir/csi-driver"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/gateway/node/nodepb"
)

// fencer is a gateway that records what it is asked.
type fencer struct {
	nodepb.NodeClient
	asked []string
	fails error
	admit *nodepb.AdmitRequest
}

func (f *fencer) Revoke(_ context.Context, q *nodepb.RevokeRequest, _ ...grpc.CallOption) (*nodepb.RevokeReply, error) {
	f.asked = append(f.asked, q.GetVolume()+" "+q.GetNode())
	return &nodepb.RevokeReply{}, f.fails
}

func (f *fencer) Admit(_ context.Context, q *nodepb.AdmitRequest, _ ...grpc.CallOption) (*nodepb.AdmitReply, error) {
	f.admit = q
	return &nodepb.AdmitReply{Export: "/lab.data", NfsPort: 12049, Access: nodepb.Access_ACCESS_READ_ONLY}, f.fails
}

// Detach succeeds only after every gateway of the site has fenced the node. It removes the
// attachment before that.
func TestDetachFences(t *testing.T) {
	r := memory.New()
	t.Cleanup(func() { _ = r.Close() })
	for _, s := range []federation.Site{
		{Name: "ams", Organization: "o", Gateways: []federation.Gateway{{Name: "g1", Addr: "h:1"}, {Name: "g2", Addr: "h:2"}}},
		{Name: "fra", Organization: "o", Gateways: []federation.Gateway{{Name: "g3", Addr: "h:3"}}},
	} {
		if err := r.Register(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	gateways := map[string]*fencer{"g1": {}, "g2": {fails: status.Error(codes.Unavailable, "away")}, "g3": {}}
	a := &attachments{registry: r, site: "ams", now: time.Now,
		node: func(_ federation.Site, g federation.Gateway) (nodepb.NodeClient, error) { return gateways[g.Name], nil }}
	if err := a.Attach(t.Context(), "u", "n", true); err != nil {
		t.Fatal(err)
	}
	if got, err := a.List(t.Context(), "u"); err != nil ||
		!slices.Equal(got, []csidriver.Attachment{{Volume: "u", Node: "n", ReadOnly: true}}) {
		t.Fatalf("listed %+v, %v", got, err)
	}
	if got, err := a.List(t.Context(), "other"); err != nil || len(got) != 0 {
		t.Fatalf("listed %+v, %v", got, err)
	}
	if err := a.Detach(t.Context(), "u", "n"); err == nil || !strings.Contains(err.Error(), "gateway g2") {
		t.Fatalf("with a gateway that does not answer: %v", err)
	}
	if got, _ := a.List(t.Context(), ""); len(got) != 0 {
		t.Fatalf("the attachment is there: %+v", got)
	}
	gateways["g2"].fails = status.Error(codes.NotFound, "no such volume")
	if err := a.Detach(t.Context(), "u", "n"); err != nil {
		t.Fatal(err)
	}
	if len(gateways["g3"].asked) > 0 || len(gateways["g2"].asked) != 2 {
		t.Errorf("asked: %v", gateways)
	}
}

func TestSiteGateway(t *testing.T) {
	f := new(fencer)
	g := &siteGateway{client: f, host: "10.96.0.7", port: 2049}
	e, err := g.Admit(t.Context(), csidriver.AdmitRequest{Volume: "u", Node: "n", Namespace: "lab", MountGroup: "1000"})
	want := csidriver.Export{Host: "10.96.0.7", Port: 2049, Path: "/lab.data", ReadOnly: true}
	if err != nil || e != want || f.admit.GetMountGroup() != 1000 || f.admit.GetNamespace() != "lab" {
		t.Fatalf("%+v, %v; asked %v", e, err, f.admit)
	}
	if _, err := g.Admit(t.Context(), csidriver.AdmitRequest{MountGroup: "staff"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a group's name: %v", err)
	}
	f.fails = status.Error(codes.PermissionDenied, "no claim")
	if _, err := g.Admit(t.Context(), csidriver.AdmitRequest{}); status.Code(err) != codes.PermissionDenied || f.admit.MountGroup != nil {
		t.Errorf("denied: %v", err)
	}
	for _, bad := range []string{"", "10.96.0.7", ":7001", "h:"} {
		if _, err := serviceAddress(bad); err == nil {
			t.Errorf("--gateway %q is accepted", bad)
		}
	}
}
