// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// TestHomeMovesOnAtOnce: a gateway that has just become home is asked to hand over, before it
// serves. It does so once it can.
func TestHomeMovesOnAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.create("v", manifest("v", 2))
	cl := &client{name: "a"}
	file(t, c.router("a", id), cl, "f")
	at := "a"
	for i := range 8 {
		to := map[string]string{"a": "b", "b": "a"}[at]
		home, err := c.at(at).peers.Forward("g" + at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := home.Failover(within(t, hang), &forwardpb.FailoverRequest{Volume: id, To: "g" + to}); err != nil {
			t.Fatalf("move %d, from %s to %s: %v", i, at, to, err)
		}
		at = to
	}
	file(t, c.router("a", id), cl, "later")
}
