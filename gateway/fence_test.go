// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward"
	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/volume"
)

// nodeOn is node n1 at a site, admitted to a volume of which it has file f open.
type nodeOn struct {
	c        *cluster
	site, id string
	node     nodepb.NodeClient
	nfs      *nfsclient.Client
	root     nfsclient.FH
	f        *nfsclient.File
}

func (c *cluster) nodeAt(ctx context.Context, site, id, name string) *nodeOn {
	c.t.Helper()
	n := &nodeOn{c: c, site: site, id: id, node: c.node(site, "org-"+site, "127.0.0.21")}
	c.attach(site, id, "n1", federation.ReadWrite)
	if _, err := n.node.Admit(ctx, &nodepb.AdmitRequest{Volume: id, Node: "n1"}); err != nil {
		c.t.Fatal(err)
	}
	n.nfs = c.mountFrom(ctx, site, "127.0.0.21", "n1")
	root, err := n.nfs.Mount(ctx, name)
	if err != nil {
		c.t.Fatal(err)
	}
	n.root = root.FH
	if n.f, err = n.nfs.Open(ctx, n.root, "f", nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH}); err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (n *nodeOn) revoke(ctx context.Context) error {
	_, err := n.node.Revoke(ctx, &nodepb.RevokeRequest{Volume: n.id, Node: "n1"})
	return err
}

// revoked waits until Revoke is answered by a gateway that has heard the registry's state.
func (n *nodeOn) revoked(ctx context.Context) (err error) {
	n.c.t.Helper()
	n.c.until("the gateway has begun", func() error {
		select {
		case <-n.c.nodes[n.site].gateway.ready:
			return nil
		default:
			return errors.New("not yet")
		}
	})
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return n.revoke(short)
}

// reclaimed sends the node's RECLAIM_COMPLETE.
func (n *nodeOn) reclaimed(ctx context.Context) {
	n.c.t.Helper()
	if flags, err := n.nfs.Renew(ctx); err != nil || flags&xdr.SEQ4_STATUS_RESTART_RECLAIM_NEEDED == 0 {
		n.c.t.Fatalf("flags %#x, %v", flags, err)
	}
	if err := n.nfs.ReclaimComplete(ctx); err != nil {
		n.c.t.Fatal(err)
	}
}

// sentBy returns a function that sends an operation as a router does to a home elsewhere, under its
// present registration.
func sentBy(t *testing.T, r *routing.Router) (call *forward.Call) {
	t.Helper()
	_, err := r.Once(within(t, hang), func(_ context.Context, x forward.Home) (err error) {
		var elsewhere bool
		if call, elsewhere = x.(*forward.Call); !elsewhere {
			err = errors.New("the home is here")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return call
}

// arrive delivers one operation that a gateway sent before and that was under way all the time.
func (c *cluster) arrive(site string, sent *forward.Call) *forward.Call {
	c.t.Helper()
	g := c.nodes[site].gateway
	home, _ := g.view.Home(sent.Volume)
	client, err := g.peers.Forward(home)
	if err != nil {
		c.t.Fatal(err)
	}
	return &forward.Call{Client: client, Volume: sent.Volume, Epoch: sent.Epoch, Registration: sent.Registration}
}

func contentOf(t *testing.T, r *routing.Router, h volume.Handle) []byte {
	t.Helper()
	p := make([]byte, 4096)
	n, _, err := r.Read(within(t, hang), volume.Request{}, h, 0, p)
	if err != nil {
		t.Fatal(err)
	}
	return p[:n]
}

// TestLateChangesOfAFormerProcess: an operation that a gateway's former process sent is not
// executed if it arrives at the home after the present process has fenced the node.
func TestLateChangesOfAFormerProcess(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.createAt("v", manifest("v", 1), []string{"a"})
	ctx := within(t, 3*hang)
	a := c.router("a", id)
	h := file(t, a, &client{name: "a"}, "f")
	n := c.nodeAt(ctx, "b", id, "v")
	if _, err := n.f.WriteAt(ctx, content, 0, xdr.FILE_SYNC4); err != nil {
		t.Fatal(err)
	}
	sent := sentBy(t, c.router("b", id))
	c.stop("b")
	c.start("b")
	c.detach("b", id, "n1")
	n.reclaimed(ctx)
	c.until("the node is fenced", func() error { return n.revoked(ctx) })
	c.admit("b", id) // its site may still ask for something
	late := &client{name: "late"}
	for what, do := range map[string]func(*forward.Call) error{
		"write": func(k *forward.Call) error {
			_, err := k.Write(ctx, late.next(), h, 0, []byte("late"), true)
			return err
		},
		"unstable write": func(k *forward.Call) error {
			_, err := k.Write(ctx, late.next(), h, 0, []byte("late"), false)
			return err
		},
		"truncation": func(k *forward.Call) error {
			_, err := k.SetAttr(ctx, late.next(), h, volume.SetAttr{Size: new(uint64(0))})
			return err
		},
		"hole": func(k *forward.Call) error { _, err := k.Punch(ctx, late.next(), h, 0, 4); return err },
		"rename": func(k *forward.Call) error {
			_, _, err := k.Rename(ctx, late.next(), volume.Root, "f", volume.Root, "g")
			return err
		},
		"remove": func(k *forward.Call) error { _, err := k.Remove(ctx, late.next(), volume.Root, "f"); return err },
		"link":   func(k *forward.Call) error { _, err := k.Link(ctx, late.next(), h, volume.Root, "g"); return err },
		"create": func(k *forward.Call) error {
			_, err := k.Create(ctx, late.next(), volume.Root, "g", volume.CreateArgs{Type: volume.Directory})
			return err
		},
		"attribute":         func(k *forward.Call) error { _, err := k.SetXattr(ctx, late.next(), h, "user.x", nil, 0); return err },
		"attribute's end":   func(k *forward.Call) error { _, err := k.RemoveXattr(ctx, late.next(), h, "user.x"); return err },
		"end of the client": func(k *forward.Call) error { return k.Forget(ctx, "x") },
	} {
		if err := do(c.arrive("b", sent)); !errors.Is(err, forward.ErrRegister) {
			t.Errorf("%s of the former process, late: %v", what, err)
		}
	}
	if got := contentOf(t, a, h); !bytes.Equal(got, content) {
		t.Errorf("the file has %q", got)
	}
	if _, err := a.Lookup(ctx, volume.Request{}, volume.Root, "g"); !errors.Is(err, volume.ErrNotExist) {
		t.Errorf("g: %v", err)
	}
}

// TestRevokeNeedsTheHome: while the home has not ended what the gateway's former process sent, the
// node is not fenced.
func TestRevokeNeedsTheHome(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.createAt("v", manifest("v", 1), []string{"a"})
	ctx := within(t, 3*hang)
	h := file(t, c.router("a", id), &client{name: "a"}, "f")
	n := c.nodeAt(ctx, "b", id, "v")
	c.stop("b")
	c.stop("a")
	c.asked = new(atomic.Int64)
	c.start("b")
	n.reclaimed(ctx)
	c.detach("b", id, "n1")
	began, before := c.bootTime(), c.asked.Load()
	refused(t, n.revoked(ctx), codes.Unavailable, "home ga has to end what this gateway sent it before")
	if asked, most := c.asked.Load()-before, 2+int64((c.bootTime()-began)/time.Second); asked == 0 || asked > most {
		t.Errorf("the registry was asked %d times who is home, want 1 to %d", asked, most)
	}
	c.start("a")
	c.until("the node is fenced", func() error { return n.revoked(ctx) })
	if got := contentOf(t, c.router("a", id), h); !bytes.Equal(got, content) {
		t.Errorf("the file has %q", got)
	}
	if err := n.revoke(ctx); err != nil { // it has no admissions any more
		t.Errorf("again: %v", err)
	}
}

// TestRevokeAfterARestart: the home keeps the locks of a gateway that restarted until its clients
// have reclaimed theirs. Revoke does not return before, because the node's locks still exclude
// others.
func TestRevokeAfterARestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.createAt("v", manifest("v", 1), []string{"a"})
	ctx := within(t, 3*hang)
	a := c.router("a", id)
	h := file(t, a, &client{name: "a"}, "f")
	n := c.nodeAt(ctx, "b", id, "v")
	if err := n.f.Lock(ctx, nfsclient.LockArgs{Owner: "o", Length: 10, Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	c.stop("b")
	c.start("b")
	c.detach("b", id, "n1")
	refused(t, n.revoked(ctx), codes.Unavailable, "reclaim what they held")
	locked(t, a, h, exclusive("x", 0, 9))
	if err := n.f.Reclaim(ctx); !errors.Is(err, xdr.NFS4ERR_ACCESS) {
		t.Errorf("reclaim after the node was detached: %v", err)
	}
	n.reclaimed(ctx) // or the grace period ends by itself
	c.until("the node is fenced", func() error { return n.revoked(ctx) })
	lock(t, a, h, exclusive("x", 0, 9))
}

// TestAnOperationIsSentAgain: an operation that got no answer is sent again. The first one then
// does nothing when it arrives. The client got the result of the second, which may be an error, and
// no record of an error would make the first a repeat.
func TestAnOperationIsSentAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.createAt("v", manifest("v", 1), []string{"a"})
	ctx := within(t, 2*hang)
	a := c.router("a", id)
	h := file(t, a, &client{name: "a"}, "f")
	c.admit("b", id)
	b, cl := c.router("b", id), &client{name: "b"}
	var first *forward.Call
	var sent []forward.Registration
	r := cl.next()
	err := b.AtHome(ctx, r, true, func(ctx context.Context, x forward.Home) error {
		k := x.(*forward.Call)
		if k.Registration != (forward.Registration{}) {
			sent = append(sent, k.Registration)
		}
		if first == nil && k.Registration != (forward.Registration{}) {
			first, k.Unanswered = k, true
			return volume.ErrUnknown
		}
		_, err := k.Link(ctx, r, h, volume.Root, "f")
		return err
	})
	if !errors.Is(err, volume.ErrExist) || len(sent) != 2 || sent[0] == sent[1] {
		t.Fatalf("link in place of what is there: %v, sent as %v", err, sent)
	}
	remove(t, a, &client{name: "a2"}, "f")
	if _, err := c.arrive("b", first).Link(ctx, r, h, volume.Root, "f"); !errors.Is(err, forward.ErrRegister) {
		t.Errorf("the first one, late: %v", err)
	}
}

// TestRepeatAfterTheGatewayRestarted: a client's change was under way at the home when its gateway
// restarted. The client repeats it, and gets the result of the first.
func TestRepeatAfterTheGatewayRestarted(t *testing.T) {
	c := newCluster(t, "a", "b", "c")
	id := c.createAt("v", manifest("v", 2), []string{"a", "c"})
	ctx := within(t, 3*hang)
	a := c.router("a", id)
	cl := &client{name: "a"}
	file(t, a, cl, "f")
	file(t, a, cl, "g")
	c.router("c", id)
	n := c.nodeAt(ctx, "b", id, "v")
	home := a.Copy()
	c.stop("c") // now nothing is acknowledged
	before, done := home.Log.End(), make(chan error, 1)
	go func() {
		_, err := n.nfs.Remove(ctx, n.root, "g")
		done <- err
	}()
	c.until("the change is at the home", func() error {
		if home.Log.End() == before {
			return errors.New("not yet")
		}
		return nil
	})
	underWay := func() map[string]bool { return goroutines("routing.(*Server).Call(", "engine.(*Engine).Remove(") }
	former := underWay()
	if len(former) != 1 {
		t.Fatalf("%d changes are under way", len(former))
	}
	c.stop("b")
	c.start("b")
	c.until("the home has ended it, and the client's repeat is there", func() error {
		for u := range underWay() {
			if !former[u] {
				return nil
			}
		}
		return errors.New("not yet")
	})
	c.start("c")
	if err := <-done; err != nil {
		t.Errorf("remove, repeated after the gateway restarted: %v", err)
	}
	if _, err := a.Lookup(ctx, volume.Request{}, volume.Root, "g"); !errors.Is(err, volume.ErrNotExist) {
		t.Errorf("the removed file: %v", err)
	}
}

// goroutines names the goroutines that are in all of these functions.
func goroutines(functions ...string) map[string]bool {
	stacks := make([]byte, 8<<20)
	out := map[string]bool{}
	for g := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if !slices.ContainsFunc(functions, func(f string) bool { return !strings.Contains(g, f) }) {
			name, _, _ := strings.Cut(g, "[") // "goroutine 7 "
			out[name] = true
		}
	}
	return out
}

// TestRevokeWhileWritesWait: a node is fenced although the volume acknowledges nothing just now,
// and reveals nothing that is not acknowledged. The node's client does not wait for ever.
func TestRevokeWhileWritesWait(t *testing.T) {
	for _, x := range []struct {
		name, site string
		copies     []string // all of them acknowledge
	}{
		{"at the home", "a", []string{"a", "c"}},
		{"at a gateway without a copy", "b", []string{"a", "c"}},
		{"at a member", "b", []string{"a", "b", "c"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			site := x.site
			c := newCluster(t, "a", "b", "c")
			id := c.createAt("v", manifest("v", len(x.copies)), x.copies)
			ctx := within(t, 2*hang)
			a := c.router("a", id)
			h := file(t, a, &client{name: "a"}, "f")
			c.router("c", id)
			n := c.nodeAt(ctx, site, id, "v")
			if _, err := n.f.WriteAt(ctx, []byte("unstable"), 100, xdr.UNSTABLE4); err != nil {
				t.Fatal(err)
			}
			c.stop("c")
			g, done := c.nodes["a"].gateway, make(chan error, 1)
			before := g.copies.Copy(id).Engine.Touched(h.Ino)
			go func() {
				_, err := n.f.WriteAt(ctx, []byte("more than there was"), 0, xdr.FILE_SYNC4)
				done <- err
			}()
			c.until("the write is under way, and heard of where it is read", func() error {
				now := g.copies.Copy(id).Engine.Touched(h.Ino)
				if now == (log.Position{}) || now == before {
					return errors.New("not yet")
				}
				if l := c.nodes[site].gateway.copies.Copy(id); l != nil && l.Engine.Touched(h.Ino) != now {
					return errors.New("not yet at " + site)
				}
				return nil
			})
			reads := make(chan error, 2)
			go func() {
				_, err := n.f.GetAttr(ctx)
				reads <- err
			}()
			go func() {
				_, _, err := n.f.ReadAt(ctx, make([]byte, 10), 0)
				reads <- err
			}()
			c.until("the reads are under way", func() error {
				if waiting := len(goroutines("routing.(*Router).read(")); waiting != 2 {
					return fmt.Errorf("%d are", waiting)
				}
				return nil
			})
			c.detach(site, id, "n1")
			if err := n.revoke(ctx); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, xdr.NFS4ERR_ACCESS) {
				t.Errorf("a write that not all members have was answered with %v", err)
			}
			for range 2 {
				if err := <-reads; !errors.Is(err, xdr.NFS4ERR_ACCESS) {
					t.Errorf("a read of what not all members have was answered with %v", err)
				}
			}
			// Its records in the log come before all later ones, and no more of them are added.
			end := g.copies.Copy(id).Log.End()
			for range 3 {
				if _, err := n.f.WriteAt(ctx, []byte("late"), 0, xdr.FILE_SYNC4); !errors.Is(err, xdr.NFS4ERR_ACCESS) {
					t.Errorf("a write after the node was fenced: %v", err)
				}
				if _, err := n.f.Commit(ctx); !errors.Is(err, xdr.NFS4ERR_ACCESS) {
					t.Errorf("a commit after the node was fenced: %v", err)
				}
			}
			if now := g.copies.Copy(id).Log.End(); now != end {
				t.Errorf("the log ends at %s after the node was fenced, when it ended at %s", now, end)
			}
			c.start("c")
			if got := contentOf(t, a, h); !bytes.HasPrefix(got, []byte("more than there was")) ||
				!bytes.HasSuffix(got, []byte("unstable")) {
				t.Errorf("the file has %q", got)
			}
		})
	}
}
