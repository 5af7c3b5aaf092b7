// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"

	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// TestSnapshotsOverNFS: a snapshot that the home took is below .snapshots at every site, also after
// the home is lost, and nobody can change it there.
func TestSnapshotsOverNFS(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	a := c.router("a", id)
	cl := &client{name: "y"}
	made, err := a.Create(within(t, hang), cl.next(), volume.Root, "dir",
		volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: new(uint32(0o777))}})
	if err != nil {
		t.Fatal(err)
	}
	dir := made.Attr.Handle
	if made, err = a.Create(within(t, hang), cl.next(), dir, "f",
		volume.CreateArgs{Type: volume.Regular, Attr: volume.SetAttr{Mode: new(uint32(0o666))}}); err != nil {
		t.Fatal(err)
	}
	f := made.Attr.Handle
	write := func(text string) {
		t.Helper()
		if _, err := a.Write(within(t, hang), cl.next(), f, 0, []byte(text), true); err != nil {
			t.Fatal(err)
		}
	}
	write("before")
	if _, err := c.at("a").copies.Copy(id).Engine.TakeSnapshot(within(t, hang), volume.Request{}, "one"); err != nil {
		t.Fatal(err)
	}
	write("after!")
	for _, site := range []string{"a", "b", "c"} {
		c.router(site, id)
		c.admit(site, id)
	}
	ctx := context.Background()
	look := func(site string) error {
		nfs, root := c.mount(ctx, site, "client "+fmt.Sprint(t.Name(), site), "v")
		defer func() { _ = nfs.Close(ctx) }()
		now, err := nfs.Walk(ctx, root, "dir/f")
		if err != nil {
			return err
		}
		was, err := nfs.Walk(ctx, root, "dir/.snapshots/one/f")
		if err != nil {
			return err
		}
		top, err := nfs.Walk(ctx, root, ".snapshots/one/dir/f")
		if err != nil {
			return err
		}
		if string(top.FH) != string(was.FH) || was.Ino != now.Ino || was.FSID == now.FSID || string(was.FH) == string(now.FH) {
			return fmt.Errorf("in the snapshot the file is %+v and %+v, now %+v", was, top, now)
		}
		snapshots, err := nfs.Walk(ctx, root, "dir/.snapshots")
		if err != nil {
			return err
		}
		within, err := nfs.Walk(ctx, root, "dir")
		if err != nil {
			return err
		}
		if snapshots.FSID != within.FSID || snapshots.Ino == within.Ino {
			return fmt.Errorf("the directory of snapshots is %+v, its directory %+v", snapshots, within)
		}
		for dir, want := range map[string]string{"dir/.snapshots": "one", "dir/.snapshots/one": "f", "dir": "f"} {
			at, err := nfs.Walk(ctx, root, dir)
			if err != nil {
				return err
			}
			entries, err := nfs.List(ctx, at.FH)
			if err != nil || len(entries) != 1 || entries[0].Name != want {
				return fmt.Errorf("%s lists %+v, %v", dir, entries, err)
			}
		}
		opened, err := nfs.OpenFH(ctx, was.FH, nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_READ})
		if err != nil {
			return err
		}
		p := make([]byte, 10)
		n, _, err := opened.ReadAt(ctx, p, 0)
		if err != nil || string(p[:n]) != "before" {
			return fmt.Errorf("in the snapshot the file has %q, %v", p[:n], err)
		}
		if err := opened.Close(ctx); err != nil {
			return err
		}
		for what, err := range map[string]error{
			"open": func() error {
				_, err := nfs.OpenFH(ctx, was.FH, nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH})
				return err
			}(),
			"set attributes": func() error {
				_, err := nfs.SetAttr(ctx, was.FH, volume.SetAttr{Mode: new(uint32(0))})
				return err
			}(),
			"make a directory": func() error {
				_, err := nfs.Mkdir(ctx, snapshots.FH, "x", 0o777)
				return err
			}(),
		} {
			if !errors.Is(err, xdr.NFS4ERR_ROFS) {
				return fmt.Errorf("%s in a snapshot: %v", what, err)
			}
		}
		return nil
	}
	for _, site := range []string{"a", "b", "c"} {
		c.until("site "+site+" shows the snapshot", func() error { return look(site) })
	}
	c.stop("a")
	c.until("after the loss of its home it is there", func() error { return look("b") })
}
