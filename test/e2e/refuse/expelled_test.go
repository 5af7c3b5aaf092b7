// SPDX-License-Identifier: Apache-2.0

package refuse

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// longest is how long an expulsion may take everywhere.
const longest = 10 * time.Second

// ports are where certificates of the federation are looked at, from a site: gateways of others,
// and the members of the registry.
func (s *scene) ports(but string) (out []string) {
	for _, name := range s.Bed.Names() {
		if name != but {
			out = append(out, s.Bed.Site(name).Addr()+":7001")
		}
	}
	for _, e := range s.Bed.Etcd.Endpoints() {
		if u, err := url.Parse(e); err == nil {
			out = append(out, u.Host)
		}
	}
	return out
}

// open opens a connection from a site with a certificate, and reads what a server says first to
// whom it accepts.
func (s *scene) open(site, at string, pair tls.Certificate) (*tls.Conn, error) {
	raw, err := s.Bed.Site(site).DialContext(s.Ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, &tls.Config{Certificates: []tls.Certificate{pair}, ServerName: host, InsecureSkipVerify: true,
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}})
	_ = c.SetDeadline(time.Now().Add(longest))
	if _, err = c.Read(make([]byte, 1)); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return c, nil
}

// ends waits until a connection is closed by its server.
func ends(c *tls.Conn, until time.Time) error {
	_ = c.SetDeadline(until)
	for buffer := make([]byte, 4096); ; {
		if _, err := c.Read(buffer); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				return fmt.Errorf("the connection to %s stays", c.RemoteAddr())
			}
			_ = c.Close()
			return nil
		}
	}
}

func pairOf(t *testing.T, files stage.TLS) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// cut changes the charter, and waits until every port has closed its connections with a certificate
// and lets it in no more.
func (s *scene) cut(t *testing.T, site string, pair tls.Certificate, change ...string) {
	t.Helper()
	var open []*tls.Conn
	for _, at := range s.ports(site) {
		c, err := s.open(site, at, pair)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	begun := time.Now()
	if err := s.Bed.Federation(s.Ctx, change...); err != nil {
		t.Fatal(err)
	}
	for _, c := range open {
		if err := ends(c, begun.Add(longest)); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%s: %d connections were closed everywhere within %v", strings.Join(change, " "), len(open),
		time.Since(begun).Round(time.Millisecond))
	for _, at := range s.ports(site) {
		if c, err := s.open(site, at, pair); err == nil {
			t.Errorf("%s lets it in", at)
			_ = c.Close()
		}
	}
}

// expelled: an organization that has a copy is expelled while others write. Its connections are
// closed at all sites and at the registry, and its people are not heard; nobody else notices. When
// it is admitted again, its copy comes to be as the others.
func (s *scene) expelled(t *testing.T) {
	s.whole()
	s.cut(t, "c", pairOf(t, s.Bed.TLS("gc")), "expel", "org-c", "--why", "a test")
	if out, err := s.Bed.Weir(s.Ctx, "c", "volume", "list"); err == nil {
		t.Errorf("its people are heard: %s", out)
	}
	s.grows(t)
	s.Await("a", func(st bed.Status) bool {
		for _, r := range st.Replicas {
			if r.Site == "c" && (r.State == "Home" || r.State == "Member" || r.State == "Follower") {
				return false
			}
		}
		return st.State != "Unavailable" && len(st.Replicas) == 3
	})
	s.grows(t)
	if err := s.Bed.Federation(s.Ctx, "admit", "org-c"); err != nil {
		t.Fatal(err)
	}
	s.whole()
}

// replaced: another authority takes over from that of the organization whose machine writes. No
// process is started anew.
func (s *scene) replaced(t *testing.T) {
	old := pairOf(t, s.Bed.TLS("gb"))
	if err := s.Bed.NewAuthority("org-b"); err != nil {
		t.Fatal(err)
	}
	if err := s.Bed.AdmitOrganizations(s.Ctx, "org-b"); err != nil {
		t.Fatal(err)
	}
	for who, part := range map[string]pki.Part{"gb": pki.PartGateway, "admin-b": pki.PartPerson} {
		if _, err := s.Bed.Issue("org-b", "b", part, who, s.Bed.Site("b").Addr()); err != nil {
			t.Fatal(err)
		}
	}
	s.grows(t)
	s.cut(t, "b", old, "drop", "org-b", "--authority", s.Bed.Former("org-b"))
	s.grows(t)
	if text, err := os.ReadFile(s.Bed.Site("b").Gateway().Log()); err != nil || s.Bed.Site("b").Gateway().Exited() {
		t.Errorf("the gateway of b: %v: %s", err, text)
	}
	if _, err := s.Bed.Weir(s.Ctx, "b", "volume", "list"); err != nil {
		t.Error(err)
	}
	s.whole()
}
