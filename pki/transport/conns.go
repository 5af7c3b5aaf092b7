// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
)

// Conns are the connections of a server's listeners. That of a call can be closed, which gRPC does
// not offer. The zero value is ready. Its methods may be called from many goroutines.
type Conns struct {
	byAddr sync.Map // *noted by its remote address
}

// On returns a listener whose connections are noted while they last.
func (c *Conns) On(l net.Listener) net.Listener { return listener{l, c} }

// CloseSoon closes the connection of a call some time from now. It does not wait.
func (c *Conns) CloseSoon(ctx context.Context, after time.Duration) {
	if from, ok := peer.FromContext(ctx); ok {
		if conn, ok := c.byAddr.Load(from.Addr.String()); ok {
			time.AfterFunc(after, func() { _ = conn.(net.Conn).Close() }) // it is given up
		}
	}
}

type listener struct {
	net.Listener
	of *Conns
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	n := &noted{conn, l.of}
	l.of.byAddr.Store(conn.RemoteAddr().String(), n)
	return n, nil
}

type noted struct {
	net.Conn
	of *Conns
}

// Close forgets the connection.
func (n *noted) Close() error {
	n.of.byAddr.CompareAndDelete(n.RemoteAddr().String(), n)
	return n.Conn.Close()
}
