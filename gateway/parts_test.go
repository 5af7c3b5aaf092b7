// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/metrics"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// A certificate opens at a gateway's port what its owner is for, and no more: a worker's node
// plugin sends no records and reads no segment, and what it tries is logged and counted.
func TestPartsAtGateways(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	people := []pki.Part{pki.PartGateway, pki.PartOperator, pki.PartPerson, pki.PartAdministrator}
	methods := map[string][]pki.Part{
		peerpb.Peer_Carry_FullMethodName: {pki.PartGateway}, peerpb.Peer_Fetch_FullMethodName: {pki.PartGateway},
		peerpb.Peer_Checkpoint_FullMethodName: {pki.PartGateway}, peerpb.Peer_Object_FullMethodName: {pki.PartGateway},
		peerpb.Peer_Past_FullMethodName:       {pki.PartGateway},
		peerpb.Outlines_Follow_FullMethodName: {pki.PartGateway}, forwardpb.Forward_Call_FullMethodName: {pki.PartGateway},
		forwardpb.Forward_Held_FullMethodName: {pki.PartGateway}, forwardpb.Forward_Status_FullMethodName: people,
		forwardpb.Forward_Failover_FullMethodName: people, forwardpb.Forward_Activity_FullMethodName: people,
		forwardpb.Forward_Diagnose_FullMethodName: people, forwardpb.Forward_Cache_FullMethodName: people,
		forwardpb.Forward_Warm_FullMethodName: people, forwardpb.Forward_Space_FullMethodName: people,
		forwardpb.Forward_Check_FullMethodName: people,
		nodepb.Node_Admit_FullMethodName:       {pki.PartNode},
		nodepb.Node_Usage_FullMethodName:       {pki.PartNode}, nodepb.Node_Revoke_FullMethodName: {pki.PartController},
		forwardpb.Forward_Key_FullMethodName: {pki.PartGateway}, forwardpb.Forward_Clock_FullMethodName: {pki.PartGateway},
	}
	n := 0
	for _, d := range []grpc.ServiceDesc{peerpb.Peer_ServiceDesc, peerpb.Outlines_ServiceDesc, forwardpb.Forward_ServiceDesc,
		nodepb.Node_ServiceDesc} {
		for _, m := range d.Methods {
			n++
			if methods["/"+d.ServiceName+"/"+m.MethodName] == nil {
				t.Errorf("method %s of %s: nobody says who may call it", m.MethodName, d.ServiceName)
			}
		}
		for _, m := range d.Streams {
			n++
			if methods["/"+d.ServiceName+"/"+m.StreamName] == nil {
				t.Errorf("method %s of %s: nobody says who may call it", m.StreamName, d.ServiceName)
			}
		}
	}
	if n != len(methods) {
		t.Errorf("%d methods, and %d that somebody may call", n, len(methods))
	}
	for _, part := range append(pki.Parts(), pki.PartUnknown) {
		name := "x-" + string(part)
		if part == pki.PartUnknown {
			name = "a-csi-node" // of an earlier release
		}
		conn := c.dialAs(pki.Identity{Federation: "test", Organization: "org-a", Site: "a", Gateway: name, Part: part}, "a")
		for method, may := range methods {
			want := slices.Contains(may, part) || part == pki.PartUnknown && slices.Contains(may, pki.PartNode)
			before := c.refusals()
			err := conn.Invoke(t.Context(), method, &emptypb.Empty{}, &emptypb.Empty{})
			counted := c.refusals() > before
			// Who may call is told something else about an empty request, perhaps also that it may
			// not.
			if counted == want || !want && status.Code(err) != codes.PermissionDenied {
				t.Errorf("%q calls %s: %v, refused for its part: %t", part, method, err, counted)
			}
		}
	}
}

// dialAs connects to the gateway of a site with a certificate of an identity.
func (c *cluster) dialAs(id pki.Identity, site string, more ...grpc.DialOption) *grpc.ClientConn {
	c.t.Helper()
	creds := c.credentialsOf(id, "127.0.0.1")
	conn, err := grpc.NewClient("passthrough:///"+c.nodes[site].grpc,
		append(more, grpc.WithTransportCredentials(credentials.NewTLS(creds.Client(pki.Expect{Site: site}))))...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// refusals counts the calls that the gateway at a refused for what their callers are.
func (c *cluster) refusals() (n float64) {
	c.t.Helper()
	for _, m := range c.read("a")[metrics.CallsRefused.Name].GetMetric() {
		n += m.GetCounter().GetValue()
	}
	return n
}
