// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/zeebo/blake3"
	"google.golang.org/grpc"

	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/memory"
)

const id = "01000000-0000-0000-0000-000000000000"

// sender is a gateway that sends what a store has.
type sender struct {
	peerpb.PeerClient
	from store.Store
}

func (s sender) Object(ctx context.Context, r *peerpb.ObjectRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[peerpb.FetchReply],
	error) {
	i, err := s.from.Stat(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	b := make([]byte, i.Size)
	return &pieces{b: b}, s.from.GetRange(ctx, r.GetName(), 0, b)
}

type pieces struct {
	grpc.ServerStreamingClient[peerpb.FetchReply]
	b []byte
}

func (p *pieces) Recv() (*peerpb.FetchReply, error) {
	if len(p.b) == 0 {
		return nil, io.EOF
	}
	b := p.b
	p.b = nil
	return &peerpb.FetchReply{Data: b}, nil
}

// write writes a checkpoint of one chunk into a store.
func write(t *testing.T, to store.Store, key byte) *checkpoint.Manifest {
	t.Helper()
	data := segment.DataKey{key}
	head := checkpoint.Head{Volume: segment.VolumeID{1}, At: segment.Position{Seq: 1, Off: 100}, Epoch: 1}
	m, _, err := checkpoint.Write(t.Context(), head, &data, func(yield func(checkpoint.Pair, error) bool) {
		for i := range 100 {
			if !yield(checkpoint.Pair{Key: fmt.Appendf(nil, "key %06d", i), Value: []byte{key}}, nil) {
				return
			}
		}
	}, Set{Store: to, Volume: id})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func get(t *testing.T, in store.Store, name string) []byte {
	t.Helper()
	i, err := in.Stat(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, i.Size)
	if err := in.GetRange(t.Context(), name, 0, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// forge returns an object of another checkpoint that says it is another one: without the key it
// looks whole.
func forge(b, as []byte) []byte {
	const at, size = 32, 32 // of the hash of the content, as docs/format.md has it
	out := bytes.Clone(b[:len(b)-size])
	copy(out[at:at+size], as[at:at+size])
	sum := blake3.Sum256(out)
	return append(out, sum[:]...)
}

// TestForgery: what a gateway made up looks whole without the key. Where the key is here it is not
// taken, the object comes from the next one, and nothing in this site's store is replaced by it. A
// copy without a key has nothing to tell it from, and the next one with a key mends that.
func TestForgery(t *testing.T) {
	own, liar, honest := memory.New(), memory.New(), memory.New()
	m := write(t, own, 1)
	write(t, honest, 1)
	other := write(t, memory.New(), 2)
	key := func(number uint32) (segment.DataKey, bool) { return segment.DataKey{1}, number == 0 }
	foreign := memory.New()
	write(t, foreign, 2)
	for i, name := range m.Names() {
		whole := get(t, own, name)
		forged := forge(get(t, foreign, other.Names()[i]), whole)
		if _, err := checkpoint.Check(name, forged); err != nil {
			t.Fatal("it does not look whole: ", err)
		}
		liar.Damage(name, func([]byte) []byte { return forged })
		damage := func() { own.Damage(name, func([]byte) []byte { return whole[:len(whole)-1] }) }
		from := func(in ...store.Store) Set {
			s := Set{Store: own, Volume: id}
			for _, in := range in {
				client := func(string) (peerpb.PeerClient, error) { return sender{from: in}, nil }
				s.Others = append(s.Others, Other{Gateway: "g", Client: client})
			}
			return s
		}
		keyed := from(liar, honest)
		keyed.Keys = key
		damage()
		if b, err := keyed.Get(t.Context(), name); err != nil || !bytes.Equal(b, whole) || !bytes.Equal(get(t, own, name), whole) {
			t.Errorf("%s: the store has other bytes, %v", name, err)
		}
		damage()
		alone := from(liar)
		alone.Keys = key
		if _, err := alone.Get(t.Context(), name); !errors.Is(err, checkpoint.ErrCorrupt) || len(get(t, own, name)) != len(whole)-1 {
			t.Errorf("%s: a forgery took the place of what was damaged, %v", name, err)
		}
		if b, err := from(liar).Get(t.Context(), name); err != nil || !bytes.Equal(b, forged) {
			t.Errorf("%s: without a key it is %d bytes, %v", name, len(b), err)
		}
		doubts := Set{Store: own, Volume: id, Doubts: true, Keys: key}
		if has, err := doubts.Has(t.Context(), name); has || err != nil {
			t.Errorf("%s: the store is said to have it, %v", name, err)
		}
		if b, err := keyed.Get(t.Context(), name); err != nil || !bytes.Equal(b, whole) || !bytes.Equal(get(t, own, name), whole) {
			t.Errorf("%s: what was forged stays in the store, %v", name, err)
		}
		own.Damage(name, func([]byte) []byte { return forged })
		if err := doubts.Put(t.Context(), name, whole); err != nil {
			t.Fatal(err)
		}
		if has, err := doubts.Has(t.Context(), name); !has || err != nil {
			t.Errorf("%s: it is whole, %v", name, err)
		}
		doubts.Keys = func(uint32) (segment.DataKey, bool) { return segment.DataKey{}, false }
		if _, err := doubts.Has(t.Context(), name); err == nil {
			t.Errorf("%s: the key is not known, and it is called whole", name)
		}
	}
}
