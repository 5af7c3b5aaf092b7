// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc"

	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/objects"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/store/memory"
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
		got, err := objects.Set{Others: b.others()}.Newest(t.Context())
		if got.GetNumber() != x.want || (x.want == 0) != (got == nil) || x.want == 0 && err == nil {
			t.Errorf("%+v: %v, %v", x, got, err)
		}
	}
}

// TestDoubtfulObjects: a checkpoint that is made whole, since one before could not be read, puts
// again what the store has damaged. Otherwise it would have the same chunks, damaged for ever.
func TestDoubtfulObjects(t *testing.T) {
	in := memory.New()
	of := segment.VolumeID{1}
	id := "01000000-0000-0000-0000-000000000000"
	pairs := func(yield func(checkpoint.Pair, error) bool) {
		for i := range 1000 {
			if !yield(checkpoint.Pair{Key: fmt.Appendf(nil, "key %06d", i), Value: []byte("value")}, nil) {
				return
			}
		}
	}
	head := checkpoint.Head{Volume: of, At: segment.Position{Seq: 1, Off: 100}, Epoch: 1}
	key := segment.DataKey{2}
	keys := func(uint32) (segment.DataKey, bool) { return key, true }
	write := func(doubts bool) (*checkpoint.Manifest, checkpoint.Stats) {
		t.Helper()
		m, stats, err := checkpoint.Write(t.Context(), head, &key, pairs, objects.Set{Store: in, Volume: id, Doubts: doubts})
		if err != nil {
			t.Fatal(err)
		}
		return m, stats
	}
	reads := func(m *checkpoint.Manifest) (err error) {
		t.Helper()
		is, err := checkpoint.Open(t.Context(), of, m.Hash(), keys, Objects(in, id))
		if err != nil {
			return err
		}
		n := 0
		for _, err := range is.ReadPairs(t.Context(), Objects(in, id)) {
			if err != nil {
				return err
			}
			n++
		}
		if n != 1000 {
			t.Errorf("it has %d pairs", n)
		}
		return nil
	}
	m, _ := write(false)
	if err := reads(m); err != nil {
		t.Fatal(err)
	}
	for _, damage := range []func([]byte) []byte{
		func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		func(b []byte) []byte { return b[:len(b)-1] },
	} {
		for _, name := range m.Names() {
			in.Damage(name, damage)
			if reads(m) == nil {
				t.Errorf("%s is damaged, and is read", name)
			}
			if _, stats := write(true); stats.Sealed == 0 {
				t.Errorf("%s is damaged, and nothing was put", name)
			}
			if err := reads(m); err != nil {
				t.Errorf("%s is damaged still: %v", name, err)
			}
		}
	}
	if _, stats := write(true); stats.Sealed != 0 {
		t.Errorf("all is whole, and %d bytes were put", stats.Sealed)
	}
	in.SetFault(func(op, _ string) error {
		if op == "delete" {
			t.Error("something is deleted that could not be read")
		}
		return errors.New("it is away")
	})
	if _, _, err := checkpoint.Write(t.Context(), head, &key, pairs, objects.Set{Store: in, Volume: id, Doubts: true}); err == nil {
		t.Error("the store is away, and it is written")
	}
}
