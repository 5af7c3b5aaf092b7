// SPDX-License-Identifier: Apache-2.0

package forward_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// home is a volume in memory as a home.
type home struct{ *memvol.Volume }

func (h home) WriteAt(ctx context.Context, r volume.Request, f volume.Handle, off uint64, data []byte, stable bool) (
	w volume.Written, end journal.Position, err error) {
	w, err = h.Write(ctx, r, f, off, data, stable)
	return w, end, err
}

func (h home) Locks(forward.Registration) forward.Locks { return locks(h) }

type locks struct{ *memvol.Volume }

func (locks) Register(context.Context, bool, []forward.HeldLock) ([]forward.HeldLock, error) {
	return nil, nil
}

// FuzzDispatch executes arbitrary operations of another gateway, two after another.
func FuzzDispatch(f *testing.F) {
	root := &forwardpb.Handle{Ino: volume.Root.Ino}
	for m := range int32(len(forwardpb.Method_name)) {
		b, err := proto.Marshal(&forwardpb.CallRequest{Method: forwardpb.Method(m), Handle: root, Target: root, Name: []byte("n"),
			NewName: []byte("m"), Type: uint32(volume.Regular), Length: 100, Data: []byte("data"), Lock: &forwardpb.Lock{End: 5}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		h := home{memvol.New(volume.ID{1})}
		for _, b := range [][]byte{first, second} {
			q := new(forwardpb.CallRequest)
			if proto.Unmarshal(b, q) != nil {
				continue
			}
			if reply := forward.Dispatch(t.Context(), t.Context(), h, q); len(reply.GetData()) > volume.MaxIO {
				t.Fatalf("%d bytes", len(reply.GetData()))
			}
		}
	})
}
