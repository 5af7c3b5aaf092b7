// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// TestPanicEndsOneOperation: a mistake in one operation is answered with an error and logged, and
// everybody is served on.
func TestPanicEndsOneOperation(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	mkdir := func(name string) []arg { return toVol(op(xdr.OP_CREATE, xdr.NF4DIR, name, xdr.Bitmap{}, "")) }
	r.setBefore(func(op string, _ volume.Handle) error {
		if op == "create" {
			panic("a mistake")
		}
		return nil
	})
	h.on(9, 1, true, mkdir("d")...).ok(xdr.OP_PUTFH).want(xdr.OP_CREATE, xdr.NFS4ERR_SERVERFAULT)
	if c := r.srv.Counters(); c.Panics != 1 {
		t.Errorf("%d panics are counted", c.Panics)
	}
	if log := r.log.String(); !strings.Contains(log, "a mistake") || !strings.Contains(log, "panic_test.go") {
		t.Errorf("the log lacks the stack: %s", log)
	}
	r.setBefore(nil)
	h.on(9, 1, true, mkdir("d")...).ok(xdr.OP_PUTFH).want(xdr.OP_CREATE, xdr.NFS4ERR_SERVERFAULT) // the same request again
	h.on(9, 2, true, mkdir("d")...).ok(xdr.OP_PUTFH).ok(xdr.OP_CREATE)
}

// TestPanicEndsOneRequest: a mistake outside an operation is counted and logged, and ends the
// connection: some operations may have been executed. The client asks again, and finds out.
func TestPanicEndsOneRequest(t *testing.T) {
	r := newRig(t)
	broken := false
	r.observe = func(o Operation) {
		if broken && o.Op == xdr.OP_CREATE {
			broken = false
			panic("a mistake")
		}
	}
	r.restart()
	h := r.host("10.0.0.1")
	mkdir := toVol(op(xdr.OP_CREATE, xdr.NF4DIR, "d", xdr.Bitmap{}, ""))
	broken = true
	h.send(nfsCall(0), h.body(9, 1, true, mkdir...))
	if h.receive() != nil {
		t.Error("a request that panicked is answered")
	}
	if c := r.srv.Counters(); c.Panics != 1 || !strings.Contains(r.log.String(), "panic_test.go") {
		t.Errorf("%d panics are counted; the log: %s", c.Panics, r.log.String())
	}
	if n := r.srv.Waiting(0); len(n) != 0 {
		t.Errorf("%v are still counted as waiting", n)
	}
	h.reconnect()
	h.on(9, 1, true, mkdir...).ok(xdr.OP_PUTFH).ok(xdr.OP_CREATE)
}

// brokenConn panics when an answer is written.
type brokenConn struct{ pipeConn }

func (brokenConn) Write([]byte) (int, error) { panic("a mistake") }

// TestPanicEndsOneAnswer: a mistake while an answer is sent ends its connection alone.
func TestPanicEndsOneAnswer(t *testing.T) {
	r := newRig(t)
	client, server := net.Pipe()
	r.srv.serveConn(brokenConn{pipeConn{server, "10.0.0.1:700"}})
	p := &peer{t, client}
	null := nfsCall(0)
	null.Procedure = xdr.NFSPROC4_NULL
	p.send(null, nil)
	if p.receive() != nil {
		t.Error("an answer came")
	}
	if c := r.srv.Counters(); c.Panics != 1 {
		t.Errorf("%d panics are counted", c.Panics)
	}
	r.host("10.0.0.1")
}

// failing is a listener that fails some times before it accepts.
type failing struct {
	net.Listener
	errs []error
}

func (l *failing) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: err}
	}
	return l.Listener.Accept()
}

// TestAcceptGoesOn: without free file descriptors the server waits, and serves on.
func TestAcceptGoesOn(t *testing.T) {
	r := newRig(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	l := &failing{inner, []error{syscall.EMFILE, syscall.ECONNABORTED, syscall.ENOBUFS, broken}}
	served := make(chan error, 1)
	go func() { served <- r.srv.Serve(l) }()
	for {
		select {
		case err := <-served:
			if !errors.Is(err, broken) || len(l.errs) != 0 {
				t.Fatalf("serve ends with %v before %v", err, l.errs)
			}
			return
		default:
			r.clock.advance(acceptAgain)
		}
	}
}
