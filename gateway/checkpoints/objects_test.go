// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// teller is a gateway that tells of a checkpoint; 0: of none.
type teller struct {
	peerpb.PeerClient
	number uint64
}

func (t teller) Checkpoint(context.Context, *peerpb.CheckpointRequest, ...grpc.CallOption) (*peerpb.CheckpointReply, error) {
	if t.number == 0 {
		return nil, errors.New("it knows of none")
	}
	return &peerpb.CheckpointReply{Number: t.number}, nil
}

// TestNewest: the home says which checkpoint is the newest, and others only if it does not: a
// member that tells of a later one has damaged metadata, or an earlier home was one too.
func TestNewest(t *testing.T) {
	all := map[string]uint64{}
	b := Beginning{Gateway: "d", Control: &federation.Control{Home: federation.Member{Gateway: "a"},
		Members: []federation.Member{{Gateway: "b"}, {Gateway: "a"}, {Gateway: "c"}, {Gateway: "d"}}},
		Client: func(g string) (peerpb.PeerClient, error) { return teller{number: all[g]}, nil }}
	for _, x := range []struct{ a, b, c, want uint64 }{{5, 5, 5, 5}, {5, 4, 99, 5}, {0, 4, 5, 5}, {0, 5, 4, 5}, {0, 0, 0, 0}} {
		all["a"], all["b"], all["c"] = x.a, x.b, x.c
		got, err := objects{others: b.others()}.newest(t.Context())
		if got.GetNumber() != x.want || (x.want == 0) != (got == nil) || x.want == 0 && err == nil {
			t.Errorf("%+v: %v, %v", x, got, err)
		}
	}
}
