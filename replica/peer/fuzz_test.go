// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/replica/protocol"
)

// FuzzEnvelope takes arbitrary bytes for the messages of a connection, cut in two. What is decoded
// is the same when it was encoded again.
func FuzzEnvelope(f *testing.F) {
	e := replica.Envelope{Volume: "v", Message: protocol.Message{Kind: protocol.Beat, Epoch: 3, Stamp: time.Second, Reads: 2,
		From: protocol.Member{Gateway: "g", Site: "s"}, End: protocol.Position{Seq: 1, Off: 128},
		Epochs: []log.EpochStart{{Epoch: 3, Salt: [32]byte{1}}}}, Frames: []byte("frames")}
	one := encode(e)
	again := encode(replica.Envelope{Volume: "v", Message: protocol.Message{Kind: protocol.Ack}})
	again.Slot = 5
	for _, x := range []*peerpb.Envelope{one, {Batch: &peerpb.Batch{Envelopes: []*peerpb.Envelope{one, again}}},
		{Batch: &peerpb.Batch{Repeats: []*peerpb.Repeat{{First: 5, Count: 1, Stamp: 7}}}}} {
		b, err := proto.Marshal(x)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, len(b))
		f.Add(append(b, b...), len(b))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		cut = min(max(cut, 0), len(b))
		d := decoder{slots: map[uint32]replica.Envelope{}}
		for _, part := range [][]byte{b[:cut], b[cut:]} {
			x := new(peerpb.Envelope)
			if proto.Unmarshal(part, x) != nil {
				continue
			}
			all, err := d.decode(x)
			if err != nil {
				return
			}
			for _, e := range all {
				if again := decode(encode(e)); !reflect.DeepEqual(again, e) {
					t.Fatalf("%+v\nencodes as what is\n%+v", e, again)
				}
			}
		}
	})
}
