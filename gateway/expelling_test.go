// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weir-storage/weir/federation"
	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// locking is a client of site's gateway that has file f of volume v open and locked.
func (c *cluster) locking(ctx context.Context, site, id string) (*nfsclient.Client, *nfsclient.File) {
	c.t.Helper()
	c.admit(site, id)
	nfs, root := c.mount(ctx, site, "client", "v")
	f, err := nfs.Open(ctx, root, "f", nfsclient.OpenArgs{})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := f.Lock(ctx, nfsclient.LockArgs{Owner: "o", Length: 10, Exclusive: true}); err != nil {
		c.t.Fatal(err)
	}
	return nfs, f
}

// TestExpelledClientGivesLocksUp: when a person expels a client, its locks end although it keeps
// its lease, and the client is informed.
func TestExpelledClientGivesLocksUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.create("v", manifest("v", 1))
	a := c.router("a", id)
	h := file(t, a, &client{name: "a"}, "f")
	ctx := within(t, hang)
	nfs, f := c.locking(ctx, "b", id)
	locked(t, a, h, exclusive("o", 0, 9))
	c.with(func(reg federation.Registry) error {
		return reg.DeleteAdmission(context.Background(), id, "b", "127.0.0.1")
	})
	c.until("another gets the lock", func() error { return tryLock(t, a, h, exclusive("o", 0, 9)) })
	if _, err := nfs.Write(ctx, f.FH(), xdr.StateidAnonymous, []byte("x"), 0, xdr.FILE_SYNC4); !errors.Is(err, xdr.NFS4ERR_ACCESS) {
		t.Errorf("it writes: %v", err)
	}
	if err := f.Close(ctx); !errors.Is(err, xdr.NFS4ERR_ADMIN_REVOKED) {
		t.Errorf("its open: %v", err)
	}
}

// TestDeletedVolumeIsHeldByNobody: opens and locks end with the volume, although the client keeps
// its lease. Nothing waits for a home.
func TestDeletedVolumeIsHeldByNobody(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.create("v", manifest("v", 1))
	h := file(t, c.router("a", id), &client{name: "a"}, "f")
	ctx := within(t, hang)
	nfs, f := c.locking(ctx, "b", id)
	b := c.router("b", id)
	if held := c.at("b").nfs.Clients(); len(held) != 1 || held[0].Opens != 1 || held[0].Locks != 1 {
		t.Fatalf("the client holds %+v", held)
	}
	c.delete(id)
	c.until("nobody holds anything", func() error {
		if c.at("b").holdsState() || len(b.Locks.Held()) > 0 {
			return fmt.Errorf("%+v, %v", c.at("b").nfs.Clients(), b.Locks.Held())
		}
		return nil
	})
	if _, err := nfs.Write(ctx, f.FH(), xdr.StateidAnonymous, []byte("x"), 0, xdr.FILE_SYNC4); !errors.Is(err, xdr.NFS4ERR_STALE) {
		t.Errorf("it writes: %v", err)
	}
	if _, err := b.Write(ctx, (&client{name: "b"}).next(), h, 0, content, true); !errors.Is(err, volume.ErrStale) {
		t.Errorf("a write that began before: %v", err)
	}
	if _, err := nfs.Renew(ctx); err != nil {
		t.Errorf("its lease: %v", err)
	}
}
