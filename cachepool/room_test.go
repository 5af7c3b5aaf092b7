// SPDX-License-Identifier: Apache-2.0

package cachepool_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-storage/weir/cachepool"
)

func TestFullPoolCanBeEmptied(t *testing.T) {
	r := cachepool.NewRoom("/pool", 3200, 0)
	if err := r.Reserve(3100); err != nil {
		t.Fatal(err)
	}
	err := r.Reserve(1)
	var full *cachepool.FullError
	if !errors.Is(err, cachepool.ErrFull) || !errors.As(err, &full) || full.Room.Used != 3100 {
		t.Fatalf("error %v, want full", err)
	}
	for _, w := range []string{"/pool", "3100", "3200", "100 kept", "pool.size"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %s", err, w)
		}
	}
	if err := r.ReserveUrgent(100); err != nil {
		t.Fatal(err)
	}
	if err := r.ReserveUrgent(1); !errors.Is(err, cachepool.ErrFull) {
		t.Fatalf("error %v, want full", err)
	}
	r.Release(3200)
	if err := r.Reserve(3100); err != nil {
		t.Fatal(err)
	}
}

// What was not asked for is missing for writes, and not for deletes.
func TestCountedLeavesTheReserve(t *testing.T) {
	r := cachepool.NewRoom("/pool", 3200, 0)
	if err := r.Reserve(3100); err != nil {
		t.Fatal(err)
	}
	r.Count(500)
	if err := r.Reserve(1); !errors.Is(err, cachepool.ErrFull) {
		t.Errorf("a write gets room: %v", err)
	}
	if err := r.ReserveUrgent(100); err != nil {
		t.Errorf("a delete gets none: %v", err)
	}
	if err := r.ReserveUrgent(1); !errors.Is(err, cachepool.ErrFull) {
		t.Errorf("deletes get more than their reserve: %v", err)
	}
	r.Count(-500)
	r.Release(200)
	if err := r.Reserve(100); err != nil {
		t.Errorf("room that was given back is not there: %v", err)
	}
}

func TestLimitIsLowered(t *testing.T) {
	r := cachepool.NewRoom("/pool", 500, 900)
	if err := r.ReserveUrgent(1); !errors.Is(err, cachepool.ErrFull) {
		t.Fatalf("error %v, want full", err)
	}
	r.Release(500)
	if err := r.Reserve(80); err != nil {
		t.Fatal(err)
	}
	if err := r.Reserve(math.MaxInt64); !errors.Is(err, cachepool.ErrFull) {
		t.Fatalf("error %v, want full", err)
	}
}

// Whatever is reserved and released, used is the difference and never passes the limit.
func TestRoomModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 1<<40).Draw(t, "limit")
		r := cachepool.NewRoom("p", limit, 0)
		var used int64
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				n := rapid.Int64Range(0, 1<<40).Draw(t, "n")
				err := r.Reserve(n)
				if want := used+n <= limit-r.Status().ReservedForDelete; (err == nil) != want {
					t.Fatalf("reserve %d of %d used: %v", n, used, err)
				}
				if err == nil {
					used += n
				}
			},
			"urgent": func(t *rapid.T) {
				n := rapid.Int64Range(0, 1<<40).Draw(t, "n")
				err := r.ReserveUrgent(n)
				if want := used+n <= limit; (err == nil) != want {
					t.Fatalf("urgent %d of %d used: %v", n, used, err)
				}
				if err == nil {
					used += n
				}
			},
			"release": func(t *rapid.T) {
				n := rapid.Int64Range(0, used).Draw(t, "n")
				r.Release(n)
				used -= n
			},
			"": func(t *rapid.T) {
				if st := r.Status(); st.Used != used || used > limit {
					t.Fatalf("%+v, want %d used", st, used)
				}
			},
		})
	})
}

func TestParseID(t *testing.T) {
	for _, s := range []string{"", "00", strings.Repeat("g", 32), strings.Repeat("0", 33)} {
		if _, err := cachepool.ParseID(s); err == nil {
			t.Errorf("%q is an identity", s)
		}
	}
	if _, err := cachepool.NewID(strings.NewReader("short")); err == nil {
		t.Error("drew an identity from too little")
	}
}
