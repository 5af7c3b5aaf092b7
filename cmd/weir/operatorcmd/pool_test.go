// SPDX-License-Identifier: Apache-2.0

package operatorcmd

import (
	"strings"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/gateway/caching"
)

// TestNamed: a CachePool shows the pool of its name, also of a gateway that has one pool and is of
// an earlier version.
func TestNamed(t *testing.T) {
	report := new(cachepool.Report)
	several := caching.Status{Pools: []caching.Pool{{Name: "main", Limit: 1, Report: report}, {Name: "fast", Limit: 2, Report: report},
		{Name: "mute", Limit: 3}}}
	earlier := caching.Status{Pool: caching.Pool{Limit: 4, Report: report}}
	for _, c := range []struct {
		said  caching.Status
		name  string
		limit int64
		why   string
	}{
		{several, "main", 1, ""}, {several, "fast", 2, ""}, {several, "mute", 0, "earlier version"},
		{several, "tape", 0, `it has no pool "tape", but main, fast, mute`},
		{earlier, "main", 4, ""}, {earlier, "fast", 0, "earlier version"}, {caching.Status{}, "main", 0, "earlier version"},
	} {
		got, err := named(c.said, c.name)
		if got.Limit != c.limit || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s of %d pools: %+v, %v", c.name, len(c.said.Pools), got, err)
		}
	}
}
