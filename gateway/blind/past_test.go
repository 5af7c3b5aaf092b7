// SPDX-License-Identifier: Apache-2.0

package blind

import (
	"testing"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// TestPastIsChecked: what a gateway tells of the past is refused if it can not be one.
func TestPastIsChecked(t *testing.T) {
	hash := make([]byte, 32)
	seg := func(epoch, length uint64) *peerpb.PastSegment {
		return &peerpb.PastSegment{Epoch: epoch, Salt: hash, Length: length, Hash: hash}
	}
	short := seg(1, 1000)
	short.Hash = hash[:31]
	for _, x := range []struct {
		what  string
		reply *peerpb.PastReply
		at    log.Position
		fits  bool
	}{
		{"whole", &peerpb.PastReply{Segments: []*peerpb.PastSegment{seg(1, 1000), seg(2, 2000)}}, log.Position{Seq: 2, Off: 2000}, true},
		{"ends elsewhere", &peerpb.PastReply{Segments: []*peerpb.PastSegment{seg(1, 1000)}}, log.Position{Seq: 1, Off: 999}, false},
		{"empty", &peerpb.PastReply{}, log.Position{}, false},
		{"epochs go back", &peerpb.PastReply{Segments: []*peerpb.PastSegment{seg(2, 1000), seg(1, 1000)}},
			log.Position{Seq: 2, Off: 1000}, false},
		{"short hash", &peerpb.PastReply{Segments: []*peerpb.PastSegment{short}}, log.Position{Seq: 1, Off: 1000}, false},
		{"too short", &peerpb.PastReply{Segments: []*peerpb.PastSegment{seg(1, segment.HeaderSize-1)}},
			log.Position{Seq: 1, Off: segment.HeaderSize - 1}, false},
		{"pack without a hash", &peerpb.PastReply{Segments: []*peerpb.PastSegment{seg(1, 1000)}, Packs: []*peerpb.PastPack{{Length: 5}}},
			log.Position{Seq: 1, Off: 1000}, false},
	} {
		p := past{at: at{Number: 1, At: x.at}}
		err := p.add(x.reply)
		if err == nil {
			err = p.check()
		}
		if (err == nil) != x.fits {
			t.Errorf("%s: %v", x.what, err)
		}
	}
	if _, err := of(&peerpb.CheckpointReply{Number: 1, Hash: hash[:5]}); err == nil {
		t.Error("a checkpoint with a short hash is believed")
	}
}
