// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/gateway/locks"
	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/volume"
)

var content = []byte("held")

// file makes a file with content.
func file(t *testing.T, r *routing.Router, cl *client, name string) volume.Handle {
	t.Helper()
	ctx := within(t, hang)
	f, err := r.Create(ctx, cl.next(), volume.Root, name,
		volume.CreateArgs{Type: volume.Regular, Attr: volume.SetAttr{Mode: new(uint32(0o666))}})
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	if _, err := r.Write(ctx, cl.next(), f.Attr.Handle, 0, content, true); err != nil {
		t.Fatalf("write %s: %v", name, err)
	}
	return f.Attr.Handle
}

func remove(t *testing.T, r *routing.Router, cl *client, name string) {
	t.Helper()
	if _, err := r.Remove(within(t, hang), cl.next(), volume.Root, name); err != nil {
		t.Fatalf("remove %s: %v", name, err)
	}
}

// readable fails unless h has content at r.
func readable(t *testing.T, r *routing.Router, h volume.Handle) {
	t.Helper()
	p := make([]byte, len(content)+1)
	n, _, err := r.Read(within(t, hang), volume.Request{}, h, 0, p)
	if err != nil || !bytes.Equal(p[:n], content) {
		t.Errorf("read %q, %v", p[:n], err)
	}
}

// TestHoldAtACopyThatTrails: after a restart a client reopens a file that the copy here does not
// have yet. The file stays when its name is removed.
func TestHoldAtACopyThatTrails(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	cl := &client{name: "a"}
	c.router("b", id) // it has heard of the home
	home, _ := c.at("b").view.Home(id)
	if home != "ga" {
		t.Fatalf("home is %s", home)
	}
	c.stop("c")
	h := file(t, c.router("a", id), cl, "f") // home a with member b; or with member c, which is then waited for
	c.stop("b")
	c.stop("a")
	c.start("c")
	g := c.nodes["c"].gateway
	c.until("the copy at c is open", func() error {
		if g.copies.Copy(id) == nil {
			return errors.New("not yet")
		}
		return nil
	})
	r, err := c.opened(g, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Hold(h); err != nil {
		t.Fatalf("hold at a copy that trails: %v", err)
	}
	c.start("a")
	c.start("b")
	remove(t, c.router("a", id), cl, "f")
	readable(t, r, h)
	if _, err := c.router("b", id).GetAttr(within(t, hang), volume.Request{}, h); !errors.Is(err, volume.ErrStale) {
		t.Errorf("at b, where nobody holds it: %v", err)
	}
	r.Release(h)
	c.until("it is stale at c", func() error {
		if _, err := r.GetAttr(within(t, hang), volume.Request{}, h); !errors.Is(err, volume.ErrStale) {
			return errors.Join(errors.New("it is not"), err)
		}
		return nil
	})
}

// TestHoldWhileTheCopyIsClosed: a file that is held while there is no copy, or while another
// gateway is home, is held at each later copy and home.
func TestHoldWhileTheCopyIsClosed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	a, b := c.router("a", id), c.router("b", id)
	cl := &client{name: "a"}
	f, g := file(t, a, cl, "f"), file(t, a, cl, "g")
	local := a.Copy()
	c.at("a").routers.Attach(id, nil)
	if err := a.Hold(f); err != nil {
		t.Fatal(err)
	}
	c.at("a").routers.Attach(id, local)
	if err := b.Hold(g); err != nil {
		t.Fatal(err)
	}
	remove(t, b, cl, "f")
	remove(t, b, cl, "g")
	for _, site := range []string{"a", "b"} {
		if err := c.at(site).copies.Reap(within(t, hang), c.at(site).copies.Copy(id)); err != nil && !errors.Is(err, volume.ErrDelay) {
			t.Fatal(err)
		}
	}
	readable(t, a, f)
	readable(t, b, g)
	if _, err := b.Write(within(t, hang), cl.next(), g, 0, content, true); err != nil {
		t.Errorf("forwarded write to a file that is only held here: %v", err)
	}
	c.stop("a")
	readable(t, b, g)
	if _, err := b.Write(within(t, hang), cl.next(), g, 0, content, true); err != nil {
		t.Errorf("after a takeover: %v", err)
	}
}

// TestReclaimOfAFileWithoutAName: while a gateway restarts, the name of a file that its client has
// open is removed. The file is not deleted before the client could reclaim it, whether the gateway
// is home or not.
func TestReclaimOfAFileWithoutAName(t *testing.T) {
	t.Parallel()
	for _, home := range []string{"ga", "gb"} {
		t.Run("home "+home, func(t *testing.T) {
			c := newCluster(t, "a", "b", "c")
			id := c.create("v", manifest("v", 2))
			ctx := within(t, 2*hang)
			a, cl := c.router("a", id), &client{name: "a"}
			h := file(t, a, cl, "f")
			c.admit("b", id)
			c.router("b", id)
			nfs, root := c.mount(ctx, "b", "client", "v")
			f, err := nfs.Open(ctx, root, "f", nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH})
			if err != nil {
				t.Fatal(err)
			}
			c.stop("b")
			remove(t, a, cl, "f")
			if err := c.at("a").copies.Reap(ctx, a.Copy()); err == nil {
				t.Error("files without names are deleted while a gateway is away whose clients have some open")
			}
			c.start("b")
			b := c.router("b", id)
			if home == "gb" {
				c.stop("c") // so that b becomes a member
			}
			c.until("home is "+home, func() error {
				a.Copy().Replica.Move(home)
				for _, site := range []string{"a", "b"} {
					if now, _ := c.at(site).view.Home(id); now != home {
						return errors.New("it is " + now)
					}
				}
				return nil
			})
			leader := map[string]*routing.Router{"ga": a, "gb": b}[home]
			c.until("it leads", func() error {
				if _, ok := leader.Copy().Leading(); !ok {
					return errors.New("not yet")
				}
				return nil
			})
			c.until("the home hears that clients reclaim", func() error {
				err := c.at(home[1:]).copies.Reap(ctx, leader.Copy())
				if err == nil {
					t.Fatal("files without names are deleted while clients reclaim")
				}
				if !strings.Contains(err.Error(), locks.ErrRecovering.Error()) {
					return err
				}
				return nil
			})
			if flags, err := nfs.Renew(ctx); err != nil || flags&xdr.SEQ4_STATUS_RESTART_RECLAIM_NEEDED == 0 {
				t.Fatalf("flags %#x, %v", flags, err)
			}
			if err := f.Reclaim(ctx); err != nil {
				t.Fatalf("reclaim: %v", err)
			}
			if err := nfs.ReclaimComplete(ctx); err != nil {
				t.Fatal(err)
			}
			c.until("files without names are looked at again", func() error { return c.at(home[1:]).copies.Reap(ctx, leader.Copy()) })
			p := make([]byte, 10)
			if n, _, err := f.ReadAt(ctx, p, 0); err != nil || !bytes.Equal(p[:n], content) {
				t.Errorf("read %q, %v", p[:n], err)
			}
			if err := f.Close(ctx); err != nil {
				t.Fatal(err)
			}
			c.until("the file is gone", func() error {
				if err := c.at(home[1:]).copies.Reap(ctx, leader.Copy()); err != nil {
					return err
				}
				gone, err := leader.Copy().Engine.Orphans(ctx, 0, 10)
				if err == nil && len(gone) > 0 {
					err = errors.New("it is not")
				}
				return err
			})
			if _, err := a.GetAttr(ctx, volume.Request{}, h); !errors.Is(err, volume.ErrStale) {
				t.Errorf("a deleted file: %v", err)
			}
		})
	}
}

// TestHoldOfWhatIsBeingRemoved: a file is reported as gone when its removal is committed, and not
// before, because an uncommitted removal may be undone.
func TestHoldOfWhatIsBeingRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.create("v", manifest("v", 2))
	cl := &client{name: "a"}
	r := c.router("a", id)
	if home, _ := c.at("a").view.Home(id); home != "ga" {
		t.Fatalf("home is %s", home)
	}
	h := file(t, r, cl, "f")
	c.stop("b")
	removed := make(chan error, 1)
	ctx := within(t, hang)
	go func() {
		_, err := r.Remove(ctx, cl.next(), volume.Root, "f")
		removed <- err
	}()
	c.until("the removal is in the log", func() error {
		if r.Copy().Engine.Touched(h.Ino) == (log.Position{}) {
			return errors.New("not yet")
		}
		return nil
	})
	if err := r.Hold(h); !errors.Is(err, volume.ErrDelay) {
		t.Errorf("hold of a file whose removal is not committed: %v", err)
	}
	c.start("b")
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	c.until("the file is gone", func() error {
		if err := r.Hold(h); !errors.Is(err, volume.ErrStale) {
			return fmt.Errorf("hold: %v", err)
		}
		return nil
	})
}
