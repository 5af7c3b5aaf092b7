// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

func TestNamespace(t *testing.T) {
	s := newSite(t)
	c, root := s.dial(s.options())
	ctx := t.Context()

	top, err := c.Root(ctx)
	check(t, err)
	volumes, err := c.List(ctx, top)
	check(t, err)
	if len(volumes) != 1 || volumes[0].Name != "vol" || volumes[0].Attr.FH != root {
		t.Errorf("the root lists %+v", volumes)
	}
	d, err := c.Mkdir(ctx, root, "d", 0o750)
	check(t, err)
	if d.Type != volume.Directory || d.Mode != 0o750 || d.Nlink != 2 || d.Ino == 0 || d.Mtime.IsZero() {
		t.Errorf("made %+v", d)
	}
	if up, err := c.Parent(ctx, d.FH); err != nil || up.FH != root {
		t.Errorf("parent is %x, %v", up.FH, err)
	}
	link, err := c.Symlink(ctx, d.FH, "link", "to/there")
	check(t, err)
	if target, err := c.ReadLink(ctx, link.FH); err != nil || target != "to/there" {
		t.Errorf("target is %q, %v", target, err)
	}
	dev, _, err := c.Create(ctx, d.FH, "dev", volume.CreateArgs{Type: volume.Char, Rdev: 1<<32 | 3})
	check(t, err)
	if dev.Type != volume.Char || dev.Rdev != 1<<32|3 {
		t.Errorf("made %+v", dev)
	}
	f := create(t, c, d.FH, "f")
	a, change, err := c.Link(ctx, f.FH(), root, "g")
	check(t, err)
	if a.Nlink != 2 || change.After <= change.Before {
		t.Errorf("linked %+v, %+v", a, change)
	}
	_, _, err = c.Rename(ctx, d.FH, "f", root, "h")
	check(t, err)
	if found, err := c.Walk(ctx, d.FH, "link"); err != nil || found.FH != link.FH {
		t.Errorf("walk: %+v, %v", found, err)
	}
	if found, err := c.Mount(ctx, "/vol//h"); err != nil || found.FH != f.FH() || found.Ino != a.Ino {
		t.Errorf("mount: %+v, %v", found, err)
	}
	check(t, f.Close(ctx))
	_, err = c.Lookup(ctx, d.FH, "f")
	refused(t, err, xdr.NFS4ERR_NOENT)
	_, err = c.Remove(ctx, root, "d")
	refused(t, err, xdr.NFS4ERR_NOTEMPTY)
	_, err = c.Remove(ctx, root, "h")
	check(t, err)

	mode := uint32(0o600)
	when := time.Unix(123456789, 987654321)
	a, err = c.SetAttr(ctx, d.FH, volume.SetAttr{Mode: &mode, Mtime: &when, Atime: &time.Time{}})
	check(t, err)
	if a.Mode != mode || !a.Mtime.Equal(when) || a.Atime.Equal(when) {
		t.Errorf("attributes are %+v", a)
	}
	other := c.As(client.Cred{UID: 5, GID: 5})
	_, err = other.SetAttr(ctx, d.FH, volume.SetAttr{Mode: &mode})
	refused(t, err, xdr.NFS4ERR_PERM)
	_, granted, err := other.Access(ctx, d.FH, xdr.ACCESS4_READ|xdr.ACCESS4_MODIFY)
	check(t, err)
	if granted != 0 {
		t.Errorf("access %#x is granted", granted)
	}
	space, err := c.Space(ctx, root)
	check(t, err)
	if space.TotalBytes != 1<<40 || space.FreeInodes == 0 {
		t.Errorf("space is %+v", space)
	}
	lease, err := c.LeaseTime(ctx)
	if err != nil || lease != time.Minute {
		t.Errorf("lease is %v, %v", lease, err)
	}
	if flags, err := c.Renew(ctx); err != nil || flags != 0 {
		t.Errorf("renew: %#x, %v", flags, err)
	}
	check(t, c.Close(ctx))
	if _, err := c.Renew(ctx); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestListInPages(t *testing.T) {
	s := newSite(t)
	c, root := s.dial(s.options())
	for i := range 200 {
		_, err := c.Symlink(t.Context(), root, fmt.Sprint(i), "x")
		check(t, err)
	}
	var names []string
	var page client.Page
	pages := 0
	for after := uint64(0); !page.EOF; pages++ {
		var err error
		page, err = c.ReadDir(t.Context(), root, after, page.Verifier, 4096)
		check(t, err)
		for _, e := range page.Entries {
			if e.Attr.Type != volume.Symlink || e.Attr.FH == "" || e.Attr.Err != xdr.NFS4_OK {
				t.Errorf("entry %q has %+v", e.Name, e.Attr)
			}
			names, after = append(names, e.Name), e.Cookie
		}
	}
	if len(names) != 200 || len(slices.Compact(slices.Sorted(slices.Values(names)))) != 200 || pages < 5 {
		t.Errorf("%d names in %d pages", len(names), pages)
	}
}

func TestData(t *testing.T) {
	s := newSite(t)
	c, root := s.dial(s.options())
	ctx := t.Context()
	f := create(t, c, root, "f")
	data := bytes.Repeat([]byte("0123456789abcde"), 100_000)
	var verf volume.Verifier
	for off := 0; off < len(data); {
		w, err := f.WriteAt(ctx, data[off:min(off+300_000, len(data))], uint64(off), xdr.UNSTABLE4)
		check(t, err)
		off += w.Count
		verf = w.Verifier
	}
	got, err := f.Commit(ctx)
	check(t, err)
	if got != verf {
		t.Errorf("verifier went from %x to %x", verf, got)
	}
	if !bytes.Equal(content(t, f), data) {
		t.Error("data read differs from data written")
	}
	check(t, f.Deallocate(ctx, 1<<20, 1<<19))
	at, eof, err := f.Seek(ctx, 0, true)
	check(t, err)
	if at != 1<<20 || eof {
		t.Errorf("hole at %d, end %v", at, eof)
	}
	size := uint64(10)
	a, err := f.SetAttr(ctx, volume.SetAttr{Size: &size})
	check(t, err)
	if a.Size != 10 || string(content(t, f)) != "0123456789" {
		t.Errorf("after truncating: %+v", a)
	}
	w, err := f.WriteAt(ctx, []byte("x"), 0, xdr.FILE_SYNC4)
	if err != nil || w.Committed != xdr.FILE_SYNC4 {
		t.Errorf("wrote %+v, %v", w, err)
	}
	_, err = c.Open(ctx, root, "f", client.OpenArgs{Create: true, Mode: xdr.GUARDED4})
	refused(t, err, xdr.NFS4ERR_EXIST)
	reader, err := c.Open(ctx, root, "f", client.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_READ, Owner: "reader"})
	check(t, err)
	_, err = reader.WriteAt(ctx, []byte("x"), 0, xdr.UNSTABLE4)
	refused(t, err, xdr.NFS4ERR_OPENMODE)
	// The owner has the file open for both.
	both, err := c.Open(ctx, root, "f", client.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_READ})
	check(t, err)
	if both.Stateid().Other != f.Stateid().Other {
		t.Error("two opens of one owner have stateids of their own")
	}
	check(t, f.Downgrade(ctx, xdr.OPEN4_SHARE_ACCESS_READ, 0))
	_, err = f.WriteAt(ctx, []byte("x"), 0, xdr.UNSTABLE4)
	refused(t, err, xdr.NFS4ERR_OPENMODE)
	again, err := c.OpenFH(ctx, f.FH(), client.OpenArgs{Owner: "by handle"})
	check(t, err)
	// Removed while it is open, it stays until it is closed.
	_, err = c.Remove(ctx, root, "f")
	check(t, err)
	if string(content(t, again)) != "x123456789" {
		t.Error("a removed, open file lost its content")
	}
	for _, open := range []*client.File{f, reader, again} {
		check(t, open.Close(ctx))
	}
	_, err = c.GetAttr(ctx, f.FH())
	refused(t, err, xdr.NFS4ERR_STALE)
}

func TestXattr(t *testing.T) {
	s := newSite(t)
	c, root := s.dial(s.options())
	ctx := t.Context()
	f := create(t, c, root, "f").FH()
	big := bytes.Repeat([]byte("v"), 60_000)
	for i := range 300 {
		_, err := c.SetXattr(ctx, f, fmt.Sprintf("%0200d", i), nil, xdr.SETXATTR4_CREATE)
		check(t, err)
	}
	change, err := c.SetXattr(ctx, f, "big", big, xdr.SETXATTR4_EITHER)
	check(t, err)
	if change.After <= change.Before {
		t.Errorf("change is %+v", change)
	}
	value, err := c.GetXattr(ctx, f, "big")
	check(t, err)
	if !bytes.Equal(value, big) {
		t.Errorf("value has %d bytes", len(value))
	}
	names, err := c.ListXattrs(ctx, f)
	check(t, err)
	if len(names) != 301 { // more than fit into one reply
		t.Errorf("%d names", len(names))
	}
	_, err = c.RemoveXattr(ctx, f, "big")
	check(t, err)
	_, err = c.GetXattr(ctx, f, "big")
	refused(t, err, xdr.NFS4ERR_NOXATTR)
	_, err = c.SetXattr(ctx, f, "big", big, xdr.SETXATTR4_REPLACE)
	refused(t, err, xdr.NFS4ERR_NOXATTR)
}

func TestLocks(t *testing.T) {
	s := newSite(t)
	c, root := s.dial(s.options())
	o := s.options()
	o.Owner = "another client"
	c2, _ := s.dial(o)
	ctx := t.Context()
	f := create(t, c, root, "f")
	f2, err := c2.OpenFH(ctx, f.FH(), client.OpenArgs{})
	check(t, err)
	mine := client.LockArgs{Owner: "a", Offset: 10, Length: 10, Exclusive: true}
	check(t, f.Lock(ctx, mine))
	check(t, f.Lock(ctx, client.LockArgs{Owner: "a", Offset: 20, Length: 5}))
	theirs := client.LockArgs{Owner: "a", Offset: 0, Length: ^uint64(0)}
	for _, err := range []error{f2.Lock(ctx, theirs), f2.TestLock(ctx, theirs)} {
		refused(t, err, xdr.NFS4ERR_DENIED)
		var held *client.Denied
		if !errors.As(err, &held) || held.Offset != 10 || held.Length != 10 || !held.Exclusive || held.Owner != "a" ||
			held.ClientID != c.ID() {
			t.Errorf("denied by %+v", held)
		}
	}
	check(t, f.Unlock(ctx, mine))
	check(t, f2.Lock(ctx, theirs))
	check(t, f2.Unlock(ctx, theirs))
	check(t, f2.Unlock(ctx, client.LockArgs{Owner: "nobody", Length: 1}))
	check(t, f.Close(ctx))
	if _, known := f2.LockStateid("a"); !known {
		t.Error("the lock's stateid is not known")
	}
}
