// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/volume"
)

// from dials with an address of this machine's loopback network.
func from(addr string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
		return d.DialContext(ctx, "tcp", to)
	}
}

// node is a caller of a site's node service, with the certificate of an organization and an
// address.
func (c *cluster) node(site, organization, addr string) nodepb.NodeClient {
	c.t.Helper()
	conn := c.dialAs(pki.Identity{Federation: "test", Organization: organization, Site: site, Gateway: "csi"}, site,
		grpc.WithContextDialer(from(addr)))
	return nodepb.NewNodeClient(conn)
}

func (c *cluster) attach(site, id, node string, access federation.Access) {
	c.t.Helper()
	c.with(func(r federation.Registry) error {
		return r.PutAttachment(context.Background(),
			federation.Attachment{Volume: id, Site: site, Node: node, Access: access, At: time.Now()})
	})
}

func (c *cluster) detach(site, id, node string) {
	c.t.Helper()
	c.with(func(r federation.Registry) error { return r.DeleteAttachment(context.Background(), site, id, node) })
}

// mountFrom is mount for a client with an address.
func (c *cluster) mountFrom(ctx context.Context, site, addr, owner string) *nfsclient.Client {
	c.t.Helper()
	cl, err := nfsclient.Dial(ctx, c.nodes[site].nfs, nfsclient.Options{Owner: owner, DialContext: from(addr)})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Abandon)
	if err := cl.ReclaimComplete(ctx); err != nil {
		c.t.Fatal(err)
	}
	return cl
}

// refused fails unless err has the code and contains the words.
func refused(t *testing.T, err error, code codes.Code, words string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), words) {
		t.Errorf("got %v, want %v with %q", err, code, words)
	}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.create("team.data", manifest("data", 1))
	other := c.create("other", manifest("other", 1))
	c.router("b", id)
	c.router("b", other)
	ctx := within(t, 2*hang)
	ask := &nodepb.AdmitRequest{Volume: id, Node: "n1.cluster"}
	n1 := c.node("b", "org-b", "127.0.0.11")

	_, err := n1.Admit(ctx, ask)
	refused(t, err, codes.PermissionDenied, "is not attached to node n1.cluster")
	c.attach("b", id, "n1.cluster", federation.ReadWrite)
	_, err = c.node("b", "org-a", "127.0.0.11").Admit(ctx, ask)
	refused(t, err, codes.PermissionDenied, `organization "org-a"`)
	_, err = n1.Admit(ctx, &nodepb.AdmitRequest{Volume: "x", Node: "n1.cluster"})
	refused(t, err, codes.InvalidArgument, "UUID")
	_, err = n1.Admit(ctx, &nodepb.AdmitRequest{Volume: id, Node: "n/1"})
	refused(t, err, codes.InvalidArgument, "node")

	reply, err := n1.Admit(ctx, ask)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(c.nodes["b"].nfs)
	if reply.GetExport() != "/team.data" || reply.GetAccess() != nodepb.Access_ACCESS_READ_WRITE ||
		reply.GetAddress() != "127.0.0.11" || port != itoa(reply.GetNfsPort()) {
		t.Errorf("admitted with %v", reply)
	}
	nfs := c.mountFrom(ctx, "b", "127.0.0.11", "n1") // at once: the admission is in force
	root, err := nfs.Mount(ctx, "team.data")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nfs.Open(ctx, root.FH, "f", nfsclient.OpenArgs{Create: true, Access: xdr.OPEN4_SHARE_ACCESS_BOTH}); err != nil {
		t.Fatal(err)
	}

	// Publish needs a claim of the pod's namespace, and gives what that allows.
	ask.Namespace = "team"
	_, err = n1.Admit(ctx, ask)
	refused(t, err, codes.PermissionDenied, "namespace team at site b has no claim")
	claim := federation.Claim{Volume: id, Site: "b", Namespace: "team", Name: "data", Kind: federation.ClaimGeoVolume, UID: "u",
		Access: federation.ReadOnly}
	c.with(func(r federation.Registry) error { return r.PutClaim(ctx, claim) })
	if reply, err = n1.Admit(ctx, ask); err != nil || reply.GetAccess() != nodepb.Access_ACCESS_READ_ONLY {
		t.Errorf("with a read-only claim: %v, %v", reply, err)
	}
	claim.Access = federation.ReadWrite
	c.with(func(r federation.Registry) error { return r.PutClaim(ctx, claim) })
	ask.MountGroup = new(uint32(4242))
	if reply, err = n1.Admit(ctx, ask); err != nil || reply.GetAccess() != nodepb.Access_ACCESS_READ_WRITE {
		t.Errorf("with a claim: %v, %v", reply, err)
	}
	a, err := c.router("a", id).GetAttr(ctx, volume.Request{}, volume.Root)
	if err != nil || a.GID != 4242 || a.Mode&0o2770 != 0o2770 {
		t.Errorf("root has group %d and mode %o, %v", a.GID, a.Mode, err)
	}

	// A second namespace that writes takes the first one's group from nobody. Alone, it may change
	// it.
	importer := claim
	importer.Site, importer.Namespace = "a", "others"
	for group, shared := range map[uint32]bool{4243: true, 4244: false} {
		c.with(func(r federation.Registry) error {
			if shared {
				return r.PutClaim(ctx, importer)
			}
			return r.DeleteClaim(ctx, id, importer.Site, importer.Namespace, importer.Name)
		})
		before, err := c.router("a", id).GetAttr(ctx, volume.Request{}, volume.Root)
		if err != nil {
			t.Fatal(err)
		}
		ask.MountGroup = new(group)
		if _, err := n1.Admit(ctx, ask); err != nil {
			t.Fatal(err)
		}
		after, err := c.router("a", id).GetAttr(ctx, volume.Request{}, volume.Root)
		if want := map[bool]uint32{true: before.GID, false: group}[shared]; err != nil || after.GID != want {
			t.Errorf("shared %v: root has group %d, %v, want %d", shared, after.GID, err, want)
		}
	}

	// Two nodes with one address.
	c.attach("b", other, "n2", federation.ReadWrite)
	n2 := &nodepb.AdmitRequest{Volume: other, Node: "n2"}
	_, err = n1.Admit(ctx, n2)
	refused(t, err, codes.FailedPrecondition, "two nodes share an address")
	if _, err := c.node("b", "org-b", "127.0.0.12").Admit(ctx, n2); err != nil {
		t.Errorf("the other node from an address of its own: %v", err)
	}

	// A node that moves has one admission.
	if _, err := c.node("b", "org-b", "127.0.0.13").Admit(ctx, ask); err != nil {
		t.Fatal(err)
	}
	if got := c.admissionsOf("b", id); len(got) != 1 || got[0].Client != "127.0.0.13" || got[0].Node != "n1.cluster" ||
		got[0].Access != federation.ReadWrite {
		t.Errorf("admissions %v", got)
	}
	c.until("the old address is refused", func() error {
		if _, err := nfs.GetAttr(ctx, root.FH); !errors.Is(err, xdr.NFS4ERR_ACCESS) {
			return errors.Join(errors.New("it is not"), err)
		}
		return nil
	})

	// Detaching could not end an admission that a person made.
	c.with(func(r federation.Registry) error {
		return r.PutAdmission(ctx, federation.Admission{Volume: id, Site: "b", Client: "127.0.0.14", Access: federation.ReadWrite})
	})
	c.until("it is heard of", func() error {
		if u := c.nodes["b"].gateway.view.Use(id, netip.MustParseAddr("127.0.0.14")); u.Recorded == nil {
			return errors.New("not yet")
		}
		return nil
	})
	_, err = c.node("b", "org-b", "127.0.0.14").Admit(ctx, ask)
	refused(t, err, codes.FailedPrecondition, "weir volume expel team.data --site b --client 127.0.0.14")
}

func itoa(n uint32) string {
	return netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(n)).String()[len("0.0.0.0:"):]
}

func (c *cluster) admissionsOf(site, id string) (out []federation.Admission) {
	c.t.Helper()
	c.with(func(r federation.Registry) error {
		all, err := r.ListAdmissions(context.Background(), site)
		for _, a := range all {
			if a.Volume == id {
				out = append(out, a)
			}
		}
		return err
	})
	return out
}

// writer writes a growing number into a file until it is refused, and returns what it wrote last.
type writer struct {
	f    *nfsclient.File
	next uint64
}

func (w *writer) write(ctx context.Context) error {
	w.next++
	_, err := w.f.WriteAt(ctx, binary.BigEndian.AppendUint64(nil, w.next), 0, xdr.FILE_SYNC4)
	return err
}

func numberIn(t *testing.T, r *routing.Router, h volume.Handle) uint64 {
	t.Helper()
	p := make([]byte, 8)
	if _, _, err := r.Read(within(t, hang), volume.Request{}, h, 0, p); err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint64(p)
}

// TestRevoke: once Revoke has returned, the node's writes are refused, none is executed later,
// others get its locks, and its other volumes go on.
func TestRevoke(t *testing.T) {
	t.Parallel()
	for _, site := range []string{"a", "b"} { // the home and another
		t.Run(site, func(t *testing.T) {
			c := newCluster(t, "a", "b")
			id, other := c.create("v", manifest("v", 2)), c.create("w", manifest("w", 1))
			ctx := within(t, 2*hang)
			h := file(t, c.router("a", id), &client{name: "a"}, "f")
			file(t, c.router("a", other), &client{name: "a"}, "f")
			c.router(site, id)
			c.router(site, other)
			n := c.node(site, "org-"+site, "127.0.0.21")
			for _, v := range []string{id, other} {
				c.attach(site, v, "n1", federation.ReadWrite)
				if _, err := n.Admit(ctx, &nodepb.AdmitRequest{Volume: v, Node: "n1"}); err != nil {
					t.Fatal(err)
				}
			}
			nfs := c.mountFrom(ctx, site, "127.0.0.21", "n1")
			open := func(name string) *nfsclient.File {
				root, err := nfs.Mount(ctx, name)
				if err != nil {
					t.Fatal(err)
				}
				f, err := nfs.Open(ctx, root.FH, "f", nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH})
				if err != nil {
					t.Fatal(err)
				}
				if err := f.Lock(ctx, nfsclient.LockArgs{Owner: "o", Length: 10, Exclusive: true}); err != nil {
					t.Fatal(err)
				}
				return f
			}
			v, w := &writer{f: open("v")}, &writer{f: open("w")}
			locked(t, c.router("a", id), h, exclusive("x", 0, 9))

			var load sync.WaitGroup
			defer load.Wait()
			begun := make(chan struct{})
			load.Go(func() {
				for i := 0; ; i++ {
					err := v.write(ctx)
					if i == 10 {
						close(begun)
					}
					switch {
					case errors.Is(err, xdr.NFS4ERR_DELAY): // as Linux does, it asks again
					case err != nil:
						if !errors.Is(err, xdr.NFS4ERR_ACCESS) && !errors.Is(err, xdr.NFS4ERR_ADMIN_REVOKED) {
							t.Errorf("the write ended with %v", err)
						}
						return
					}
				}
			})
			<-begun
			_, err := n.Revoke(ctx, &nodepb.RevokeRequest{Volume: id, Node: "n1"})
			refused(t, err, codes.FailedPrecondition, "is attached to node n1")
			c.detach(site, id, "n1")
			if _, err := n.Revoke(ctx, &nodepb.RevokeRequest{Volume: id, Node: "n1"}); err != nil {
				t.Fatal(err)
			}
			at := numberIn(t, c.router("a", id), h)
			load.Wait()
			for range 5 {
				if err := v.write(ctx); err == nil {
					t.Error("a write after the node was fenced")
				}
			}
			if now := numberIn(t, c.router("a", id), h); now != at {
				t.Errorf("write %d landed after the node was fenced, when %d had", now, at)
			}
			lock(t, c.router("a", id), h, exclusive("x", 0, 9))
			if left := c.admissionsOf(site, id); len(left) != 0 {
				t.Errorf("admissions %v are left", left)
			}
			for _, cl := range c.nodes[site].gateway.nfs.Clients() {
				if cl.Opens != 1 || cl.Locks != 1 {
					t.Errorf("the client has %d opens and %d locks, want those of the other volume", cl.Opens, cl.Locks)
				}
			}
			if err := w.write(ctx); err != nil {
				t.Errorf("its other volume: %v", err)
			}
			if _, err := n.Revoke(ctx, &nodepb.RevokeRequest{Volume: id, Node: "n1"}); err != nil {
				t.Errorf("again: %v", err)
			}
			// The node may be attached again, and begins anew.
			c.attach(site, id, "n1", federation.ReadOnly)
			if r, err := n.Admit(ctx, &nodepb.AdmitRequest{Volume: id, Node: "n1"}); err != nil ||
				r.GetAccess() != nodepb.Access_ACCESS_READ_ONLY {
				t.Errorf("attached again: %v, %v", r, err)
			}
			c.attach(site, id, "n1", federation.ReadWrite)
			if _, err := n.Admit(ctx, &nodepb.AdmitRequest{Volume: id, Node: "n1"}); err != nil {
				t.Fatal(err)
			}
			if err := c.router("a", id).Unlock(ctx, volume.Request{}, h, exclusive("x", 0, 9)); err != nil {
				t.Fatal(err)
			}
			again := &writer{f: open("v"), next: at}
			if err := again.write(ctx); err != nil || numberIn(t, c.router("a", id), h) != at+1 {
				t.Errorf("write after it was attached again: %v", err)
			}
		})
	}
}

// TestAnAttachmentThatIsGoneStopsAccess: access ends without a call of Revoke.
func TestAnAttachmentThatIsGoneStopsAccess(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	id := c.create("v", manifest("v", 1))
	c.router("a", id)
	ctx := within(t, hang)
	c.attach("a", id, "n1", federation.ReadWrite)
	if _, err := c.node("a", "org-a", "127.0.0.21").Admit(ctx, &nodepb.AdmitRequest{Volume: id, Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	nfs := c.mountFrom(ctx, "a", "127.0.0.21", "n1")
	root, err := nfs.Mount(ctx, "v")
	if err != nil {
		t.Fatal(err)
	}
	c.detach("a", id, "n1")
	c.until("it is refused", func() error {
		if _, err := nfs.GetAttr(ctx, root.FH); !errors.Is(err, xdr.NFS4ERR_ACCESS) {
			return errors.Join(errors.New("it is not"), err)
		}
		return nil
	})
}

// TestRootGroupIsTheMakers: an importer that mounts first sets the root's group, and the namespace
// that made the volume replaces it. Later an importer replaces nothing.
func TestRootGroupIsTheMakers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.create("team.data", manifest("data", 1))
	c.change(id, func(v *federation.Volume) { v.OwnerSite, v.OwnerCluster = "a", "uid-a" })
	ctx := within(t, 2*hang)
	for _, at := range []struct{ site, namespace string }{{"a", "team"}, {"a", "others"}, {"b", "team"}} {
		c.attach(at.site, id, "n", federation.ReadWrite)
		c.with(func(r federation.Registry) error {
			return r.PutClaim(ctx, federation.Claim{Volume: id, Site: at.site, Namespace: at.namespace, Name: "data",
				Kind: federation.ClaimGeoVolume, UID: "u", Access: federation.ReadWrite})
		})
	}
	for i, m := range []struct {
		site, namespace string
		group, want     uint32
	}{
		{"b", "team", 7001, 7001}, // it imports the volume; its namespace is of another cluster
		{"a", "others", 7002, 7001},
		{"a", "team", 7003, 7003},
		{"b", "team", 7001, 7003},
		{"a", "others", 7002, 7003},
		{"a", "team", 7004, 7004},
	} {
		r := c.router(m.site, id)
		n := c.node(m.site, "org-"+m.site, map[string]string{"a": "127.0.0.41", "b": "127.0.0.42"}[m.site])
		c.until("it is admitted", func() error {
			_, err := n.Admit(ctx, &nodepb.AdmitRequest{Volume: id, Node: "n", Namespace: m.namespace, MountGroup: &m.group})
			return err
		})
		a, err := r.GetAttr(ctx, volume.Request{}, volume.Root)
		if err != nil || a.GID != m.want {
			t.Errorf("%d: after namespace %s of site %s, the root has group %d, want %d: %v", i, m.namespace, m.site, a.GID, m.want, err)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.create("v", manifest("v", 1))
	file(t, c.router("b", id), &client{name: "b"}, "f")
	ctx := within(t, 2*hang)
	n := c.node("b", "org-b", "127.0.0.21")
	c.until("it is well", func() error {
		u, err := n.Usage(ctx, &nodepb.UsageRequest{Volume: id})
		if err != nil || !u.GetKnown() || !u.GetHealthy() || u.GetMessage() != "" || u.GetUsedBytes() == 0 ||
			u.GetCapacityBytes() != 10<<30 || u.GetUsedInodes() == 0 {
			return errors.Join(errors.New(u.String()), err)
		}
		return nil
	})
	c.stop("a")
	u, err := n.Usage(ctx, &nodepb.UsageRequest{Volume: id})
	if err != nil || u.GetHealthy() || u.GetMessage() != "home ga does not answer" || u.GetCapacityBytes() != 10<<30 ||
		!u.GetKnown() || !u.GetEarlier() || u.GetUsedBytes() == 0 || u.GetUsedInodes() == 0 {
		t.Errorf("without its home: %v, %v", u, err)
	}
	// A gateway that starts now asked no home yet, and has what the last one reported.
	c.with(func(r federation.Registry) error {
		return errors.Join(r.PutObserved(ctx, federation.Observed{Volume: id, Gateway: "gx", Epoch: 1 << 40, Home: "gx", Used: 12345}),
			r.PutObserved(ctx, federation.Observed{Volume: id, Gateway: "gy", Epoch: 1, Home: "gy", Used: 1}))
	})
	c.stop("b")
	c.start("b")
	n = c.node("b", "org-b", "127.0.0.21")
	c.until("it tells what was reported", func() error {
		u, err := n.Usage(ctx, &nodepb.UsageRequest{Volume: id})
		if err != nil || u.GetHealthy() || u.GetMessage() == "" || !u.GetKnown() || !u.GetEarlier() || u.GetUsedBytes() != 12345 ||
			u.GetCapacityBytes() != 10<<30 || u.GetInodes() != 0 {
			return errors.Join(errors.New(u.String()), err)
		}
		return nil
	})
	_, err = n.Usage(ctx, &nodepb.UsageRequest{Volume: "x"})
	refused(t, err, codes.NotFound, "no")
}
