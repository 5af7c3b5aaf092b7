// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

func TestRepeatIsAnsweredFromTheSlot(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.open("f", 3, 0)
	remove := h.body(3, 1, true, toVol(op(xdr.OP_REMOVE, "f"))...)
	h.send(nfsCall(0), remove)
	first := h.receive()
	h.reconnect()
	h.send(nfsCall(0), remove)
	if second := h.receive(); !bytes.Equal(first, second) {
		t.Fatalf("first answer\n%x\nsecond\n%x", first, second)
	}
	if n := r.count("remove"); n != 1 {
		t.Fatalf("executed %d times", n)
	}
	other := h.body(3, 1, true, toVol(op(xdr.OP_REMOVE, "g"))...)
	h.send(nfsCall(0), other)
	if a := h.answer(h.receive()); a.status != xdr.NFS4ERR_SEQ_FALSE_RETRY {
		t.Fatalf("another request with the same sequence number: %v", a.status)
	}
}

func TestLargeRepeatIsNotCached(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_WRITE, id, uint64(0), xdr.FILE_SYNC4, bytes.Repeat([]byte("x"), 1<<17))).ok(xdr.OP_PUTFH).ok(xdr.OP_WRITE)
	read := []arg{op(xdr.OP_PUTFH, fh), op(xdr.OP_READ, id, uint64(0), 1<<17)}
	a := h.on(5, 1, false, read...)
	a.ok(xdr.OP_PUTFH).ok(xdr.OP_READ)
	if eof, data := a.Bool(), a.Opaque(1<<20); !eof || len(data) != 1<<17 || data[77] != 'x' {
		t.Fatalf("read %d bytes, eof %v", len(data), eof)
	}
	h.send(nfsCall(0), h.body(5, 1, false, read...))
	if a := h.answer(h.receive()); a.status != xdr.NFS4ERR_RETRY_UNCACHED_REP {
		t.Fatal(a.status)
	}
}

func TestRepeatWaitsForTheFirst(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.open("f", 3, 0)
	entered, release := make(chan struct{}), make(chan struct{})
	r.setBefore(func(op string, _ volume.Handle) error {
		if op == "remove" {
			entered <- struct{}{}
			<-release
		}
		return nil
	})
	request := h.body(3, 1, true, toVol(op(xdr.OP_REMOVE, "f"))...)
	h.send(nfsCall(0), request)
	<-entered
	second := r.connect(h.addr)
	second.send(nfsCall(0), request)
	_ = h.nc.Close() // the connection breaks, and the operation goes on (nfs-5)
	close(release)
	a := second.answer(second.receive())
	if a.status != xdr.NFS4_OK || r.count("remove") != 1 {
		t.Fatalf("%v, executed %d times", a.status, r.count("remove"))
	}
}

func TestUnknownOutcomeIsNotAnswered(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.open("f", 3, 0)
	r.setBefore(func(op string, _ volume.Handle) error {
		if op == "remove" {
			return volume.ErrUnknown
		}
		return nil
	})
	request := h.body(3, 1, true, toVol(op(xdr.OP_REMOVE, "f"))...)
	h.send(nfsCall(0), request)
	if b := h.receive(); b != nil {
		t.Fatalf("answered %x", b)
	}
	r.setBefore(nil)
	h.reconnect()
	h.send(nfsCall(0), request)
	if a := h.answer(h.receive()); a.status != xdr.NFS4_OK {
		t.Fatal(a.status)
	}
	if c := r.srv.Counters(); c.Dropped != 1 {
		t.Fatalf("%+v", c)
	}
}

func TestDelayIsAnswered(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	r.setBefore(func(string, volume.Handle) error { return volume.ErrDelay })
	h.call(toVol(op(xdr.OP_REMOVE, "f"))...).ok(xdr.OP_PUTFH).want(xdr.OP_REMOVE, xdr.NFS4ERR_DELAY)
}

// TestRepeatAfterRestart breaks a connection after each kind of change, restarts the
// server, and repeats the request.
func TestRepeatAfterRestart(t *testing.T) {
	rename := toVol(op(xdr.OP_SAVEFH), op(xdr.OP_RENAME, "f", "new"))
	cases := []struct {
		name string
		ops  []arg
		// after the restart
		want xdr.Status
	}{
		{"remove", toVol(op(xdr.OP_REMOVE, "f")), xdr.NFS4_OK},
		{"rename", rename, xdr.NFS4_OK},
		{"mkdir", toVol(op(xdr.OP_CREATE, xdr.NF4DIR, "d", xdr.Bitmap{}, "")), xdr.NFS4_OK},
		{"exclusive create", toVol(openOp("o", "new", 3, 0, guarded...)), xdr.NFS4_OK},
		{"create", toVol(openOp("o", "new", 3, 0, unchecked...)), xdr.NFS4_OK},
		{"failed remove", toVol(op(xdr.OP_REMOVE, "absent")), xdr.NFS4ERR_NOENT},
		{"two removes", toVol(op(xdr.OP_REMOVE, "f"), op(xdr.OP_PUTROOTFH), op(xdr.OP_LOOKUP, "vol"), op(xdr.OP_REMOVE, "f")), xdr.NFS4ERR_NOENT},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			h := r.host("10.0.0.1")
			h.open("f", 3, 0)
			first := h.on(9, 1, true, c.ops...)
			r.restart()
			h.reconnect()
			again := h.on(9, 1, true, c.ops...)
			if again.status != first.status || again.status != c.want {
				t.Fatalf("first %v, after the restart %v, want %v", first.status, again.status, c.want)
			}
			if again.count != first.count {
				t.Fatalf("%d results instead of %d", again.count, first.count)
			}
			if h.flags&xdr.SEQ4_STATUS_RESTART_RECLAIM_NEEDED == 0 {
				t.Fatalf("status flags %#x", h.flags)
			}
		})
	}
}

func TestUncheckedCreateInGraceDoesNotTruncate(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_WRITE, id, uint64(0), xdr.FILE_SYNC4, []byte("data")))
	r.restart()
	h.reconnect()
	truncate := []any{xdr.OPEN4_CREATE, xdr.UNCHECKED4, xdr.NewBitmap(xdr.FATTR4_SIZE), make([]byte, 8)}
	h.on(9, 44, true, toVol(openOp("o", "f", 3, 0, truncate...))...).ok(xdr.OP_PUTFH).want(xdr.OP_OPEN, xdr.NFS4ERR_GRACE)
	a := h.on(8, 44, true, op(xdr.OP_PUTFH, fh), op(xdr.OP_GETATTR, xdr.NewBitmap(xdr.FATTR4_SIZE)))
	a.ok(xdr.OP_PUTFH).ok(xdr.OP_GETATTR)
	a.Bitmap()
	if a.Uint32(); a.Uint64() != 4 {
		t.Fatal("the file was truncated before it could be opened")
	}
	// The slot is known now, so a further create is new and has to wait.
	h.on(9, 45, true, toVol(openOp("o", "h", 3, 0, guarded...))...).ok(xdr.OP_PUTFH).want(xdr.OP_OPEN, xdr.NFS4ERR_GRACE)
	if _, err := r.vol.Lookup(t.Context(), volume.Request{}, volume.Root, "h"); err == nil {
		t.Fatal("a create that was refused made a file")
	}
}

func TestEndOfSessionIsForgotten(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	request := toVol(op(xdr.OP_CREATE, xdr.NF4DIR, "d", xdr.Bitmap{}, ""))
	h.on(9, 1, true, request...)
	h.compound(0, op(xdr.OP_DESTROY_SESSION, h.session)).ok(xdr.OP_DESTROY_SESSION)
	r.stop() // waits for background work
	id := volume.OpID{Slot: string(binary.BigEndian.AppendUint64(nil, h.client)) + string(h.session[:]) + "\x00\x00\x00\x09", Seq: 1, Index: 2}
	_, err := r.vol.Create(t.Context(), volume.Request{ID: id}, volume.Root, "d", volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded})
	if st, _ := statusOf(err); st != xdr.NFS4ERR_EXIST {
		t.Fatalf("the volume still knows the result: %v", err)
	}
	r.start()
}

func TestExpiredSessionsAreKeptForRepeats(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	request := toVol(op(xdr.OP_CREATE, xdr.NF4DIR, "d", xdr.Bitmap{}, ""))
	h.on(9, 1, true, request...)
	r.clock.advance(time.Minute)
	r.srv.table.Sweep()
	if a := h.on(9, 1, true, request...); a.status != xdr.NFS4_OK {
		t.Fatal(a.status)
	}
	r.clock.advance(time.Hour)
	r.srv.table.Sweep()
	h.compound(0, op(xdr.OP_SEQUENCE, h.session, 2, 9, 9, false)).want(xdr.OP_SEQUENCE, xdr.NFS4ERR_BADSESSION)
}
