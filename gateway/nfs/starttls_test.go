// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// probe is a client's question for TLS.
func probe() xdr.CallHeader {
	return xdr.CallHeader{XID: 9, Program: xdr.NFS4_PROGRAM, Version: xdr.NFS_V4, Procedure: xdr.NFSPROC4_NULL,
		Cred: xdr.OpaqueAuth{Flavor: xdr.AUTH_TLS}}
}

// agreed is the whole answer to it (RFC 9289 section 4.1).
const agreed = "\x00\x00\x00\x09" + "\x00\x00\x00\x01" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x08STARTTLS" +
	"\x00\x00\x00\x00"

// TestStartTLS: the server agrees to TLS when that is the first thing that a client asks, and takes
// nothing for secured that came before.
func TestStartTLS(t *testing.T) {
	r := newRig(t)
	r.stop()
	var secured []net.Conn
	var fails error
	r.startTLS = func(_ context.Context, raw net.Conn) (net.Conn, string, error) {
		secured = append(secured, raw)
		return raw, "node", fails // in the clear, so that the test can read it
	}
	r.start()
	refused := func() uint64 { return r.srv.Counters().Refused[Certificate] }

	p := r.connect("10.0.0.1")
	p.send(probe(), nil)
	if got := string(p.receive()); got != agreed {
		t.Fatalf("answer %q, want %q", got, agreed)
	}
	if h, _ := p.rpc(probe(), nil); h.Denied || h.Stat != xdr.SUCCESS || len(secured) != 1 {
		t.Errorf("a second time: %+v, secured %d times", h, len(secured))
	}
	h := r.host("10.0.0.2")
	r.says(Export{Certified: true})
	enter := op(xdr.OP_PUTFH, encodeHandle(place{export: Export{ID: volID}, h: volume.Root}))
	h.call(enter).want(xdr.OP_PUTFH, xdr.NFS4ERR_ACCESS)
	if n := refused(); n != 1 {
		t.Errorf("counted %d", n)
	}
	h.peer = p // the same session, on the connection that is certified
	h.call(enter).ok(xdr.OP_PUTFH)

	p = r.connect("10.0.0.1")
	if n, _ := p.rpc(xdr.CallHeader{XID: 7, Program: xdr.NFS4_PROGRAM, Version: xdr.NFS_V4}, nil); n.Stat != xdr.SUCCESS {
		t.Fatalf("NULL: %+v", n)
	}
	p.send(probe(), nil)
	if got := string(p.receive()); got == agreed || len(secured) != 1 {
		t.Error("the server agrees to TLS after it answered something else")
	}

	// What is sent with the question, in the clear, must not be taken for what was sent later.
	var e xdr.Encoder
	e.CallHeader(probe())
	var both [2][]byte
	for i := range both {
		rec := e.Bytes()
		both[i] = append([]byte{0x80, 0, 0, byte(len(rec))}, rec...)
	}
	p = r.connect("10.0.0.1")
	if _, err := p.nc.Write(append(both[0], both[1]...)); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Logf("write: %v", err)
	}
	if got := p.receive(); got != nil || len(secured) != 1 {
		t.Errorf("with more in the same breath: answer %q, secured %d times", got, len(secured))
	}

	fails = errors.New("no handshake")
	n := refused()
	p = r.connect("10.0.0.1")
	p.send(probe(), nil)
	if got := string(p.receive()); got != agreed {
		t.Fatalf("answer %q", got)
	}
	if got := p.receive(); got != nil || refused() != n+1 {
		t.Errorf("after a handshake that fails: %q, counted %d", got, refused()-n)
	}
}

// TestNoTLS: of a server without TLS a client learns that.
func TestNoTLS(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := client.Dial(ctx, "", client.Options{Owner: "c", TLS: new(tls.Config),
		DialContext: func(context.Context, string) (net.Conn, error) { return r.connect("10.0.0.1").nc, nil }})
	if !errors.Is(err, client.ErrNoTLS) {
		t.Errorf("it is told %v", err)
	}
}
