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
