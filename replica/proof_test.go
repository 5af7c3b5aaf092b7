// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"testing"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/replica/protocol"
)

// Gateways hear of another data key one after the other. A follower's proof counts with the one
// before, and with one that the home has and does not use yet; a refusal only with the newest or
// that: who lost the key is not to say what is committed.
func TestProofAcrossKeys(t *testing.T) {
	all := map[uint32]segment.DataKey{0: {10}, 1: {11}, 2: {12}, 3: {13}}
	keys := segment.NewKeys(all[0])
	keys.Add(map[uint32]segment.DataKey{1: all[1], 2: all[2], 3: all[3]})
	keys.Use(2)
	r := &Replica{cfg: Config{Volume: "v", Keys: keys}}
	from := protocol.Member{Gateway: "g", Site: "s", Incarnation: "i"}
	for number, want := range map[uint32]map[protocol.Kind]bool{
		0: {protocol.Welcome: false, protocol.Refuse: false},
		1: {protocol.Welcome: true, protocol.Refuse: false},
		2: {protocol.Welcome: true, protocol.Refuse: true},
		3: {protocol.Welcome: true, protocol.Refuse: true},
	} {
		for kind, ok := range want {
			m := protocol.Message{Kind: kind, From: from, Epoch: 7}
			if got := r.proves(proof(all[number], "v", from, 7), m); got != ok {
				t.Errorf("data key %d, message %d: %t", number, kind, got)
			}
		}
	}
	if first := (&Replica{cfg: Config{Volume: "v", Keys: segment.NewKeys(all[0])}}); first.proves(nil,
		protocol.Message{Kind: protocol.Welcome}) {
		t.Error("nothing proves")
	}
}
