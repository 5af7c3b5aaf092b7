// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// BeforeChanges calls f each time that a change was judged, before it is sent to etcd. Call it
// before Serve.
func (g *Gatekeeper) BeforeChanges(f func()) { g.kv = racing{g.kv, f} }

type racing struct {
	pb.KVClient
	f func()
}

func (r racing) Txn(ctx context.Context, in *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	for _, op := range in.GetSuccess() {
		if op.GetRequestRange() == nil {
			r.f()
			break
		}
	}
	return r.KVClient.Txn(ctx, in, opts...)
}
