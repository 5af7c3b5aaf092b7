// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
)

// TestRoundsGiveWay: a registry that does not take an observation is asked once a round, and rounds
// become rare. Once it takes them, all is as before. A conflict is of one volume only.
func TestRoundsGiveWay(t *testing.T) {
	const homes = 3
	start := time.Unix(0, 0)
	var r rounds
	ask := func(from, to int, err error) (asked int) {
		for s := from; s < to; s++ {
			r.run(start.Add(time.Duration(s)*time.Second), homes, func(int) bool {
				asked++
				return refused(err)
			})
		}
		return asked
	}
	full := fmt.Errorf("%w: etcdserver: mvcc: database space exceeded", federation.ErrUnknown)
	if n := ask(0, 120, full); n > 10 {
		t.Errorf("a registry that is full was asked %d times in two minutes", n)
	}
	ask(120, 160, nil) // the next round is at most half a minute later
	if n := ask(160, 170, nil); n != 10*homes {
		t.Errorf("a registry that works again was asked %d times in ten seconds", n)
	}
	if n := ask(170, 180, fmt.Errorf("volume: %w", federation.ErrConflict)); n != 10*homes {
		t.Errorf("a conflict ended rounds: asked %d times in ten seconds", n)
	}
}
