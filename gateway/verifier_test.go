// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/volume"
)

// TestVerifierAfterTakeover checks protocol-24: once another gateway is home, clients must send
// their unstable data again.
func TestVerifierAfterTakeover(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	ctx := within(t, time.Minute)
	b := c.router("b", id)
	cl := &client{name: "b"}
	f, err := b.Create(ctx, cl.next(), volume.Root, "f", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	if err != nil {
		t.Fatal(err)
	}
	first, err := b.Write(ctx, cl.next(), f.Attr.Handle, 0, []byte("x"), false)
	if err != nil {
		t.Fatal(err)
	}
	home, _ := c.nodes["b"].gateway.view.Home(id)
	if home == "gb" {
		t.Fatal("the home is at b from the start, which this test stops")
	}
	c.stop(home[1:])
	verifier, err := b.Commit(ctx, cl.next(), f.Attr.Handle)
	if err != nil || verifier == first.Verifier {
		t.Errorf("verifier after a takeover is %x, %v; was %x", verifier, err, first.Verifier)
	}
}
