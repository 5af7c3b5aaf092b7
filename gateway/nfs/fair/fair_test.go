// SPDX-License-Identifier: Apache-2.0

package fair

import (
	"testing"

	"pgregory.net/rapid"
)

// fill takes parts for who until it gets none.
func fill(r *Room[string], who string, part int) (got int) {
	for {
		if ok, _ := r.Take(who, part); !ok {
			return got
		}
		got += part
	}
}

// TestShares: one alone gets two thirds, who comes later gets something, and who gives back makes
// room.
func TestShares(t *testing.T) {
	r := New[string](900)
	if got := fill(r, "a", 1); got != 600 {
		t.Errorf("one alone got %d, want 600", got)
	}
	if got := fill(r, "b", 1); got != 200 {
		t.Errorf("the second got %d, want 200", got)
	}
	if ok, _ := r.Take("c", 100); !ok {
		t.Error("who has nothing does not get what is left")
	}
	ok, freed := r.Take("d", 1)
	if ok || r.Left("d") > 0 {
		t.Errorf("more than there is: %v", r.Use())
	}
	select {
	case <-freed:
		t.Error("nothing was given back yet")
	default:
	}
	r.Add("a", -600)
	<-freed
	if ok, _ := r.Take("d", 1); !ok {
		t.Error("there is room again")
	}
	r.Add("d", 1000)
	if ok, _ := r.Take("e", 1); ok || r.Left("e") > 0 {
		t.Error("more than the limit is in use, and there is more")
	}
}

// TestRules checks the package's rules for random demands.
func TestRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New[int](rapid.IntRange(1, 1000).Draw(t, "limit"))
		has, used := map[int]int{}, 0
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			who := rapid.IntRange(0, 4).Draw(t, "who")
			if rapid.Bool().Draw(t, "back") {
				r.Add(who, -has[who])
				used -= has[who]
				has[who] = 0
				continue
			}
			n := rapid.IntRange(1, 300).Draw(t, "n")
			left := r.Left(who)
			ok, _ := r.Take(who, n)
			if !ok {
				if n <= left {
					t.Fatalf("%d of %d left are refused", n, left)
				}
				continue
			}
			used += n
			if used > r.limit || has[who] > 0 && has[who]+n > 2*(r.limit-used) {
				t.Fatalf("%d has %d and got %d: %d of %d are used", who, has[who], n, used, r.limit)
			}
			has[who] += n
		}
		if u := r.Use(); u.Used != used {
			t.Fatalf("%d are counted, %d are used", u.Used, used)
		}
	})
}
