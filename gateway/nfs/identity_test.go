// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation/users"
	"github.com/weir-storage/weir/gateway/identity"
	"github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// TestIdentities: who users of clients are to the volume, in each operation that looks at users:
// what they create, may open, see, list, compare and give away.
func TestIdentities(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	c, err := client.Dial(ctx, "", client.Options{Owner: "c", DialContext: func(context.Context, string) (net.Conn, error) {
		return r.connect("10.0.0.1").nc, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abandon)
	if err := c.ReclaimComplete(ctx); err != nil {
		t.Fatal(err)
	}
	root, err := c.Mount(ctx, "vol")
	if err != nil {
		t.Fatal(err)
	}
	n := func(v uint32) *uint32 { return &v }
	owned := func(name string, uid, gid, mode uint32) client.FH {
		t.Helper()
		a, _, err := c.Create(ctx, root.FH, name, volume.CreateArgs{Type: volume.Directory, Attr: volume.SetAttr{Mode: n(mode)}})
		if err == nil {
			_, err = c.SetAttr(ctx, a.FH, volume.SetAttr{UID: &uid, GID: &gid, Mode: n(mode)})
		}
		if err != nil {
			t.Fatal(err)
		}
		return a.FH
	}
	open, mine := owned("open", 0, 0, 0o777), owned("mine", 5000, 600, 0o750)
	foreign := owned("foreign", 7777, 777, 0o700)
	as := func(uid, gid uint32, groups ...uint32) *client.Client {
		return c.As(client.Cred{UID: uid, GID: gid, Groups: groups})
	}
	seen := func(a client.Attr) string { return fmt.Sprintf("%d:%d %o", a.UID, a.GID, a.Mode) }
	// in is what the volume itself has.
	in := func(dir client.FH, name string) string {
		t.Helper()
		r.says(Export{})
		a, err := c.Lookup(ctx, dir, name)
		if err != nil {
			t.Fatal(err)
		}
		return seen(a)
	}
	made := 0
	for _, step := range []struct {
		says           string
		clients        users.Policy
		as             *client.Client
		creates, shown string // in the directory that everybody may write
		enters         bool   // the directory of user 5000 and group 600, of mode 750
		lists          string // the owners that a listing of the root shows
	}{
		{"nothing", users.Policy{}, as(0, 0), "0:0 644", "0:0 644", true, "0:0 777 5000:600 750 7777:777 700"},
		{"nothing", users.Policy{}, as(1000, 100), "1000:100 644", "1000:100 644", false, "0:0 777 5000:600 750 7777:777 700"},
		{"root", users.Policy{Squash: users.SquashRoot}, as(0, 0), "65534:65534 644", "65534:65534 644", false,
			"0:0 777 5000:600 750 7777:777 700"},
		{"root", users.Policy{Squash: users.SquashRoot}, as(5000, 0), "5000:65534 644", "5000:65534 644", true,
			"0:0 777 5000:600 750 7777:777 700"},
		{"all", users.Policy{Squash: users.SquashAll, AnonymousUID: 5000}, as(1, 1), "5000:65534 644", "5000:65534 644", true,
			"0:0 777 5000:600 750 7777:777 700"},
		{"ranges", ranges, as(1000, 100), "5000:600 644", "1000:100 644", true, "65534:65534 777 1000:100 750 65534:65534 700"},
		{"ranges", ranges, as(1, 2, 100), "65534:65534 644", "65534:65534 644", true, "65534:65534 777 1000:100 750 65534:65534 700"},
		{"ranges", ranges, as(5000, 600), "65534:65534 644", "65534:65534 644", false, "65534:65534 777 1000:100 750 65534:65534 700"},
		{"ranges", ranges, as(0, 0), "65534:65534 644", "65534:65534 644", false, "65534:65534 777 1000:100 750 65534:65534 700"},
		{"mask", users.Policy{Mask: "070"}, as(5, 600), "5:600 604", "5:600 604", false, "0:0 707 5000:600 700 7777:777 700"},
	} {
		what := fmt.Sprintf("%s, as %+v", step.says, step.as)
		x := Export{IDs: identity.New(step.clients)}
		made++
		name := fmt.Sprint("f", made)
		r.says(x)
		a, _, err := step.as.Create(ctx, open, name, volume.CreateArgs{Type: volume.FIFO, Attr: volume.SetAttr{Mode: n(0o644)}})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if a, err = step.as.GetAttr(ctx, a.FH); err != nil || seen(a) != step.shown {
			t.Errorf("%s: shown %s, %v, want %s", what, seen(a), err, step.shown)
		}
		if got := in(open, name); got != step.creates {
			t.Errorf("%s: the volume has %s, want %s", what, got, step.creates)
		}
		r.says(x)
		_, err = step.as.List(ctx, mine)
		_, bits, err2 := step.as.Access(ctx, mine, xdr.ACCESS4_READ)
		if (err == nil) != step.enters || err2 != nil || (bits != 0) != step.enters || err != nil && !errors.Is(err, xdr.NFS4ERR_ACCESS) {
			t.Errorf("%s: listing says %v, access %x, %v; want it allowed: %v", what, err, bits, err2, step.enters)
		}
		list, err := step.as.List(ctx, root.FH)
		var owners []string
		for _, e := range list {
			owners = append(owners, seen(e.Attr))
		}
		if err != nil || strings.Join(owners, " ") != step.lists {
			t.Errorf("%s: a listing shows %s, %v, want %s", what, strings.Join(owners, " "), err, step.lists)
		}
	}
	// What is given away, and the modes that are set.
	for _, step := range []struct {
		clients users.Policy
		as      *client.Client
		set     volume.SetAttr
		want    string // what the volume has then
		st      xdr.Status
	}{
		{ranges, as(1000, 100, 101), volume.SetAttr{GID: n(101)}, "5000:601 750", xdr.NFS4_OK},
		{ranges, as(1000, 100, 101), volume.SetAttr{GID: n(601)}, "", xdr.NFS4ERR_PERM},
		{ranges, as(1000, 100), volume.SetAttr{UID: n(1001)}, "", xdr.NFS4ERR_PERM},
		{ranges, as(0, 0), volume.SetAttr{UID: n(1000)}, "", xdr.NFS4ERR_PERM},
		{users.Policy{Squash: users.SquashRoot}, as(0, 0), volume.SetAttr{UID: n(0)}, "", xdr.NFS4ERR_PERM},
		{users.Policy{Mask: "077"}, as(5000, 600), volume.SetAttr{Mode: n(0o777)}, "5000:600 700", xdr.NFS4_OK},
	} {
		r.says(Export{})
		if _, err := c.SetAttr(ctx, mine, volume.SetAttr{UID: n(5000), GID: n(600), Mode: n(0o750)}); err != nil {
			t.Fatal(err)
		}
		r.says(Export{IDs: identity.New(step.clients)})
		_, err := step.as.SetAttr(ctx, mine, step.set)
		if step.st != xdr.NFS4_OK {
			step.want = "5000:600 750"
		}
		ok := (err == nil) == (step.st == xdr.NFS4_OK) && (err == nil || errors.Is(err, step.st))
		if got := in(root.FH, "mine"); got != step.want || !ok {
			t.Errorf("%+v sets %s: %v, and the volume has %s, want %v, %s", step.as, settings(step.set), err, got, step.st, step.want)
		}
	}
	// An open is checked too.
	r.says(Export{IDs: identity.New(ranges)})
	if _, err := as(1000, 100).Open(ctx, foreign, "x", client.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH, Create: true}); !errors.Is(err,
		xdr.NFS4ERR_ACCESS) {
		t.Errorf("a file in a directory of another: %v", err)
	}
	f, err := as(1000, 100).Open(ctx, mine, "x", client.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(ctx, []byte("x"), 0, xdr.FILE_SYNC4); err != nil {
		t.Error(err)
	}
}

var ranges = users.Policy{UIDs: []users.Range{{Client: 1000, Volume: 5000, Count: 10}},
	GIDs: []users.Range{{Client: 100, Volume: 600, Count: 2}}}

func settings(s volume.SetAttr) string {
	return fmt.Sprintf("uid %v, gid %v, mode %v", s.UID, s.GID, s.Mode)
}

// TestPorts: a volume that asks for it takes requests from ports of root only, is counted and told
// as such, and others are not bound.
func TestPorts(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	for _, x := range []struct {
		from       string
		privileged bool
		want       xdr.Status
	}{
		{"10.0.0.1:700", true, xdr.NFS4_OK}, {"10.0.0.1:1023", true, xdr.NFS4_OK}, {"10.0.0.1:1024", true, xdr.NFS4ERR_ACCESS},
		{"10.0.0.1:40000", true, xdr.NFS4ERR_ACCESS}, {"10.0.0.1:40000", false, xdr.NFS4_OK},
	} {
		r.says(Export{Privileged: x.privileged})
		before := r.srv.Counters().Refused[Port]
		h.peer = r.connectFrom(x.from)
		h.call(op(xdr.OP_PUTFH, encodeHandle(place{export: Export{ID: volID}, h: volume.Root}))).want(xdr.OP_PUTFH, x.want)
		if refused := r.srv.Counters().Refused[Port] - before; (refused == 1) != (x.want != xdr.NFS4_OK) {
			t.Errorf("from %s: counted %d", x.from, refused)
		}
	}
	if !strings.Contains(r.log.String(), "mount it without noresvport") {
		t.Errorf("the log says %s", r.log.String())
	}
}

// TestReleaseWithoutCertificate: what a client had when its volume began to ask for certificates
// can be released, and nothing else be done by the way.
func TestReleaseWithoutCertificate(t *testing.T) {
	r := newRig(t)
	h, other := r.host("10.0.0.1"), r.host("10.0.0.2")
	fh, id := h.open("f", 3, 0)
	_, otherID := other.open("f", 3, 0)
	put, root := op(xdr.OP_PUTFH, fh), op(xdr.OP_PUTFH, encodeHandle(place{export: Export{ID: volID}, h: volume.Root}))
	lock := lockStateid(h.call(put, lockOp(xdr.WRITE_LT, false, 0, 10, id, "me")).ok(xdr.OP_PUTFH))
	closing := op(xdr.OP_CLOSE, 0, id)
	r.says(Export{Certified: true})
	for what, then := range map[string]arg{"reads": op(xdr.OP_READ, id, uint64(0), 1),
		"looks": op(xdr.OP_GETATTR, xdr.NewBitmap(xdr.FATTR4_SIZE)), "saves": op(xdr.OP_SAVEFH), "removes": op(xdr.OP_REMOVE, "f")} {
		h.call(put, then).want(xdr.OP_PUTFH, xdr.NFS4ERR_ACCESS)
		bad := op(xdr.OP_LOCKU, xdr.WRITE_LT, 0, lock, uint64(20), uint64(1)) // it has no lock there
		a := h.call(put, bad, then).ok(xdr.OP_PUTFH).ok(xdr.OP_LOCKU)
		lock = a.Stateid()
		if a.Uint32(); a.status != xdr.NFS4ERR_ACCESS {
			t.Errorf("it unlocks, and then %s: %v", what, a.status)
		}
	}
	unlock := op(xdr.OP_LOCKU, xdr.WRITE_LT, 0, lock, uint64(0), uint64(10))
	h.call(root, op(xdr.OP_GETATTR, xdr.NewBitmap(xdr.FATTR4_SIZE))).want(xdr.OP_PUTFH, xdr.NFS4ERR_ACCESS)
	h.call(put, unlock).ok(xdr.OP_PUTFH).ok(xdr.OP_LOCKU)
	h.call(put, closing).ok(xdr.OP_PUTFH).ok(xdr.OP_CLOSE)
	r.says(Export{})
	lockStateid(other.call(put, lockOp(xdr.WRITE_LT, false, 0, 10, otherID, "you")).ok(xdr.OP_PUTFH))
}
