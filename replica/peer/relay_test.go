// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"io"
	"net"
	"sync"
)

// relay forwards connections to an address until it is cut or held.
type relay struct {
	r     *rig
	l     net.Listener
	mu    sync.Mutex
	to    string
	conns []net.Conn
	held  chan struct{} // nil: not; closed by release
	work  sync.WaitGroup
}

func (r *rig) relay(to string) *relay {
	r.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	x := &relay{r: r, l: l, to: to}
	x.work.Go(x.accept)
	r.Cleanup(func() {
		_ = l.Close()
		x.release()
		x.cut()
		within(r.T, "relay", x.work.Wait)
	})
	return x
}

func (x *relay) addr() string { return x.l.Addr().String() }

func (x *relay) accept() {
	for {
		c, err := x.l.Accept()
		if err != nil {
			return
		}
		x.mu.Lock()
		to := x.to
		x.mu.Unlock()
		s, err := net.Dial("tcp", to)
		if err != nil {
			_ = c.Close()
			continue
		}
		x.mu.Lock()
		x.conns = append(x.conns, c, s)
		x.mu.Unlock()
		for _, p := range [][2]net.Conn{{c, s}, {s, c}} {
			x.work.Go(func() {
				_, _ = io.Copy(p[1], held{x, p[0]}) // ends with the connection
				_ = p[0].Close()
				_ = p[1].Close()
			})
		}
	}
}

// held is a connection whose bytes wait while the relay is held.
type held struct {
	x *relay
	net.Conn
}

func (h held) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	h.x.mu.Lock()
	wait := h.x.held
	h.x.mu.Unlock()
	if wait != nil {
		<-wait
	}
	return n, err
}

func (x *relay) hold() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.held = make(chan struct{})
}

func (x *relay) release() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.held != nil {
		close(x.held)
		x.held = nil
	}
}

// cut closes all connections.
func (x *relay) cut() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.conns {
		_ = c.Close()
	}
	x.conns = nil
}
