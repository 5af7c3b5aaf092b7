// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
)

// links are the ways from each gateway to each other one. They are made when the gateways hear of
// each other.
type links struct {
	t    testing.TB
	host string
	slow time.Duration // of each new one
	mu   sync.Mutex
	all  map[[2]string]*link // from site, to site
}

func (c *cluster) withLinks(slow time.Duration) {
	c.links = &links{t: c.t, host: c.host, slow: slow, all: map[[2]string]*link{}}
}

// to returns the way from one site to another.
func (l *links) to(from, to string) *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.all[[2]string{from, to}]
	if k == nil {
		k = newLink(l.t, l.host, l.slow)
		l.all[[2]string{from, to}] = k
	}
	return k
}

// around returns all ways that begin or end at a site.
func (l *links) around(site string) (out []*link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for pair, k := range l.all {
		if pair[0] == site || pair[1] == site {
			out = append(out, k)
		}
	}
	return out
}

// linked is the registry as a gateway reads it whose ways to others are links.
type linked struct {
	federation.Registry
	links *links
	site  string
}

func (r linked) Watch(ctx context.Context, f func(federation.Event) error) error {
	return r.Registry.Watch(ctx, func(e federation.Event) error {
		if e.Site != nil && e.Site.Name != r.site {
			s := *e.Site
			s.Gateways = slices.Clone(s.Gateways)
			for i, g := range s.Gateways {
				k := r.links.to(r.site, s.Name)
				k.leads(g.Addr)
				s.Gateways[i].Addr = k.addr()
			}
			e.Site = &s
		}
		return f(e)
	})
}

// link is the way from one gateway to another. A test can cut it: then nothing arrives, as if
// packets were lost, until it is healed.
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
