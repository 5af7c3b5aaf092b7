// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// TestStalledVolume: a client has one session for all its volumes. One that lost its home takes
// nothing from the others: they go on, the list of volumes is answered, and the one that stalled
// goes on by itself when its home is back.
func TestStalledVolume(t *testing.T) {
	c := newCluster(t, "a", "b")
	x, y := c.createAt("vx", manifest("vx", 1), []string{"b"}), c.createAt("vy", manifest("vy", 1), []string{"a"})
	for _, id := range []string{x, y} {
		c.admit("a", id)
		c.router("a", id)
	}
	ctx, end := context.WithTimeout(t.Context(), 2*time.Minute) // a hang guard
	defer end()
	cl, err := nfsclient.Dial(ctx, c.nodes["a"].nfs, nfsclient.Options{Owner: "one", Slots: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Abandon()
	if err := cl.ReclaimComplete(ctx); err != nil {
		t.Fatal(err)
	}
	root := map[string]nfsclient.FH{}
	files := map[string]*nfsclient.File{}
	for _, name := range []string{"vx", "vy"} {
		e, err := cl.Mount(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		root[name] = e.FH
		if files[name], err = cl.Open(ctx, e.FH, "f", nfsclient.OpenArgs{Create: true, Mode: xdr.UNCHECKED4}); err != nil {
			t.Fatal(err)
		}
	}
	c.stop("b")
	var done atomic.Int64
	var stalled sync.WaitGroup
	for i := range 96 { // more than there are slots
		stalled.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = files["vx"].WriteAt(ctx, []byte("x"), uint64(i), xdr.UNSTABLE4)
			} else {
				_, err = cl.Lookup(ctx, root["vx"], "f")
			}
			if err != nil {
				t.Errorf("an operation on the volume that stalled: %v", err)
			}
			done.Add(1)
		})
	}
	for began := time.Now(); time.Since(began) < 4*time.Second; { // while all of them wait
		if _, err := files["vy"].WriteAt(ctx, []byte("y"), 0, xdr.FILE_SYNC4); err != nil {
			t.Fatalf("the other volume: %v", err)
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				if _, err := cl.GetAttr(ctx, files["vy"].FH()); err != nil {
					t.Errorf("the other volume: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	names, err := c.listed(ctx, cl)
	if err != nil || !slices.Equal(names, []string{"vx", "vy"}) {
		t.Errorf("the volumes are %v, %v", names, err)
	}
	if n := done.Load(); n != 0 {
		t.Errorf("%d operations on a volume without a home were answered", n)
	}
	c.start("b")
	stalled.Wait()
}

// listed lists the pseudo root.
func (c *cluster) listed(ctx context.Context, cl *nfsclient.Client) (names []string, err error) {
	root, err := cl.Mount(ctx, "")
	if err != nil {
		return nil, err
	}
	list, err := cl.List(ctx, root.FH)
	for _, e := range list {
		names = append(names, e.Name)
	}
	if err != nil {
		err = fmt.Errorf("list the volumes: %w", err)
	}
	slices.Sort(names)
	return names, err
}
