// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/quantity"
)

// TestTails: the end of the log goes to stores in pieces only where every copy does so.
func TestTails(t *testing.T) {
	for _, x := range []struct {
		what   string
		lag    time.Duration
		level  uint32
		change func(*federation.Volume)
		want   time.Duration
	}{
		{"all do", time.Minute, engine.TailLevel, func(*federation.Volume) {}, time.Minute},
		{"a gateway of an earlier release", time.Minute, engine.TailLevel - 1, func(*federation.Volume) {}, 0},
		{"a blind copy", time.Minute, engine.TailLevel, func(v *federation.Volume) { v.Blind = []string{"b"} }, 0},
		{"a store that is lent", time.Minute, engine.TailLevel, func(v *federation.Volume) { v.Stores = []string{"x"} }, 0},
		{"no bound", 0, engine.TailLevel, func(*federation.Volume) {}, 0},
		{"too soon", 5 * time.Second, engine.TailLevel, func(*federation.Volume) {}, 0},
	} {
		v := federation.Volume{Sites: []string{"a", "b"}}
		v.Spec.Durability.MaxLag.Time = quantity.Duration(x.lag)
		x.change(&v)
		if got := Tails(v, x.level); got != x.want {
			t.Errorf("%s: %s, want %s", x.what, got, x.want)
		}
	}
}
