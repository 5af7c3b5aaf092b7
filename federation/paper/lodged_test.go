// SPDX-License-Identifier: Apache-2.0

package paper_test

import (
	"math"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// TestLodged: what somebody said last is his account. He says what changed soon, what goes on each
// hour, and nothing while nothing is taken.
func TestLodged(t *testing.T) {
	begin := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	r := &paper.Request{Terms: paper.Terms{ID: agreed, Guest: "B", Host: "A", Site: "ams", Kind: paper.KindCopy, Amount: 100}}
	var is *paper.Usage
	for _, x := range []struct {
		second int
		stored quantity.Bytes
		wait   time.Duration // 0: it is said now; negative: there is nothing to say
		says   quantity.Bytes
		hours  float64
	}{
		{0, 0, -1, 0, 0}, {0, 60, 0, 60, 0}, {5, 80, 5 * time.Second, 0, 0}, {3600, 60, 0, 60, 60}, {3610, 200, 0, 100, 60 + 60*10.0/3600},
		{3600 + 1810, 200, 30 * time.Minute, 0, 0}, {0, 0, paper.SaidSoon + 3610*time.Second, 0, 0},
		{7210, 0, 0, 0, 160 + 60*10.0/3600}, {90000, 0, -1, 0, 0},
	} {
		u, wait := r.Lodged("b", "B", is, x.stored, begin.Add(time.Duration(x.second)*time.Second))
		if (u == nil) != (x.wait < 0) || u != nil && wait != x.wait {
			t.Fatalf("after %d s: it says %+v in %v, want %v", x.second, u, wait, x.wait)
		}
		if x.wait != 0 {
			continue
		}
		if c := u.Of["ams"]; c.Stored != x.says || math.Abs(c.ByteHours-x.hours) > 1e-6 || u.By != "b" || u.Organization != "B" {
			t.Fatalf("after %d s: it says %+v, want %v and %v byte-hours", x.second, u, x.says, x.hours)
		}
		is = u
	}
}
