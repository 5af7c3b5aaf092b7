// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/state/statetest"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// TestLoweredLease: a client that was told a long lease may be silent for so long after a restart
// with a shorter one, and reclaims then. With its next session it has the shorter one.
func TestLoweredLease(t *testing.T) {
	for _, old := range []bool{false, true} { // a record of a program that did not note the lease
		var s statetest.Store
		now := time.Unix(1e9, 0)
		cfg := config(&s)
		cfg.Now = func() time.Time { return now }
		tab, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		vol := memvol.New(volume.ID{1})
		c := newClient(t, tab, "a")
		open := func(c *Client, reclaim bool) {
			t.Helper()
			args := OpenArgs{Client: c, Owner: "o", Volume: vol, Handle: volume.Root, Access: 3, Reclaim: reclaim}
			if _, st := tab.Open(args); st != xdr.NFS4_OK {
				t.Fatal(st)
			}
		}
		open(c, false)
		if old {
			r := c.record()
			r.Lease = 0
			if err := tab.save(r); err != nil {
				t.Fatal(err)
			}
		}
		cfg.Boot, cfg.Lease = 2, 15*time.Second
		if tab, err = New(cfg); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			now = now.Add(5 * time.Second)
			tab.Sweep()
		}
		again := tab.clients[c.ID]
		if st := tab.MayReclaim(again); st != xdr.NFS4_OK || !tab.InGrace() {
			t.Fatalf("after 40 s of a lease of 60 s it may not reclaim: %v", st)
		}
		made, st := tab.CreateSession(CreateArgs{ClientID: c.ID, Sequence: again.createSeq, Fore: xdr.ChannelAttrs{MaxRequests: 1}})
		if st != xdr.NFS4_OK {
			t.Fatal(st)
		}
		open(again, true)
		use, _, st := tab.Begin(made.Session, "a", 0, 1, 0, 1)
		if st != xdr.NFS4_OK {
			t.Fatal(st)
		}
		use.Answer(nil)
		if st := tab.ReclaimComplete(again, false); st != xdr.NFS4_OK || tab.InGrace() {
			t.Fatalf("grace goes on: %v", st)
		}
		now = now.Add(16 * time.Second)
		tab.Sweep()
		if len(again.opens) != 0 {
			t.Error("it keeps its state for longer than the lease that its session has")
		}
	}
}
