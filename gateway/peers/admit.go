// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// Which parts of the federation may call what at a gateway. Whose call it is, the methods
// themselves look at.
var (
	gateways = []pki.Part{pki.PartGateway}
	people   = []pki.Part{pki.PartGateway, pki.PartOperator, pki.PartPerson, pki.PartAdministrator}
	callers  = map[string][]pki.Part{
		peerpb.Peer_Carry_FullMethodName:          gateways,
		peerpb.Peer_Fetch_FullMethodName:          gateways,
		peerpb.Peer_Checkpoint_FullMethodName:     gateways,
		peerpb.Peer_Object_FullMethodName:         gateways,
		peerpb.Peer_Past_FullMethodName:           gateways,
		peerpb.Outlines_Follow_FullMethodName:     gateways,
		forwardpb.Forward_Call_FullMethodName:     gateways,
		forwardpb.Forward_Held_FullMethodName:     gateways,
		forwardpb.Forward_Key_FullMethodName:      gateways,
		forwardpb.Forward_Clock_FullMethodName:    gateways,
		forwardpb.Forward_Status_FullMethodName:   people,
		forwardpb.Forward_Cache_FullMethodName:    people,
		forwardpb.Forward_Warm_FullMethodName:     people,
		forwardpb.Forward_Space_FullMethodName:    people,
		forwardpb.Forward_Check_FullMethodName:    people,
		forwardpb.Forward_Failover_FullMethodName: people,
		forwardpb.Forward_Activity_FullMethodName: people,
		forwardpb.Forward_Diagnose_FullMethodName: people,
		nodepb.Node_Admit_FullMethodName:          {pki.PartNode},
		nodepb.Node_Usage_FullMethodName:          {pki.PartNode},
		nodepb.Node_Revoke_FullMethodName:         {pki.PartController},
	}
)

// partOf is which part a caller is. Certificates of earlier releases do not say so, and are known
// by the names that the chart gives; others of them may be any part.
func partOf(id pki.Identity) pki.Part {
	if id.Part != pki.PartUnknown {
		return id.Part
	}
	for _, p := range []pki.Part{pki.PartNode, pki.PartController, pki.PartOperator} {
		if strings.HasSuffix(id.Gateway, "-"+string(p)) {
			return p
		}
	}
	return pki.PartUnknown
}

// admit refuses a call of a part that has no business with a method, or of a method that nobody
// thought of.
func (p *Peers) admit(ctx context.Context, method string) error {
	id, err := p.Identity(ctx)
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	may, known := callers[method]
	switch part := partOf(id); {
	case !known:
		return status.Errorf(codes.Unimplemented, "gateway %s has no method %s", p.gateway, method)
	case part == pki.PartUnknown, slices.Contains(may, part):
		return nil
	default:
		if p.watch.Refused != nil {
			p.watch.Refused(id, method)
		}
		return status.Error(codes.PermissionDenied, fmt.Sprintf("certificate is of %s, part %q, and only %q may call %s at gateway %s",
			id, part, may, method, p.gateway))
	}
}

func (p *Peers) unary(ctx context.Context, in any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := p.admit(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handle(ctx, in)
}

func (p *Peers) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if err := p.admit(s.Context(), info.FullMethod); err != nil {
		return err
	}
	return handle(srv, s)
}
