// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// grant changes what the owner of a volume lets a site do; "": nothing.
func (c *cluster) grant(id, site string, access federation.Access) {
	c.t.Helper()
	c.with(func(r federation.Registry) error {
		v, rev, err := r.GetVolume(context.Background(), id)
		if err != nil {
			return err
		}
		v.Grants = nil
		if access != "" {
			v.Grants = []federation.Grant{{Site: site, Namespace: "lab", Access: access}}
		}
		_, err = r.UpdateVolume(context.Background(), rev, v)
		return err
	})
}

// TestGrants: what the owner of a volume grants to another organization's site holds for the files
// that its clients have open, also when the site's own gateway does not keep to it. The owner's
// writers notice nothing.
func TestGrants(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.createAt("v", manifest("v", 1), []string{"a"})
	c.router("a", id)
	c.admit("a", id)
	ctx := within(t, 2*hang)
	c.attach("b", id, "n1", federation.ReadWrite)
	n := c.node("b", "org-b", "127.0.0.21")
	c.grant(id, "b", "")
	c.until("an importer without a grant is refused", func() error {
		_, err := n.Admit(ctx, &nodepb.AdmitRequest{Volume: id, Node: "n1"})
		if err == nil || !strings.Contains(err.Error(), `grants site b "nothing" of it`) {
			return fmt.Errorf("it is told %w", err)
		}
		return nil
	})
	c.grant(id, "b", federation.ReadWrite)
	c.until("node n1 at b is admitted", func() error {
		_, err := n.Admit(ctx, &nodepb.AdmitRequest{Volume: id, Node: "n1"})
		return err
	})
	open := func(nfs *nfsclient.Client, name string) *nfsclient.File {
		t.Helper()
		root, err := nfs.Mount(ctx, "v")
		if err != nil {
			t.Fatal(err)
		}
		f, err := nfs.Open(ctx, root.FH, name, nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH, Create: true})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	nfs := c.mountFrom(ctx, "b", "127.0.0.21", "n1")
	theirs := open(nfs, "theirs")
	own, _ := c.mount(ctx, "a", "own", "v")
	ours := open(own, "ours")
	write := func(f *nfsclient.File) error {
		_, err := f.WriteAt(ctx, []byte("x"), 0, xdr.FILE_SYNC4)
		return err
	}
	read := func() error {
		_, _, err := theirs.ReadAt(ctx, make([]byte, 1), 0)
		return err
	}
	if err := errors.Join(write(theirs), write(ours), read()); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Lock(ctx, nfsclient.LockArgs{Owner: "o", Length: 10, Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	// What b's gateway sends by itself is judged by the home.
	b := c.dialAs(pki.Identity{Federation: "test", Organization: "org-b", Site: "b", Gateway: "gb", Part: pki.PartGateway}, "a")
	says := func(m forwardpb.Method, words string) {
		t.Helper()
		c.until("the home answers "+words, func() error {
			r, err := forwardpb.NewForwardClient(b).Call(ctx, &forwardpb.CallRequest{Volume: id, Method: m,
				Handle: &forwardpb.Handle{Ino: 1}})
			if err != nil || !strings.Contains(r.GetDetail(), words) {
				return fmt.Errorf("it answers %q, %w", r.GetDetail(), err)
			}
			return nil
		})
	}

	c.grant(id, "b", federation.ReadOnly)
	c.until("a write of an open file is refused", func() error {
		if err := write(theirs); !errors.Is(err, xdr.NFS4ERR_ROFS) {
			return fmt.Errorf("it is told %w", err)
		}
		return nil
	})
	if err := errors.Join(read(), write(ours)); err != nil {
		t.Errorf("what is still granted: %v", err)
	}
	says(forwardpb.Method_METHOD_CREATE, "its owner lets site b read it, and no more")

	c.grant(id, "b", "")
	c.until("a read of an open file is refused", func() error {
		if err := read(); err == nil || errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("it is told %w", err)
		}
		return nil
	})
	if err := write(ours); err != nil {
		t.Errorf("the owner's writer: %v", err)
	}
	says(forwardpb.Method_METHOD_READ, "no client that is admitted to it")
	says(forwardpb.Method_METHOD_FORGET, "no client that is admitted to it") // it would forget others' results
	_, err := peerpb.NewPeerClient(b).Fetch(ctx, &peerpb.FetchRequest{Volume: id, Segment: "x", Length: 1})
	if err == nil || !strings.Contains(err.Error(), "no client that is admitted to it") {
		t.Errorf("segments are sent to a site without a grant: %v", err)
	}
	if f, err := peerpb.NewOutlinesClient(b).Follow(ctx); err == nil {
		if err = f.Send(&peerpb.FollowRequest{Volume: id}); err == nil {
			_, err = f.Recv()
		}
		if err == nil || !strings.Contains(err.Error(), "no client that is admitted to it") {
			t.Errorf("the log is shown to a site without a grant: %v", err)
		}
	}
	// Its locks are others' now.
	root, err := own.Mount(ctx, "v")
	if err != nil {
		t.Fatal(err)
	}
	f, err := own.Open(ctx, root.FH, "theirs", nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH})
	if err != nil {
		t.Fatal(err)
	}
	c.until("its lock is granted to another", func() error {
		return f.Lock(ctx, nfsclient.LockArgs{Owner: "mine", Length: 10, Exclusive: true})
	})
}
