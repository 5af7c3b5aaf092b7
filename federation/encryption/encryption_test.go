// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation/quantity"
)

// A data key is due once for each greater word of the owner, and when its time is over. A clock
// that was wrong once neither keeps a key for ever nor has keys follow each other.
func TestDue(t *testing.T) {
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	const every = quantity.Duration(24 * time.Hour)
	for name, c := range map[string]struct {
		says Policy
		is   Newest
		due  string
	}{
		"nothing is asked":           {Policy{}, Newest{}, ""},
		"a first word":               {Policy{Rotation: 1}, Newest{}, "its owner"},
		"the same word":              {Policy{Rotation: 1}, Newest{Rotation: 1}, ""},
		"a word that went back":      {Policy{Rotation: 1}, Newest{Rotation: 2}, ""},
		"a greater word":             {Policy{Rotation: 7}, Newest{Rotation: 2}, "its owner"},
		"young":                      {Policy{RotateEvery: every}, Newest{Since: now.Add(-24*time.Hour + 1)}, ""},
		"old":                        {Policy{RotateEvery: every}, Newest{Since: now.Add(-24 * time.Hour)}, "as old"},
		"nobody knows how old":       {Policy{RotateEvery: every}, Newest{}, "as old"},
		"of a clock that is ahead":   {Policy{RotateEvery: every}, Newest{Since: now.Add(time.Minute)}, ""},
		"of a clock that was wrong":  {Policy{RotateEvery: every}, Newest{Since: now.Add(300 * time.Hour)}, "as old"},
		"old, and there is no limit": {Policy{}, Newest{Since: now.Add(-9999 * time.Hour)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if why := c.says.Due(c.is, now); (why == "") != (c.due == "") || !strings.Contains(why, c.due) {
				t.Errorf("%q", why)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	for _, good := range []Policy{{}, {RotateEvery: MinRotateEvery, Rotation: 3}, {RotateEvery: MaxRotateEvery}} {
		if p := good.Problems(); len(p) > 0 {
			t.Errorf("%+v: %v", good, p)
		}
	}
	for field, bad := range map[string]Policy{"rotateEvery": {RotateEvery: MinRotateEvery - 1}, "rotation": {Rotation: -1}} {
		if p := bad.Problems(); len(p) != 1 || p[0][0] != field {
			t.Errorf("%+v: %v", bad, p)
		}
	}
	if p := (Policy{RotateEvery: MaxRotateEvery + 1}).Problems(); len(p) != 1 {
		t.Errorf("too long: %v", p)
	}
}
