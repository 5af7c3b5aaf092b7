// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/users"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/volume"
)

// TestForeignUsers: the users of another organization's clients are whom the volume's owner makes
// them, in both directions, as soon as he says so; and a gateway there that does not keep to it
// asks on behalf of nobody.
func TestForeignUsers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.createAt("v", manifest("v", 1), []string{"a"})
	c.router("a", id)
	c.admit("a", id)
	ctx := within(t, 2*hang)
	own, root := c.mount(ctx, "a", "own", "v")
	n := func(v uint32) *uint32 { return &v }
	dir := func(name string, uid, gid, mode uint32) nfsclient.FH {
		t.Helper()
		a, err := own.Mkdir(ctx, root, name, mode)
		if err == nil {
			_, err = own.SetAttr(ctx, a.FH, volume.SetAttr{UID: n(uid), GID: n(gid), Mode: n(mode)})
		}
		if err != nil {
			t.Fatal(err)
		}
		return a.FH
	}
	open := dir("open", 0, 0, 0o777)
	private := dir("private", 7777, 777, 0o770)
	c.attach("b", id, "n1", federation.ReadWrite)
	b := c.node("b", "org-b", "127.0.0.21")
	mapped := func(clients *users.Policy) {
		t.Helper()
		c.with(func(r federation.Registry) error {
			v, rev, err := r.GetVolume(context.Background(), id)
			if err == nil {
				v.Grants = []federation.Grant{{Site: "b", Namespace: "lab", Access: federation.ReadWrite}}
				if clients != nil {
					v.Clients = map[string]users.Policy{"b": *clients}
				}
				_, err = r.UpdateVolume(context.Background(), rev, v)
			}
			return err
		})
	}
	mapped(nil)
	c.until("node n1 at b is admitted", func() error {
		_, err := b.Admit(ctx, &nodepb.AdmitRequest{Volume: id, Node: "n1"})
		return err
	})
	nfs := c.mountFrom(ctx, "b", "127.0.0.21", "n1")
	theirs, err := nfs.Mount(ctx, "v")
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	// as creates a file at b, and says who owns it there and at a.
	as := func(uid, gid uint32) string {
		t.Helper()
		made++
		name := fmt.Sprint("f", made)
		where, err := nfs.Walk(ctx, theirs.FH, "open")
		if err != nil {
			return err.Error()
		}
		at, _, err := nfs.As(nfsclient.Cred{UID: uid, GID: gid}).Create(ctx, where.FH, name, volume.CreateArgs{Type: volume.FIFO,
			Attr: volume.SetAttr{Mode: n(0o660)}})
		if err == nil {
			at, err = nfs.GetAttr(ctx, at.FH)
		}
		here, err2 := own.Walk(ctx, root, "open/"+name)
		if err := errors.Join(err, err2); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d:%d %o at b, %d:%d %o at a", at.UID, at.GID, at.Mode, here.UID, here.GID, here.Mode)
	}
	is := func(uid, gid uint32, want string) {
		t.Helper()
		c.until(fmt.Sprintf("user %d of group %d is %s", uid, gid, want), func() error {
			if got := as(uid, gid); got != want {
				return errors.New(got)
			}
			return nil
		})
	}
	is(0, 0, "0:0 660 at b, 0:0 660 at a")
	ranges := users.Policy{UIDs: []users.Range{{Client: 1000, Volume: 5000, Count: 9}}, GIDs: []users.Range{{Client: 100, Volume: 600}},
		Mask: "020"}
	mapped(&ranges)
	is(1000, 100, "1000:100 640 at b, 5000:600 640 at a")
	is(0, 0, "65534:65534 640 at b, 65534:65534 640 at a")
	is(7777, 600, "65534:65534 640 at b, 65534:65534 640 at a")

	// The root of the volume is the owner's, whatever group a pod at b asks for.
	_, err = b.Admit(ctx, &nodepb.AdmitRequest{Volume: id, Node: "n1", MountGroup: n(4242)})
	a, err2 := own.GetAttr(ctx, root)
	if err := errors.Join(err, err2); err != nil || a.GID != 0 || a.Mode != 0o755 {
		t.Errorf("the root has group %d and mode %o, %v", a.GID, a.Mode, err)
	}

	// Nodes do not mount what takes no requests of theirs.
	for words, clients := range map[string]*users.Policy{"show a certificate": {Certificates: users.CertificatesRequired},
		"ports below 1024": {Ports: users.PortsPrivileged}} {
		mapped(clients)
		c.until("a node is told of "+words, func() error {
			if _, err := b.Admit(ctx, &nodepb.AdmitRequest{Volume: id, Node: "n1"}); err == nil || !strings.Contains(err.Error(), words) {
				return fmt.Errorf("it is told %w", err)
			}
			return nil
		})
		// One that mounts over TLS has a certificate to show there.
		_, err := b.Admit(ctx, &nodepb.AdmitRequest{Volume: id, Node: "n1", Tls: true})
		if certified := clients.Certificates == users.CertificatesRequired; (err == nil) != certified {
			t.Errorf("a node that mounts over TLS is told, of %s: %v", words, err)
		}
	}
	mapped(&ranges)
	is(7777, 600, "65534:65534 640 at b, 65534:65534 640 at a")

	// What b's gateway sends by itself: as root, as users that are others', as one of its own.
	hostile := forwardpb.NewForwardClient(c.dialAs(pki.Identity{Federation: "test", Organization: "org-b", Site: "b", Gateway: "gb",
		Part: pki.PartGateway}, "a"))
	call := func(q *forwardpb.CallRequest, uid, gid uint32) *forwardpb.CallReply {
		t.Helper()
		q.Volume, q.Caller = id, &forwardpb.Caller{Uid: uid, Gid: gid, Groups: []uint32{0, 777}}
		r, err := hostile.Call(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, uid := range []uint32{0, 7777, 5000} {
		r := call(&forwardpb.CallRequest{Method: forwardpb.Method_METHOD_READ_DIR, Handle: handle(private), Length: 10}, uid, 777)
		if !strings.Contains(r.GetDetail(), volume.ErrAccess.Error()) {
			t.Errorf("as user %d it lists a directory of another: %q", uid, r.GetDetail())
		}
	}
	c.stop("b") // it would register again
	var incarnation string
	c.with(func(r federation.Registry) error {
		sites, err := r.Sites(ctx)
		for _, s := range sites {
			if s.Site.Name == "b" {
				incarnation = s.Site.Gateways[0].Incarnation
			}
		}
		return err
	})
	if r := call(&forwardpb.CallRequest{Method: forwardpb.Method_METHOD_REGISTER_LOCKS, Incarnation: incarnation, Registration: 1 << 40,
		RegistersChanges: true}, 0, 0); r.GetOutcome() != 0 {
		t.Fatal(r.GetDetail())
	}
	for uid, want := range map[uint32]uint32{0: 65534, 7777: 65534, 5003: 5003} {
		r := call(&forwardpb.CallRequest{Method: forwardpb.Method_METHOD_CREATE, Handle: handle(open), Type: uint32(volume.FIFO),
			Mode: uint32(volume.Guarded), Name: fmt.Append(nil, "by ", uid), Set: &forwardpb.SetAttr{Mode: n(0o640)},
			Incarnation: incarnation, Registration: 1 << 40}, uid, 0)
		if r.GetOutcome() != 0 || r.GetAttr().GetUid() != want || r.GetAttr().GetGid() != 65534 {
			t.Errorf("as user %d it makes a file of %v (%s), want user %d", uid, r.GetAttr(), r.GetDetail(), want)
		}
	}
}

// handle is the file that a handle of NFS names (nfs-1).
func handle(fh nfsclient.FH) *forwardpb.Handle {
	return &forwardpb.Handle{Ino: binary.BigEndian.Uint64([]byte(fh)[21:]), Gen: binary.BigEndian.Uint64([]byte(fh)[29:])}
}
