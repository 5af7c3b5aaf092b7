// SPDX-License-Identifier: Apache-2.0

package borrowing

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/federation/paper"
)

// A gateway that does nothing any more counts anew while an agreement ends, until nothing is left:
// another may have deleted what it put there, and the agreement is not drained before it says so.
func TestWhenBothSidesMeet(t *testing.T) {
	some := paper.Counters{Puts: 1, In: 5, Stored: 5}
	none := paper.Counters{Puts: 1, In: 5}
	for _, x := range []struct {
		phase       paper.Phase
		is, counted paper.Counters
		since       time.Duration
		want        bool
	}{
		{paper.Active, some, none, meetEvery, true},
		{paper.Active, some, none, meetEvery - 1, false},
		{paper.Active, some, some, tellEvery - 1, false},
		{paper.Active, some, some, tellEvery, true},
		{paper.Ending, some, some, meetEvery, true},
		{paper.Breached, some, some, meetEvery, true},
		{paper.Ending, some, some, meetEvery - 1, false},
		{paper.Ending, none, none, tellEvery - 1, false},
	} {
		if got := meets(x.phase, x.is, x.counted, x.since, meetEvery); got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
}
