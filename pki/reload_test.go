// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-storage/weir/pki"
)

// wall is a clock that a test moves.
type wall struct{ at atomic.Int64 }

func newWall() *wall {
	w := new(wall)
	w.at.Store(now.UnixNano())
	return w
}

func (w *wall) now() time.Time          { return time.Unix(0, w.at.Load()).UTC() }
func (w *wall) advance(d time.Duration) { w.at.Add(int64(d)) }

// record is a log that can be read while it is written.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// take returns what was written since it was called last.
func (r *record) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.text.Reset()
	return r.text.String()
}

// secret is a folder as the kubelet makes it of a Secret: each file is a link into ..data, which is
// a link to a folder, and is replaced at once.
type secret struct {
	t   *testing.T
	dir string
	n   int
}

func newSecret(t *testing.T) *secret { return &secret{t: t, dir: t.TempDir()} }

func (s *secret) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *secret) put(ca []byte, p pki.Pair) {
	s.t.Helper()
	s.n++
	data := fmt.Sprintf("..%d", s.n)
	s.must(os.Mkdir(filepath.Join(s.dir, data), 0o700))
	for name, text := range map[string][]byte{"ca.crt": ca, "tls.crt": p.Cert, "tls.key": p.Key} {
		if text != nil {
			s.must(os.WriteFile(filepath.Join(s.dir, data, name), text, 0o600))
		}
		if s.n == 1 {
			s.must(os.Symlink(filepath.Join("..data", name), filepath.Join(s.dir, name)))
		}
	}
	s.must(os.Symlink(data, filepath.Join(s.dir, "..new")))
	s.must(os.Rename(filepath.Join(s.dir, "..new"), filepath.Join(s.dir, "..data")))
}

func (s *secret) load(clock func() time.Time, log io.Writer) *pki.Credentials {
	s.t.Helper()
	f := func(name string) string { return filepath.Join(s.dir, name) }
	c, err := pki.LoadFiles(pki.Files{CA: f("ca.crt"), Cert: f("tls.crt"), Key: f("tls.key"), Log: slog.New(slog.NewTextHandler(log, nil))},
		clock)
	s.must(err)
	return c
}

func issue(t *testing.T, a *pki.Authority, who pki.Identity, from time.Time, valid time.Duration) pki.Pair {
	t.Helper()
	p, err := a.Issue(who, []string{"127.0.0.1"}, from, valid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func root(t *testing.T, a *pki.Authority) []byte {
	t.Helper()
	p, err := a.Pair()
	if err != nil {
		t.Fatal(err)
	}
	return p.Cert
}

// echo is a server that sends back what it gets, until the test ends.
func echo(t *testing.T, cfg *tls.Config) (address string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// dial connects and makes sure that the server took the connection: in TLS 1.3 a client hears of
// that by what it reads.
func dial(t *testing.T, address string, cfg *tls.Config) (*tls.Conn, error) {
	t.Helper()
	d := &net.Dialer{Timeout: time.Minute} // a guard against hanging
	c, err := tls.DialWithDialer(d, "tcp", address, cfg)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, alive(c)
}

func alive(c *tls.Conn) error {
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

func shown(t *testing.T, c *tls.Conn) []byte {
	t.Helper()
	return c.ConnectionState().PeerCertificates[0].Raw
}

func der(t *testing.T, p pki.Pair) []byte {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Certificate[0]
}

// A server that runs shows a new certificate from the next look on, and connections that are there
// stay.
func TestRenewal(t *testing.T) {
	w, log, a := newWall(), new(record), authority(t, "surf")
	who := id("surf", "SURF", "ams-1")
	s := newSecret(t)
	first, second, third := issue(t, a, who, now, time.Hour), issue(t, a, who, now, time.Hour), issue(t, a, who, now, 2*time.Hour)
	s.put(root(t, a), first)
	server := s.load(w.now, log)
	address := echo(t, server.Server(pki.Expect{}))
	client := credentials(t, a, id("surf", "SURF", "ein-1")).Client(pki.Expect{Site: "ams", Gateway: "ams-1"})
	expect := func(when string, want pki.Pair) *tls.Conn {
		t.Helper()
		c, err := dial(t, address, client)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if !bytes.Equal(shown(t, c), der(t, want)) {
			t.Fatalf("%s: the server shows another certificate", when)
		}
		return c
	}
	old := expect("at first", first)
	w.advance(3 * time.Second)
	expect("unchanged", first)
	if text := log.take(); text != "" {
		t.Errorf("nothing changed, and the log says %s", text)
	}
	s.put(root(t, a), second)
	w.advance(time.Second)
	expect("at once: files are looked at every two seconds", first)
	w.advance(2 * time.Second)
	expect("renewed", second)
	if text := log.take(); !strings.Contains(text, "in force") || !strings.Contains(text, who.String()) {
		t.Errorf("the log says %q", text)
	}
	s.put(root(t, a), third)
	w.advance(-5 * time.Minute)
	expect("the clock went back, which is no reason to wait", third)
	if want := now.Add(2 * time.Hour); !server.Expires().Equal(want) {
		t.Errorf("it expires at %v, the last certificate at %v", server.Expires(), want)
	}
	if err := alive(old); err != nil {
		t.Errorf("the first connection has ended: %v", err)
	}
}

// What cannot be used is refused and logged once, and the old certificate stays, until there is a
// good one.
func TestBadRenewal(t *testing.T) {
	a, other := authority(t, "surf"), authority(t, "surf")
	who := id("surf", "SURF", "ams-1")
	first, next := issue(t, a, who, now, time.Hour), issue(t, a, who, now, time.Hour)
	ca := root(t, a)
	for _, tt := range []struct {
		name string
		ca   []byte
		pair pki.Pair
		says string
	}{
		{"the old key", ca, pki.Pair{Cert: next.Cert, Key: first.Key}, "issued together"},
		{"no key", ca, pki.Pair{Cert: next.Cert}, "put it back"},
		{"half a key", ca, pki.Pair{Cert: next.Cert, Key: next.Key[:40]}, "issued together"},
		{"half a certificate", ca, pki.Pair{Cert: next.Cert[:200], Key: next.Key}, "issued together"},
		{"half of the authority's", ca[:300], next, "cut off"},
		{"half of the new authority's", append(slices.Clip(slices.Clone(ca)), root(t, other)[:300]...), next, "cut off"},
		{"nothing of the authority's", []byte{}, next, "no PEM block"},
		{"a key among the authority's", append(slices.Clip(slices.Clone(ca)), next.Key...), next, "PRIVATE KEY"},
		{"another gateway", ca, issue(t, a, id("surf", "SURF", "ams-2"), now, time.Hour), "put its own certificate there"},
		{"another organization", ca, issue(t, a, id("surf", "TUe", "ams-1"), now, time.Hour), "put its own certificate there"},
		{"another authority", root(t, other), next, "not issued by that authority"},
		{"expired", ca, issue(t, a, who, now.Add(-2*time.Hour), time.Hour), "valid from"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, log := newWall(), new(record)
			s := newSecret(t)
			s.put(ca, first)
			address := echo(t, s.load(w.now, log).Server(pki.Expect{}))
			client := credentials(t, a, id("surf", "SURF", "ein-1")).Client(pki.Expect{})
			expect := func(want pki.Pair) {
				t.Helper()
				w.advance(3 * time.Second)
				c, err := dial(t, address, client)
				if err != nil || !bytes.Equal(shown(t, c), der(t, want)) {
					t.Fatalf("error %v, or the server shows another certificate", err)
				}
			}
			s.put(tt.ca, tt.pair)
			expect(first)
			if text := log.take(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=ERROR") ||
				!strings.Contains(text, tt.says) {
				t.Errorf("the log says %q; it should say %q, once", text, tt.says)
			}
			expect(first)
			w.advance(2 * time.Minute)
			expect(first)
			if text := log.take(); text != "" {
				t.Errorf("the log says again %q", text)
			}
			s.put(ca, next)
			expect(next)
		})
	}
}

// A certificate whose time has not come yet is taken when it has, without another change.
func TestEarlyRenewal(t *testing.T) {
	w, log, a := newWall(), new(record), authority(t, "surf")
	who := id("surf", "SURF", "ams-1")
	s := newSecret(t)
	s.put(root(t, a), issue(t, a, who, now, 10*time.Hour))
	c := s.load(w.now, log)
	s.put(root(t, a), issue(t, a, who, now.Add(30*time.Minute), 20*time.Hour)) // valid ten minutes earlier
	w.advance(3 * time.Second)
	if early := now.Add(10 * time.Hour); !c.Expires().Equal(early) || !strings.Contains(log.take(), "set the clock") {
		t.Fatalf("it expires at %v, the first at %v", c.Expires(), early)
	}
	w.advance(25 * time.Minute)
	if want := now.Add(30*time.Minute + 20*time.Hour); !c.Expires().Equal(want) || !strings.Contains(log.take(), "in force") {
		t.Errorf("it expires at %v, the second at %v", c.Expires(), want)
	}
}

// Files that change while they are read are no mistake: they are read again. The key is a pipe
// here, so that the reader waits in the middle.
func TestFilesChangeWhileTheyAreRead(t *testing.T) {
	w, log, a := newWall(), new(record), authority(t, "surf")
	who := id("surf", "SURF", "ams-1")
	s := newSecret(t)
	s.put(root(t, a), issue(t, a, who, now, 2*time.Hour))
	c := s.load(w.now, log)
	s.put(root(t, a), pki.Pair{Cert: issue(t, a, who, now, 3*time.Hour).Cert})
	pipe := filepath.Join(s.dir, "..data", "tls.key")
	s.must(syscall.Mkfifo(pipe, 0o600))
	w.advance(3 * time.Second)
	looked := make(chan time.Time)
	go func() { looked <- c.Expires() }()
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when the reader is there
	s.must(err)
	last := issue(t, a, who, now, 4*time.Hour)
	s.put(root(t, a), last)
	_, err = writer.Write(last.Key)
	s.must(err)
	s.must(writer.Close())
	if at, text := <-looked, log.take(); !at.Equal(now.Add(2*time.Hour)) || text != "" {
		t.Errorf("it expires at %v, and the first at %v; the log says %q", at, now.Add(2*time.Hour), text)
	}
	w.advance(3 * time.Second)
	if at := c.Expires(); !at.Equal(now.Add(4*time.Hour)) || !strings.Contains(log.take(), "in force") {
		t.Errorf("it expires at %v, and the last at %v", at, now.Add(4*time.Hour))
	}
}

// A certificate's end is logged, but not at each handshake.
func TestEndIsTold(t *testing.T) {
	w, log, a := newWall(), new(record), authority(t, "surf")
	s := newSecret(t)
	s.put(root(t, a), issue(t, a, id("surf", "SURF", "ams-1"), now, 20*time.Hour))
	c := s.load(w.now, log)
	for _, step := range []struct {
		after time.Duration
		says  string
	}{
		{10 * time.Hour, ""},
		{9 * time.Hour, "level=WARN"},
		{10 * time.Minute, ""},
		{time.Hour, "level=ERROR"},
		{10 * time.Minute, ""},
		{time.Hour, "level=ERROR"},
	} {
		w.advance(step.after)
		c.Expires()
		c.Expires()
		text := log.take()
		if (text == "") != (step.says == "") || !strings.Contains(text, step.says) || strings.Count(text, "\n") > 1 {
			t.Errorf("at %v the log says %q; want %q, once", w.now(), text, step.says)
		}
	}
	s.put(root(t, a), issue(t, a, id("surf", "SURF", "ams-1"), w.now(), 2*time.Hour))
	w.advance(3 * time.Second)
	if left := c.Expires().Sub(w.now()); left <= 0 {
		t.Error("an expired certificate was not replaced")
	}
}

// Handshakes at any time during renewals succeed, at both ends.
func TestHandshakesDuringRenewals(t *testing.T) {
	w, a := newWall(), authority(t, "surf")
	server, client := newSecret(t), newSecret(t)
	renew := func() {
		server.put(root(t, a), issue(t, a, id("surf", "SURF", "ams-1"), now, time.Hour))
		client.put(root(t, a), issue(t, a, id("surf", "SURF", "ein-1"), now, time.Hour))
	}
	renew()
	log := new(record)
	address := echo(t, server.load(w.now, log).Server(pki.Expect{}))
	cfg := client.load(w.now, log).Client(pki.Expect{Site: "ams", Gateway: "ams-1"})
	var work sync.WaitGroup
	seen := map[string]bool{}
	var mu sync.Mutex
	stop := make(chan struct{})
	for range 4 {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := dial(t, address, cfg)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				seen[string(c.ConnectionState().PeerCertificates[0].Raw)] = true
				mu.Unlock()
				_ = c.Close()
				w.advance(time.Second)
			}
		})
	}
	for range 20 {
		renew()
	}
	for more := true; more; { // until the last one was shown, whatever the machine's speed
		last, err := os.ReadFile(filepath.Join(server.dir, "tls.crt"))
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		more = !seen[string(parse(t, last).Raw)] && !t.Failed()
		mu.Unlock()
	}
	close(stop)
	work.Wait()
	if text := log.take(); strings.Contains(text, "ERROR") {
		t.Errorf("the log says %s", text)
	}
}

func parse(t *testing.T, cert []byte) *x509.Certificate {
	t.Helper()
	pool, rest := certificates(cert)
	if len(pool) != 1 || len(rest) > 0 {
		t.Fatalf("%d certificates", len(pool))
	}
	return pool[0]
}
