// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs"
	"github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/state/statetest"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// site is a server that can be restarted, with one volume called "vol".
type site struct {
	t     testing.TB
	vol   *memvol.Volume
	store statetest.Store
	boot  uint64

	mu     sync.Mutex // guards what follows
	addr   string
	server *nfs.Server
	armed  func(*lossy) // what to do with the next reply; nil for nothing
}

// still is a clock that does not move.
type still struct{}

func (still) Now() time.Time                       { return time.Unix(1e9, 0) }
func (still) After(time.Duration) <-chan time.Time { return nil }

func (s *site) Exports(netip.Addr) []nfs.Export {
	return []nfs.Export{{Name: "vol", ID: s.vol.ID()}}
}

func (s *site) Named(string) error { return nfs.ErrDeleted }

func (s *site) Unsettled(netip.Addr) bool { return false }

func (s *site) Open(_ netip.Addr, id volume.ID) (volume.Volume, nfs.Export, error) {
	if id != s.vol.ID() {
		return nil, nfs.Export{}, nfs.ErrNoVolume
	}
	return s.vol, nfs.Export{Name: "vol", ID: id}, nil
}

// newSite starts a server; options are the volume's.
func newSite(t *testing.T, options ...memvol.Option) *site {
	t.Helper()
	s := &site{t: t, vol: memvol.New(volume.ID{1, 2, 3}, options...)}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *site) start() {
	s.t.Helper()
	s.boot++
	server, err := nfs.New(nfs.Config{
		Gateway: "gateway", ServerOwner: "owner", ServerScope: "scope", Boot: s.boot, Lease: time.Minute,
		Exports: s, State: &s.store, Clock: still{}, Rand: rand.Reader, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.addr, s.server = l.Addr().String(), server
	s.mu.Unlock()
	go func() {
		if err := server.Serve(l); !errors.Is(err, nfs.ErrServerClosed) {
			s.t.Errorf("serve: %v", err)
		}
	}()
}

func (s *site) stop() {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		s.t.Errorf("shutdown: %v", err)
	}
}

func (s *site) restart() {
	s.stop()
	s.start()
}

func (s *site) counters() nfs.Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server.Counters()
}

// dialContext connects to the server that runs, whatever the address.
func (s *site) dialContext(ctx context.Context, _ string) (net.Conn, error) {
	s.mu.Lock()
	addr := s.addr
	s.mu.Unlock()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &lossy{Conn: nc, site: s}, nil
}

// losing loses the next reply together with its connection, and calls before then.
func (s *site) losing(before func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = func(l *lossy) {
		if before != nil {
			before()
		}
		_ = l.Conn.Close() // as a broken network does
	}
}

// lossy is a connection whose replies can get lost.
type lossy struct {
	net.Conn
	site *site
}

func (l *lossy) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.site.mu.Lock()
	lose := l.site.armed
	l.site.armed = nil
	l.site.mu.Unlock()
	if lose == nil {
		return n, err
	}
	lose(l)
	return 0, net.ErrClosed
}

func (s *site) options() client.Options {
	return client.Options{Owner: "test client", Verifier: [8]byte{1}, DialContext: s.dialContext}
}

// dial makes a client that may open files, and finds the volume's root.
func (s *site) dial(o client.Options) (*client.Client, client.FH) {
	s.t.Helper()
	c, err := client.Dial(s.t.Context(), "server", o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Abandon)
	if err := c.ReclaimComplete(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	root, err := c.Mount(s.t.Context(), "/vol")
	if err != nil {
		s.t.Fatal(err)
	}
	return c, root.FH
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error, want xdr.Status) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("outcome is %v, want %v", err, want)
	}
}

func create(t *testing.T, c *client.Client, dir client.FH, name string) *client.File {
	t.Helper()
	mode := uint32(0o644)
	f, err := c.Open(t.Context(), dir, name, client.OpenArgs{Create: true, Mode: xdr.GUARDED4, Attr: volume.SetAttr{Mode: &mode}})
	check(t, err)
	return f
}

func content(t *testing.T, f *client.File) []byte {
	t.Helper()
	var all bytes.Buffer
	p := make([]byte, 64<<10)
	for {
		n, eof, err := f.ReadAt(t.Context(), p, uint64(all.Len()))
		check(t, err)
		all.Write(p[:n])
		if eof || n == 0 {
			return all.Bytes()
		}
	}
}
