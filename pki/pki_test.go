// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/pki"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func clock() time.Time { return now }

func authority(t *testing.T, federation string) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(federation, now, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func id(federation, organization, gateway string) pki.Identity {
	return pki.Identity{Federation: federation, Organization: organization, Site: "ams", Gateway: gateway}
}

// credentials are issued by a, and trust it.
func credentials(t *testing.T, a *pki.Authority, who pki.Identity) *pki.Credentials {
	t.Helper()
	p, err := a.Issue(who, []string{"127.0.0.1", "localhost"}, now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	own, err := a.Pair()
	if err != nil {
		t.Fatal(err)
	}
	c, err := pki.Load(own.Cert, p, clock)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connect returns what each side says of a handshake, and who the server thinks the client is.
func connect(t *testing.T, server, client *tls.Config) (peer pki.Identity, serverErr, clientErr error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	done := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer func() { _ = raw.Close() }()
		c := raw.(*tls.Conn)
		if err := c.Handshake(); err != nil {
			done <- err
			return
		}
		peer, err = pki.PeerIdentity(c.ConnectionState())
		if err == nil {
			_, err = c.Write([]byte("x"))
		}
		done <- err
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	if err == nil {
		// In TLS 1.3 the client hears only now whether the server accepted it.
		_, err = io.ReadFull(c, make([]byte, 1))
		_ = c.Close()
	}
	return peer, <-done, err
}

func TestMutual(t *testing.T) {
	a := authority(t, "surf")
	server := credentials(t, a, id("surf", "SURF B.V.", "ams-1"))
	client := credentials(t, a, id("surf", "TUe", "ein-1"))
	peer, serr, cerr := connect(t, server.Server(pki.Expect{}), client.Client(pki.Expect{Gateway: "ams-1"}))
	if serr != nil || cerr != nil || peer != client.Identity() {
		t.Fatalf("peer %v, server %v, client %v", peer, serr, cerr)
	}
	if got := client.Client(pki.Expect{}).MinVersion; got != tls.VersionTLS13 {
		t.Fatalf("version %x", got)
	}
}

func TestRefused(t *testing.T) {
	a := authority(t, "surf")
	stranger := authority(t, "surf") // of that name, and another key
	server := credentials(t, a, id("surf", "SURF", "ams-1"))
	client := credentials(t, a, id("surf", "TUe", "ein-1"))
	for _, tt := range []struct {
		name           string
		server, client *tls.Config
		serverSays     []string
		clientSays     []string
	}{
		{"organization of the client", server.Server(pki.Expect{Organizations: []string{"SURF", "KUL"}}), client.Client(pki.Expect{}),
			[]string{`organization is "TUe"`, `"SURF", "KUL"`, "add that organization"}, nil},
		{"organization of the server", server.Server(pki.Expect{}), client.Client(pki.Expect{Organizations: []string{"TUe"}}),
			nil, []string{`organization is "SURF"`, `"TUe"`}},
		{"gateway of the server", server.Server(pki.Expect{}), client.Client(pki.Expect{Gateway: "ams-2"}), nil,
			[]string{`gateway is "ams-1"`, `"ams-2"`}},
		{"site of the server", server.Server(pki.Expect{}), client.Client(pki.Expect{Site: "utr"}), nil,
			[]string{`site is "ams"`, `"utr"`}},
		{"another authority's client", server.Server(pki.Expect{}), credentials(t, stranger, id("surf", "SURF", "x")).Client(pki.Expect{}),
			nil, []string{"certificate"}},
		{"no certificate", server.Server(pki.Expect{}), func() *tls.Config {
			c := client.Client(pki.Expect{})
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return new(tls.Certificate), nil }
			return c
		}(), []string{"certificate"}, nil},
		{"old TLS", server.Server(pki.Expect{}), func() *tls.Config {
			c := client.Client(pki.Expect{})
			c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
			return c
		}(), []string{"version"}, nil},
		{"address not in the certificate", server.Server(pki.Expect{}), func() *tls.Config {
			c := client.Client(pki.Expect{})
			c.ServerName = "10.9.9.9"
			return c
		}(), nil, []string{"10.9.9.9"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, serr, cerr := connect(t, tt.server, tt.client)
			if serr == nil || cerr == nil {
				t.Fatalf("accepted: server %v, client %v", serr, cerr)
			}
			for _, w := range tt.serverSays {
				if !strings.Contains(serr.Error(), w) {
					t.Errorf("the server's %q does not say %s", serr, w)
				}
			}
			for _, w := range tt.clientSays {
				if !strings.Contains(cerr.Error(), w) {
					t.Errorf("the client's %q does not say %s", cerr, w)
				}
			}
		})
	}
	err := pki.Expect{}.Check("surf", id("esnet", "LBNL", "x"))
	if !errors.Is(err, pki.ErrPeer) || !strings.Contains(err.Error(), `"esnet"`) || !strings.Contains(err.Error(), `"surf"`) {
		t.Errorf("another federation: %v", err)
	}
	if _, err := pki.PeerIdentity(tls.ConnectionState{}); !errors.Is(err, pki.ErrPeer) {
		t.Errorf("no certificate: %v", err)
	}
}

// A member of the registry may be at any of its addresses, and at no other.
func TestHosts(t *testing.T) {
	a := authority(t, "surf")
	server := credentials(t, a, id("surf", "SURF", "registry-1")).Server(pki.Expect{})
	client := credentials(t, a, id("surf", "SURF", "ams-1"))
	for _, tt := range []struct {
		hosts []string
		ok    bool
	}{
		{[]string{"127.0.0.1"}, true},
		{[]string{"10.0.0.1", "localhost"}, true},
		{[]string{"10.0.0.1", "registry.example.org"}, false},
		{[]string{""}, false},
	} {
		_, serr, cerr := connect(t, server, client.Client(pki.Expect{}, tt.hosts...))
		if ok := serr == nil && cerr == nil; ok != tt.ok {
			t.Errorf("hosts %q: server %v, client %v; accepted should be %v", tt.hosts, serr, cerr, tt.ok)
		}
	}
	stranger := credentials(t, authority(t, "surf"), id("surf", "SURF", "registry-1")).Server(pki.Expect{})
	if _, _, err := connect(t, stranger, client.Client(pki.Expect{}, "127.0.0.1")); err == nil {
		t.Error("a server of another authority is accepted")
	}
}

// At an address that no certificate names, a server is known by its identity, and by nothing less.
func TestByIdentity(t *testing.T) {
	a, other := authority(t, "f"), authority(t, "f")
	server := credentials(t, a, id("f", "surf", "g1"))
	elsewhere := func(c *tls.Config) *tls.Config {
		c.ServerName = "10.96.0.7"
		return c
	}
	client := credentials(t, a, id("f", "surf", "csi"))
	if _, _, err := connect(t, server.Server(pki.Expect{}), elsewhere(client.Client(pki.Expect{Site: "ams"}))); err == nil {
		t.Fatal("by address: a server that is not there is accepted")
	}
	if _, serr, cerr := connect(t, server.Server(pki.Expect{}),
		elsewhere(client.ClientByIdentity(pki.Expect{Organizations: []string{"surf"}, Site: "ams"}))); serr != nil || cerr != nil {
		t.Fatalf("%v, %v", serr, cerr)
	}
	if _, serr, cerr := connect(t, server.Server(pki.Expect{}),
		elsewhere(client.Client(pki.Expect{Site: "ams", Gateway: "g1"}))); serr != nil || cerr != nil {
		t.Fatalf("the one gateway of that name: %v, %v", serr, cerr)
	}
	for name, c := range map[string]struct {
		server *pki.Credentials
		want   pki.Expect
	}{
		"another site":        {server, pki.Expect{Site: "fra"}},
		"another gateway":     {server, pki.Expect{Site: "ams", Gateway: "g2"}},
		"another institution": {server, pki.Expect{Organizations: []string{"x"}, Site: "ams"}},
		"no site":             {server, pki.Expect{Gateway: "g1"}},
		"another authority":   {credentials(t, other, id("f", "surf", "g1")), pki.Expect{Site: "ams"}},
	} {
		if _, _, err := connect(t, c.server.Server(pki.Expect{}), elsewhere(client.ClientByIdentity(c.want))); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	a, b := authority(t, "surf"), authority(t, "esnet")
	pa, _ := a.Pair()
	pb, _ := b.Pair()
	own, err := a.Issue(id("surf", "SURF", "ams-1"), nil, now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	other, err := a.Issue(id("surf", "SURF", "ams-2"), nil, now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	at := func(d time.Duration) func() time.Time { return func() time.Time { return now.Add(d) } }
	for _, tt := range []struct {
		name  string
		ca    []byte
		pair  pki.Pair
		clock func() time.Time
		err   error
		says  string
	}{
		{"good", pa.Cert, own, clock, nil, ""},
		{"clock a little behind", pa.Cert, own, at(-5 * time.Minute), nil, ""},
		{"expired", pa.Cert, own, at(2 * time.Hour), pki.ErrInvalid, "2026-01-02T04:04:05Z"},
		{"not yet", pa.Cert, own, at(-time.Hour), pki.ErrInvalid, "set the clock"},
		{"another authority", pb.Cert, own, clock, pki.ErrInvalid, "not issued by that authority"},
		{"another key", pa.Cert, pki.Pair{Cert: own.Cert, Key: other.Key}, clock, pki.ErrInvalid, "issued together"},
		{"no authority", nil, own, clock, pki.ErrInvalid, "ca.crt"},
		{"the authority's own", pa.Cert, pa, clock, pki.ErrPeer, "organization"},
	} {
		_, err := pki.Load(tt.ca, tt.pair, tt.clock)
		if !errors.Is(err, tt.err) || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: error %v, want %v with %q", tt.name, err, tt.err, tt.says)
		}
	}
}

func TestIssueRefuses(t *testing.T) {
	a := authority(t, "surf")
	for _, tt := range []struct {
		id    pki.Identity
		hosts []string
		valid time.Duration
	}{
		{id("esnet", "SURF", "g"), nil, time.Hour},
		{id("surf", "", "g"), nil, time.Hour},
		{id("surf", "a/b", "g"), nil, time.Hour},
		{id("surf", "SURF", "G"), nil, time.Hour},
		{id("surf", "SURF", ""), nil, time.Hour},
		{id("surf", "SURF", "g"), []string{"10.0.0.1:7001"}, time.Hour},
		{id("surf", "SURF", "g"), []string{""}, time.Hour},
		{id("surf", "SURF", "g"), nil, 0},
		{id("surf", "SURF", "g"), []string{"registry.surf.weir"}, time.Hour}, // a member of the registry's name
		{id("surf", "SURF", "g"), []string{"Registry.SURF.weir."}, time.Hour},
		{id("surf", "SURF", "g"), []string{"*.surf.weir"}, time.Hour},
		{pki.Identity{Federation: "surf", Organization: "SURF", Site: "ams", Gateway: "g", Part: "king"}, nil, time.Hour},
	} {
		if _, err := a.Issue(tt.id, tt.hosts, now, tt.valid); !errors.Is(err, pki.ErrInvalid) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	if _, err := a.Issue(id("surf", "SURF", "g"), nil, now.Add(25*time.Hour), time.Hour); !errors.Is(err, pki.ErrInvalid) ||
		!strings.Contains(err.Error(), "expired at 2026-01-03") {
		t.Errorf("by an authority that has expired: %v", err)
	}
	if _, err := pki.NewAuthority("Not A Label", now, time.Hour); !errors.Is(err, pki.ErrInvalid) {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	p, err := authority(t, "surf").Pair()
	if err != nil {
		t.Fatal(err)
	}
	ca, _, err := p.Write(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	a, err := pki.ReadAuthority(dir, "ca")
	if err != nil || a.Federation() != "surf" {
		t.Fatalf("%+v, %v", a, err)
	}
	own, err := a.Issue(id("surf", "SURF", "ams-1"), []string{"127.0.0.1"}, now, 1000*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := own.Write(dir, "ams-1")
	if err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(key); err != nil || i.Mode().Perm() != 0o600 {
		t.Fatalf("key %v, %v", i.Mode(), err)
	}
	c, err := pki.LoadFiles(pki.Files{CA: ca, Cert: cert, Key: key}, clock)
	if err != nil || c.Identity() != id("surf", "SURF", "ams-1") {
		t.Fatalf("%+v, %v", c, err)
	}
	if want := now.Add(24 * time.Hour); !c.Expires().Equal(want) {
		t.Errorf("expires %v, the authority %v", c.Expires(), want)
	}
	if _, _, err := own.Write(dir, "ams-1"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a key was replaced: %v", err)
	}
	if _, err := pki.LoadFiles(pki.Files{CA: ca, Cert: cert, Key: filepath.Join(dir, "none")}, clock); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.key"), own.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.ReadAuthority(dir, "ca"); !errors.Is(err, pki.ErrInvalid) || !strings.Contains(err.Error(), "does not belong") {
		t.Error(err)
	}
}

// A certificate that the authority issued for something else, or that contradicts itself, is
// nobody's.
func TestPeerIdentityRefuses(t *testing.T) {
	uris := func(texts ...string) (out []*url.URL) {
		for _, s := range texts {
			u, err := url.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, u)
		}
		return out
	}
	org := pkix.Name{Organization: []string{"SURF"}}
	for _, tt := range []struct {
		name string
		cert x509.Certificate
		ok   bool
	}{
		{"good", x509.Certificate{Subject: org, URIs: uris("weir://surf/SURF/ams/ams-1")}, true},
		{"other URIs besides", x509.Certificate{Subject: org, URIs: uris("spiffe://x/y", "weir://surf/SURF/ams/ams-1")}, true},
		{"none", x509.Certificate{Subject: org}, false},
		{"two", x509.Certificate{Subject: org, URIs: uris("weir://surf/SURF/ams/ams-1", "weir://surf/SURF/ams/ams-2")}, false},
		{"too short", x509.Certificate{Subject: org, URIs: uris("weir://surf/SURF/ams")}, false},
		{"too long", x509.Certificate{Subject: org, URIs: uris("weir://surf/SURF/ams/ams-1/x")}, false},
		{"a query", x509.Certificate{Subject: org, URIs: uris("weir://surf/SURF/ams/ams-1?x")}, false},
		{"bad gateway", x509.Certificate{Subject: org, URIs: uris("weir://surf/SURF/ams/AMS")}, false},
		{"another organization in the URI", x509.Certificate{Subject: org, URIs: uris("weir://surf/TUe/ams/ams-1")}, false},
		{"no organization in the subject", x509.Certificate{URIs: uris("weir://surf/SURF/ams/ams-1")}, false},
	} {
		got, err := pki.PeerIdentity(tls.ConnectionState{PeerCertificates: []*x509.Certificate{&tt.cert}})
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, pki.ErrPeer) || tt.ok && got != id("surf", "SURF", "ams-1") {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
}

// A certificate says what its owner is, and only those of the registry's members have its name.
func TestParts(t *testing.T) {
	a := authority(t, "surf")
	for _, part := range append(pki.Parts(), pki.PartUnknown) {
		who := id("surf", "SURF", "g")
		who.Part = part
		c := credentials(t, a, who)
		if c.Identity() != who {
			t.Errorf("%q: its certificate is of %+v", part, c.Identity())
		}
		server := credentials(t, a, id("surf", "SURF", "s"))
		peer, err, _ := connect(t, server.Server(pki.Expect{Part: pki.PartRegistry}), c.Client(pki.Expect{}, "127.0.0.1"))
		if (err == nil) != (part == pki.PartRegistry) || err == nil && peer.Part != part {
			t.Errorf("%q is let in where the registry is expected: %+v, %v", part, peer, err)
		}
	}
}
