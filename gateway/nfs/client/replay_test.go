// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// TestLostReply loses the reply to a change, and its connection. The client sends the
// change again with the same slot and sequence number, and it is executed once.
func TestLostReply(t *testing.T) {
	for _, tc := range []struct {
		name    string
		restart bool // of the server, in between
	}{{"server goes on", false}, {"server restarts", true}} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			o := s.options()
			o.Slots = 1
			c, root := s.dial(o)
			_, err := c.Mkdir(t.Context(), root, "d", 0o755)
			check(t, err)
			before := c.Stats()
			var repeats uint64
			lose := func() {
				s.losing(func() {
					if tc.restart {
						s.restart()
					} else {
						repeats++
					}
				})
			}
			lose()
			a, err := c.Mkdir(t.Context(), root, "e", 0o755)
			check(t, err)
			lose()
			_, _, err = c.Rename(t.Context(), root, "e", root, "f")
			check(t, err)
			if found, err := c.Lookup(t.Context(), root, "f"); err != nil || found.FH != a.FH {
				t.Errorf("found %x, %v; made %x", found.FH, err, a.FH)
			}
			lose()
			_, err = c.Remove(t.Context(), root, "d")
			check(t, err)
			stats := c.Stats()
			if n := stats.Resent - before.Resent; n != 3 {
				t.Errorf("%d calls were sent again, want 3", n)
			}
			if got := s.counters().Repeats; got != repeats {
				t.Errorf("the server answered %d repeats from its slots, want %d", got, repeats)
			}
		})
	}
}

// TestLostBigReply loses a reply that the server does not keep for repeats.
func TestLostBigReply(t *testing.T) {
	s := newSite(t)
	o := s.options()
	o.Slots = 1
	c, root := s.dial(o)
	f := create(t, c, root, "f")
	data := bytes.Repeat([]byte("data"), 50_000)
	_, err := f.WriteAt(t.Context(), data, 0, xdr.FILE_SYNC4)
	check(t, err)
	before := c.Stats()
	s.losing(nil)
	if !bytes.Equal(content(t, f), data) {
		t.Error("data read differs from data written")
	}
	check(t, f.Close(t.Context()))
	if n := c.Stats().Resent - before.Resent; n != 1 {
		t.Errorf("%d calls were sent again, want 1", n)
	}
}

// TestReclaim restarts the server under an open file with a lock.
func TestReclaim(t *testing.T) {
	s := newSite(t)
	o := s.options()
	o.NoWait = true
	c, root := s.dial(o)
	ctx := t.Context()
	if !c.Persistent() {
		t.Fatal("the session is not persistent")
	}
	f := create(t, c, root, "f")
	lock := client.LockArgs{Owner: "a", Length: 10, Exclusive: true}
	check(t, f.Lock(ctx, lock))
	s.restart()
	flags, err := c.Renew(ctx)
	check(t, err)
	if flags&xdr.SEQ4_STATUS_RESTART_RECLAIM_NEEDED == 0 {
		t.Errorf("flags are %#x after a restart", flags)
	}
	_, err = c.Open(ctx, root, "f", client.OpenArgs{Owner: "new"})
	refused(t, err, xdr.NFS4ERR_GRACE)
	_, err = f.WriteAt(ctx, []byte("x"), 0, xdr.UNSTABLE4)
	refused(t, err, xdr.NFS4ERR_DELAY)
	check(t, c.ExchangeID(ctx))
	check(t, c.NewSession(ctx))
	check(t, f.Reclaim(ctx))
	lock.Reclaim = true
	check(t, f.Lock(ctx, lock))
	check(t, c.ReclaimComplete(ctx))
	if flags, err = c.Renew(ctx); err != nil || flags != 0 {
		t.Errorf("flags are %#x after reclaiming, %v", flags, err)
	}
	_, err = f.WriteAt(ctx, []byte("x"), 0, xdr.UNSTABLE4)
	check(t, err)
	check(t, f.Unlock(ctx, lock))
	check(t, f.Close(ctx))
}

// TestCancelled stops waiting for a request. Its slot must not be used again before
// the answer came, and it must send the data that it was called with.
func TestCancelled(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	s := newSite(t, memvol.WithBefore(func(op string, _ volume.Handle) error {
		if op == "write" {
			arrived <- struct{}{}
			<-release
		}
		return nil
	}))
	o := s.options()
	o.Slots = 1
	c, root := s.dial(o)
	f := create(t, c, root, "f")
	ctx, cancel := context.WithCancel(t.Context())
	data := []byte("as it was")
	done := make(chan error)
	go func() {
		_, err := f.WriteAt(ctx, data, 0, xdr.FILE_SYNC4)
		done <- err
	}()
	<-arrived
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("outcome is %v", err)
	}
	clear(data)
	if _, err := c.Renew(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with the only slot in use: %v", err)
	}
	c.Disconnect() // so that it is sent again, from the copy
	close(release)
	if got := content(t, f); string(got) != "as it was" {
		t.Errorf("content is %q", got)
	}
	select {
	case <-arrived:
		t.Error("the write was executed twice")
	default:
	}
	check(t, f.Close(t.Context()))
	check(t, c.Close(t.Context()))
}

// TestManyAtOnce runs more requests than slots while connections are lost.
func TestManyAtOnce(t *testing.T) {
	s := newSite(t)
	o := s.options()
	o.Slots = 4
	c, root := s.dial(o)
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			name := fmt.Sprint(g)
			mode := uint32(0o600)
			f, err := c.Open(t.Context(), root, name, client.OpenArgs{Create: true, Mode: xdr.GUARDED4, Attr: volume.SetAttr{Mode: &mode}})
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			data := bytes.Repeat([]byte{byte('a' + g)}, 5000)
			for i := range 30 {
				if i%10 == g%10 {
					c.Disconnect()
				}
				if _, err := f.WriteAt(t.Context(), data, uint64(i*len(data)), xdr.UNSTABLE4); err != nil {
					t.Errorf("write: %v", err)
				}
			}
			p := make([]byte, 30*len(data))
			n, eof, err := f.ReadAt(t.Context(), p, 0)
			if err != nil || n != len(p) || !eof || !bytes.Equal(p, bytes.Repeat(data, 30)) {
				t.Errorf("read %d bytes, end %v, %v", n, eof, err)
			}
			if err := f.Close(t.Context()); err != nil {
				t.Errorf("close: %v", err)
			}
			if _, err := c.Remove(t.Context(), root, name); err != nil {
				t.Errorf("remove: %v", err)
			}
		})
	}
	wg.Wait()
	if left, err := c.List(t.Context(), root); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestRaw puts compounds together by hand.
func TestRaw(t *testing.T) {
	s := newSite(t)
	c, root := s.dial(s.options())
	ctx := t.Context()

	res, err := c.DoBare(ctx, client.NewCompound().Tag("hello").PutRootFH())
	check(t, err)
	if _, err = res.Next(xdr.OP_PUTROOTFH); res.Tag != "hello" {
		t.Errorf("tag is %q", res.Tag)
	}
	refused(t, err, xdr.NFS4ERR_OP_NOT_IN_SESSION)
	res.Free()

	last := c.Channel().MaxRequests - 1
	mkdir := func(seq uint32) (*client.Result, error) {
		t.Helper()
		res, err := c.DoSlot(ctx, last, seq, client.NewCompound().Cache().PutFH(root).Add(xdr.OP_CREATE, func(e *xdr.Encoder) {
			e.Uint32(xdr.NF4DIR)
			e.String("d")
			e.Bitmap(xdr.Bitmap{})
			e.Opaque(nil)
		}))
		check(t, err)
		return res, res.Sequence()
	}
	for range 2 { // the second time it is a repeat
		res, err := mkdir(1)
		check(t, err)
		if res.Status != xdr.NFS4_OK || res.Count != 3 {
			t.Errorf("mkdir: %v, %d results", res.Status, res.Count)
		}
		res.Free()
	}
	if n := s.counters().Repeats; n != 1 {
		t.Errorf("%d repeats", n)
	}
	res, err = mkdir(5)
	refused(t, err, xdr.NFS4ERR_SEQ_MISORDERED)
	res.Free()
	res, err = mkdir(2)
	check(t, err)
	if res.Status != xdr.NFS4ERR_EXIST {
		t.Errorf("with another sequence number: %v", res.Status)
	}
	res.Free()

	res, err = c.Do(ctx, client.NewCompound().Add(9999, nil))
	check(t, err)
	_, err = res.Next(9999)
	refused(t, err, xdr.NFS4ERR_OP_ILLEGAL)
	if _, err := res.Next(xdr.OP_PUTROOTFH); err == nil {
		t.Error("there is a result that nobody asked for")
	}
	res.Free()
}

// TestNewSession makes a further session, and a client with another verifier
// takes the state of the one before.
func TestNewSession(t *testing.T) {
	s := newSite(t)
	c, root := s.dial(s.options())
	f := create(t, c, root, "f")
	old := c.SessionID()
	check(t, c.ExchangeID(t.Context()))
	if !c.Server().Confirmed || c.Server().Owner != "owner" || c.Server().Scope != "scope" {
		t.Errorf("server is %+v", c.Server())
	}
	check(t, c.NewSession(t.Context()))
	if c.SessionID() == old {
		t.Error("the session is the same")
	}
	_, err := f.WriteAt(t.Context(), []byte("x"), 0, xdr.UNSTABLE4)
	check(t, err)

	o := s.options()
	o.Verifier = [8]byte{2}
	_, _ = s.dial(o)
	_, err = c.Renew(t.Context())
	refused(t, err, xdr.NFS4ERR_BADSESSION)
	if _, err := client.Dial(t.Context(), "server", client.Options{}); err == nil {
		t.Error("a client without a name was accepted")
	}
}
