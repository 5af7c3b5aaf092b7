// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"log/slog"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
)

// TestAlike: a copy drops what was condemned at a checkpoint only once it found that checkpoint, or
// a later one, to be what the home made (checkpoints-1, checkpoints-5).
func TestAlike(t *testing.T) {
	k := New(Config{Logger: slog.New(slog.DiscardHandler), Due: Due{Grace: time.Minute}})
	mine := map[uint64]checkpoint.Hash{3: {3}, 4: {4}, 5: {5}}
	k.last["v"] = made{number: 5, hashes: mine}
	for _, x := range []struct {
		number  uint64
		hash    checkpoint.Hash
		differs uint64
		may     uint64 // the newest at which what was condemned may go
	}{
		{2, checkpoint.Hash{2}, 0, 0}, // which this copy did not make
		{3, mine[3], 0, 3},
		{4, checkpoint.Hash{9}, 4, 0}, // one of the two is damaged: nothing goes
		{5, mine[5], 0, 5},
	} {
		var home engine.Checkpoints
		home.Made.Number, home.Made.Hash = x.number, x.hash
		k.compare(Copy{UUID: "v"}, home)
		if got := k.of("v").differs; got != x.differs {
			t.Errorf("checkpoint %d: %d differs, want %d", x.number, got, x.differs)
		}
		for number := uint64(1); number <= 6; number++ {
			if got, want := k.mayGo("v", number, time.Minute), number <= x.may; got != want {
				t.Errorf("after checkpoint %d, what was condemned at %d may go: %t", x.number, number, got)
			}
			if k.mayGo("v", number, time.Minute-1) {
				t.Error("it may go before the grace is over")
			}
		}
	}
}
