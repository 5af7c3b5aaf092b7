// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// link is the way to one gateway, which all other gateways take. A test can cut it: then nothing
// arrives, as if packets were lost, until it is healed.
type link struct {
	listener net.Listener
	mu       sync.Mutex
	open     chan struct{} // closed while it is not cut
	to       string
	slow     time.Duration // what passes takes up to that long, each way
	conns    map[net.Conn]bool
}

func newLink(t testing.TB, host string, slow time.Duration) *link {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{listener: l, open: make(chan struct{}), slow: slow, conns: map[net.Conn]bool{}}
	close(k.open)
	t.Cleanup(func() {
		_ = l.Close()
		k.reset()
		k.heal()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go k.carry(c)
		}
	}()
	return k
}

func (k *link) addr() string { return k.listener.Addr().String() }

// leads makes the link end at an address.
func (k *link) leads(to string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.to = to
}

func (k *link) carry(c net.Conn) {
	k.mu.Lock()
	to := k.to
	k.mu.Unlock()
	d, err := net.Dial("tcp", to)
	if err != nil {
		_ = c.Close()
		return
	}
	k.mu.Lock()
	k.conns[c], k.conns[d] = true, true
	k.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { k.copy(d, c) })
	both.Go(func() { k.copy(c, d) })
	both.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
	delete(k.conns, d)
}

func (k *link) copy(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }() // whatever ended, both ends are told
	p := make([]byte, 64<<10)
	for {
		n, err := from.Read(p)
		k.mu.Lock()
		open := k.open
		k.mu.Unlock()
		<-open
		if k.slow > 0 {
			time.Sleep(rand.N(k.slow))
		}
		if _, werr := to.Write(p[:n]); err != nil || werr != nil {
			return
		}
	}
}

// cut cuts the link, if it is not cut.
func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.open:
		k.open = make(chan struct{})
	default:
	}
}

func (k *link) heal() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.open:
	default:
		close(k.open)
	}
}

// reset ends all connections.
func (k *link) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		_ = c.Close()
	}
}
