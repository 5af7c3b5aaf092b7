// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"testing"

	"github.com/weir-storage/weir/federation"
	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// TestExpelledClientGivesLocksUp: when a person takes a client's leave back, its locks end although it keeps its lease, and it hears of them.
func TestExpelledClientGivesLocksUp(t *testing.T) {
	c := newCluster(t, "a", "b")
	id := c.create("v", manifest("v", 1))
	a := c.router("a", id)
	h := file(t, a, &client{name: "a"}, "f")
	c.admit("b", id)
	ctx := within(t, hang)
	nfs, root := c.mount(ctx, "b", "client", "v")
	f, err := nfs.Open(ctx, root, "f", nfsclient.OpenArgs{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Lock(ctx, nfsclient.LockArgs{Owner: "o", Length: 10, Exclusive: true}); err != nil {
		t.Fatal(err)
	}
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
